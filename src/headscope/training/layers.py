"""Which layers learn, and how fast: layer-wise learning rates, and layers that stay as they are."""

import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from headscope.model.classifier import TextClassifier
from headscope.training.config import OptimizerConfig

NGRAM_WEIGHTS, NO_LAYER = "evidence.weight", -1  # in the place of a distance


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return AdamW's groups of parameters, in which matrices alone are decayed.

    Tables are matrices, that of learned places too: BERT's own optimizer leaves out norms and biases and nothing else
    (Devlin et al. 2019; exclude_from_weight_decay in optimization.py of their code).

    A layer's learning rate is learning_rate * layer_decay ^ (L + 1 - depth), with the depth that `depths` gives
    it: what lies deep, and is the same for all texts and tasks, changes least (Clark et al. 2020, ELECTRA, appendix B;
    Howard and Ruder 2018, ULMFiT, section 3.2). With layer_decay = 1 there are two groups, of one rate.
    The weights of n-grams are a group of their own, of evidence_rate: each is learned from the few texts that have it.
    Frozen parameters are among the groups and get no gradient, so a run may be resumed with fewer or more of them.
    """
    return [
        {
            "params": weights,
            "lr": config.evidence_rate if distance == NO_LAYER else config.learning_rate * config.layer_decay**distance,
            "weight_decay": config.weight_decay if is_matrix else 0.0,
        }
        for (distance, is_matrix), weights in grouped(model, by_layer=config.layer_decay < 1).items()
    ]


def grouped(model: nn.Module, by_layer: bool) -> dict[tuple[int, bool], list[nn.Parameter]]:
    """Return the parameters by their layer's distance from the top and by whether they are matrices, in AdamW's order.

    Args:
        model: with parts named as in `TextClassifier`.
        by_layer: False counts every distance as 0, which leaves two groups, and a third of the n-grams' weights.
    """
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    found = list(depths(model))
    deepest = max((depth for _, depth in found), default=0)
    for weight, depth in found:
        distance = deepest - depth if by_layer else 0
        groups.setdefault((distance, weight.dim() >= 2), []).append(weight)
    if of_ngrams := [weight for name, weight in model.named_parameters() if name == NGRAM_WEIGHTS]:
        groups[NO_LAYER, False] = of_ngrams
    return dict(sorted(groups.items(), key=lambda entry: (entry[0][0], not entry[0][1])))


def depths(model: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """Yield every parameter with its depth: 0 in the embedding, i + 1 in block i, L + 1 in what follows the blocks.

    The weights of n-grams are passed over.
    """
    names = [(name, weight) for name, weight in model.named_parameters() if name != NGRAM_WEIGHTS]
    blocks = {name: _block(name) for name, _ in names}
    above = max((number + 2 for number in blocks.values() if number is not None), default=1)
    for name, weight in names:
        number = blocks[name]
        if number is not None:
            yield weight, number + 1
        else:
            yield weight, 0 if name.startswith("embedding.") else above


def _block(name: str) -> int | None:
    found = re.match(r"encoder\.blocks\.(\d+)\.", name)
    return int(found[1]) if found else None


def freeze(model: TextClassifier, layers: int | None) -> None:
    """Let the embedding and the first so many blocks stay as they are; None lets all learn.

    Dropout goes on in them, as it does in the others: what stands above them sees as much noise as without freezing.
    With trainer.ema_decay the kept weights are an average, which rounds: it may differ in the last digit.
    """
    if layers is not None:
        for part in (model.embedding, *list(model.encoder.blocks)[:layers]):
            part.requires_grad_(False)
