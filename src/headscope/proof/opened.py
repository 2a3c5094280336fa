"""Checkpoints of each family, opened into our own network, against transformers, where it is.

Networks of random weights are made here, as float32, in which files have them. What transformers
computes of them is the reference, in float64 but for the rotations of ModernBERT.

Shape letters: B texts, T tokens.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headscope.ground.errors import ConfigError
from headscope.model.classifier import TextClassifier
from headscope.model.families import FAMILIES, Description, architecture_of
from headscope.model.opened import frozen_layers, translated
from headscope.model.others import import_transformers
from headscope.proof.claims import CLASSES, Claim, Precision

LAYERS = 3
LENGTH = 13
VOCABULARY = 53
SIZES = {
    "d_model": 42,
    "num_heads": 3,
    "num_layers": LAYERS,
    "feedforward_size": 17,
    "max_length": 19,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 23},  # narrower than the model
    "modernbert": {"local_attention": 6, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0},
}
PADDING = torch.arange(LENGTH) >= torch.tensor([[13], [7], [1]])
SINGLE_PRECISION = "modernbert"  # in transformers its rotations are float32
SINGLE = 1e-6


def opened_claims(precision: Precision) -> Iterator[Claim]:
    """Compare logits of padded texts, pairs and single tokens, and the states of each layer."""
    try:
        transformers = import_transformers("verify")
    except ConfigError:
        return
    for kind in FAMILIES:
        torch.manual_seed(37)
        theirs = _drawn(precision, transformers, kind)
        encoder = theirs.config.to_dict()
        model = TextClassifier(architecture_of(encoder), CLASSES)
        _load(precision, model, encoder, theirs)
        yield from _logits_claims(precision, kind, model, theirs)
        yield _states_claim(precision, kind, encoder, theirs)


def _drawn(precision: Precision, transformers: Any, kind: str) -> Any:
    """Return a classifier of transformers with random weights, biases and norms."""
    sizes: dict[str, Any] = {FAMILIES[kind].keys[name]: size for name, size in SIZES.items()}
    sizes |= {"vocab_size": VOCABULARY, "num_labels": CLASSES, **OPTIONS.get(kind, {})}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    held = precision if precision.dtype == torch.bfloat16 else Precision(torch.float32)
    return held.draw_weights(model)


def _load(precision: Precision, network: nn.Module, encoder: Description, theirs: Any) -> None:
    weights = theirs.state_dict()
    shapes = {name: [*weight.shape] for name, weight in weights.items()}
    network.load_state_dict(translated(network, encoder, shapes, weights.__getitem__))
    network.to(precision.device, precision.dtype).eval()


@torch.no_grad()
def _logits_claims(
    precision: Precision, kind: str, model: TextClassifier, theirs: Any
) -> Iterator[Claim]:
    ids = torch.randint(5, VOCABULARY, PADDING.shape)
    types = (torch.arange(LENGTH) > LENGTH // 2).long().expand_as(ids)
    texts: dict[str, tuple[Tensor | None, ...]] = {
        "padding": (ids, PADDING, None),
        "pairs": (ids, PADDING, types),
        "one token": (ids[:, :1], None, None),
    }
    for name, text in texts.items():
        expected = theirs(**_inputs(theirs, *text)).logits
        given = [None if part is None else part.to(precision.device) for part in text]
        yield _claim(precision, f"{kind}: {name}", kind, [model(*given)], [expected])


@torch.no_grad()
def _states_claim(precision: Precision, kind: str, encoder: Description, theirs: Any) -> Claim:
    """Check each layer's states, all read together and the middle one read alone."""
    ids = torch.randint(5, VOCABULARY, PADDING.shape)
    inputs = _inputs(theirs.base_model, ids, PADDING)
    states = theirs.base_model(**inputs, output_hidden_states=True).hidden_states
    found: list[Tensor] = []
    for layers in ([*range(1, LAYERS + 1)], [LAYERS - 1]):
        frozen = frozen_layers(encoder, layers)
        _load(precision, frozen, encoder, theirs)
        read = frozen(ids.to(precision.device), PADDING.to(precision.device))  # [B, T, L D]
        found += [each[~PADDING] for each in read.cpu().chunk(len(layers), dim=-1)]
    expected = [state[~PADDING] for state in (*states[1:], states[LAYERS - 1])]
    title = f"{kind}: states of each layer, also read alone"
    return _claim(precision, title, kind, found, expected)


def _inputs(
    theirs: Any, ids: Any, padding: Tensor | None = None, types: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the inputs of a model of transformers."""
    mask = torch.zeros_like(ids).bool() if padding is None else padding
    inputs = {"input_ids": ids.masked_fill(mask, theirs.config.pad_token_id)}
    inputs["attention_mask"] = (~mask).long()
    if types is not None and getattr(theirs.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = types
    return inputs


def _claim(
    precision: Precision, title: str, kind: str, found: list[Tensor], expected: list[Tensor]
) -> Claim:
    is_single = kind == SINGLE_PRECISION
    bound = SINGLE if is_single and precision.dtype == torch.float64 else None
    reference = "transformers, rotations in float32" if is_single else "transformers, float64"
    return precision.claim(title, reference, found, expected, bound)
