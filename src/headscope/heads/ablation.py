"""What ablating a head does to the loss, and whether that is more than chance.

The loss increase d_t of text t is its loss with the head ablated less its loss with the whole
model. Over n texts the mean m has the standard error s = std(d) / sqrt(n), and the interval from
m - q s to m + q s covers the true mean with 95 % confidence: q is the quantile of Student's t with
n - 1 degrees of freedom, corrected for the number of heads and of interim analyses (Bonferroni).
Against the smallest effect of interest, delta = 0.01 nats, an effect has one of three states:

    matters         the interval lies wholly above delta (the head helps) or below -delta (it harms)
    no effect       it lies wholly between -delta and delta (the two one-sided tests of Schuirmann
                    1987)
    inconclusive    neither: more texts are needed

Every function runs the model in eval mode and leaves weights, gradients and modes as they were,
after errors too. Shape letters: B texts of a batch, N texts in all, L layers, H heads, Q queries, T
tokens, E head width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import t as student_t
from torch import Tensor, nn

from headscope.data.batching import Batch, moved
from headscope.heads.capture import (
    Change,
    Means,
    device_of,
    eval_mode,
    gate_gradients,
    headed_layers,
    intervene,
    intervene_layers,
    logits_of,
)
from headscope.heads.measures import Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective

Head = tuple[str, int]  # the layer's name, the head's number
ABLATIONS: dict[str, Change] = {  # as the measures are called
    "zeroed": "zero",
    "averaged": "mean",
    "uniform": "uniform",
}

MATTERS = "matters"
NO_EFFECT = "no effect"
INCONCLUSIVE = "inconclusive"
RECORDED = {MATTERS: 1, NO_EFFECT: 0, INCONCLUSIVE: -1}  # the record's numbers
NO_HEAD = -2  # in the record, where a layer has fewer heads than the widest
MIN_EFFECT = 0.01  # nats: the smallest effect of interest
ALPHA = 0.05  # family-wise error rate over all heads and interim analyses
MIN_TEXTS = 30  # fewer texts give no usable standard error


@dataclass(frozen=True)
class AblationEffect:
    """The effect of ablating one head: the mean loss increase and its standard error, in nats."""

    state: str  # MATTERS, NO_EFFECT or INCONCLUSIVE
    loss_increase: float
    standard_error: float
    num_texts: int


@contextmanager
def ablate(
    model: nn.Module,
    heads: Mapping[tuple[int | str, int], Change],
    inputs: Iterable[Any] | None = None,
) -> Iterator[None]:
    """Ablate some heads of any model that `capture` knows, until the block is left.

        with headscope.ablate(model, {(0, 1): "zero", (0, 2): "uniform"}):
            logits = model(token_ids, key_padding_mask)

    Args:
        model: any module with attention layers of headscope, torch or transformers in it.
        heads: from (layer, head) to "zero", the head's output is 0; "mean", it is the head's mean
            output over `inputs`; or "uniform", its weights are the same for all keys that its mask
            lets it see. A layer is its number, from 0, or its name, as in `capture` and `show`.
        inputs: for "mean": what the model is called with, a tuple of arguments or a dictionary of
            keyword arguments for each call, or batches. Padding is left out where it is
            `attention_mask` (0), a `key_padding_mask` or a positional boolean [B, T] (True).

    Raises:
        ValueError: if there is no such layer, head or ablation, or no inputs for "mean".
    """
    layers = list(headed_layers(model))
    if not layers:
        raise ValueError(
            f"model: expected attention layers of headscope, torch or transformers, got a"
            f" {type(model).__name__} without any"
        )
    changes = {(_layer_name(layers, layer), head): heads[layer, head] for layer, head in heads}
    means = None
    if "mean" in changes.values():
        if inputs is None:
            raise ValueError(
                'inputs: expected what the model is called with, for the means of "mean", got'
                " None; pass inputs=[(token_ids, key_padding_mask), ...]"
            )
        means = mean_outputs(model, inputs)
    with intervene(model, changes, means):
        yield


def _layer_name(layers: Sequence[str], layer: int | str) -> str:
    """Return the name of a layer that is given by number, or by a name from within or outside."""
    if isinstance(layer, int):
        if not 0 <= layer < len(layers):
            raise ValueError(f"layer: expected a number from 0 to {len(layers) - 1}, got {layer}")
        return layers[layer]
    if layer in layers:
        return layer
    alike = [name for name in layers if f".{name}".endswith(f".{layer}")]
    alike += [name for name in layers if layer.endswith(f".{name}")]
    if len(alike) != 1:
        raise ValueError(f"layer: expected a number, or one of {layers}, got {layer!r}")
    return alike[0]


# What ablation changes


def outcomes(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    ablated: Mapping[Head, Change],
    means: Means | None = None,
) -> Float[Tensor, "N 2"]:
    """Return, with heads ablated, each text's loss in nats, and 1 if its class is right, else 0."""
    parts = []
    with eval_mode(model), torch.no_grad(), intervene(model, ablated, means):
        for batch in batches:
            logits = logits_of(model, batch)
            labels = batch.labels.to(logits.device)
            loss = objective.losses(logits.double(), labels)
            is_correct = objective.correct(logits, labels).double()
            parts.append(torch.stack([loss, is_correct], dim=1).cpu())
    return torch.cat(parts)


Changes = dict[str, dict[str, Float[Tensor, "N H"]]]  # layer -> measure -> of each text


def ablation_changes(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective = ONE_CLASS,
    ablations: Mapping[str, Change] = ABLATIONS,
) -> Changes:
    """Return each text's change of loss and accuracy without each head: layer -> measure -> [N, H].

    loss_zeroed, loss_averaged and loss_uniform are loss increases in nats under zero and mean
    ablation (the mean over the queries of these texts) and with uniform weights; accuracy_zeroed
    and so on are changes of whether the text is classified correctly (1, 0 or -1). One head is
    ablated at a time, so heads that stand in for each other all look idle (Michel et al. 2019, Are
    Sixteen Heads Really Better than One?, section 3.2). Takes 3 * heads + 2 forward passes.
    """
    means = mean_outputs(model, batches) if "mean" in ablations.values() else None
    whole = outcomes(model, batches, objective, {})
    changes: Changes = {}
    for name, layer in headed_layers(model).items():
        changes[name] = {}
        for suffix, change in ablations.items():
            of_heads = [
                outcomes(model, batches, objective, {(name, head): change}, means) - whole
                for head in range(layer.num_heads)
            ]
            loss, accuracy = torch.stack(of_heads, dim=-1).unbind(dim=1)  # [N, H] each
            changes[name][f"loss_{suffix}"] = loss
            changes[name][f"accuracy_{suffix}"] = accuracy
    return changes


def mean_outputs(model: nn.Module, inputs: Iterable[Any]) -> Means:
    """Return each head's mean output over all queries but padding: float64 [H, E] of each layer.

    `inputs` are batches, or as for `ablate`. In self-attention the queries are the tokens, or
    [CLS] alone where a layer computes no other.
    """
    sums: Means = {}
    counts: dict[str, float] = {}

    def add(name: str, head_outputs: Float[Tensor, "B H Q E"]) -> Float[Tensor, "B H Q E"]:
        B, _, Q, _ = head_outputs.shape
        is_query = head_outputs.new_ones(B, Q, dtype=torch.float64)
        if padding is not None and padding.shape == (B, Q):
            is_query = (~padding).to(is_query)
        total = torch.einsum("bhqe,bq->he", head_outputs.double(), is_query)
        sums[name] = sums[name] + total if name in sums else total
        counts[name] = counts.get(name, 0.0) + float(is_query.sum())
        return head_outputs

    adders = {name: partial(add, name) for name in headed_layers(model)}
    with eval_mode(model), torch.no_grad(), intervene_layers(model, adders):
        for given in inputs:
            arguments, options, padding = _call(given)
            arguments, options = moved((arguments, options), device_of(model))
            model(*arguments, **options)
    return {name: total / counts[name] for name, total in sums.items()}


def _call(given: Any) -> tuple[tuple[Any, ...], dict[str, Any], Bool[Tensor, "B T"] | None]:
    """Return a call's arguments, positional and by keyword, and its padding, if it has any."""
    if isinstance(given, Batch):
        return given.inputs, {}, given.key_padding_mask
    if isinstance(given, Mapping):
        if (mask := given.get("attention_mask")) is not None:
            return (), dict(given), mask == 0
        masks = [value for name, value in given.items() if name.endswith("key_padding_mask")]
        return (), dict(given), next((mask for mask in masks if mask is not None), None)
    arguments = given if isinstance(given, tuple) else (given,)
    for each in arguments:
        if isinstance(each, Tensor) and each.dtype == torch.bool:
            return arguments, {}, each
    return arguments, {}, None


def gate_gradient(
    model: nn.Module, batches: Sequence[Batch], objective: Objective = ONE_CLASS
) -> Summary:
    """Return I_h = mean over texts of |d loss / d g_h| at g_h = 1, as the measure gate_gradient.

    g_h multiplies the output of head h, and the loss is that of a labelled text in nats (Michel et
    al. 2019, section 4.1, which goes on to normalize each layer's I to length 1; that is not done
    here). One forward and one backward pass: a cheap first-order estimate of `ablation_changes`.
    """
    gradients: dict[str, list[Tensor]] = {name: [] for name in headed_layers(model)}
    for batch in batches:
        # Each text has gates of its own, so that one backward pass serves all.
        gates = torch.ones(len(batch.labels), dtype=torch.float64)
        labels = batch.labels.to(device_of(model))
        loss_of = partial(objective.losses, labels=labels)
        _, of_layers = gate_gradients(model, batch, gates, loss_of)
        for name, gradient in of_layers.items():
            gradients[name].append(gradient.abs().cpu())
    return {
        name: {"gate_gradient": mean_and_error(torch.cat(parts))}
        for name, parts in gradients.items()
    }


# Effects beyond chance


def ablation_effects(
    model: nn.Module,
    changes: Changes,
    more: Sequence[Sequence[Batch]] = (),
    objective: Objective = ONE_CLASS,
) -> dict[Head, AblationEffect]:
    """Test every head under zero ablation, and inconclusive ones on further texts.

    `changes` are those of the first texts, and each of `more` holds the texts of one further
    analysis; no text may come twice.
    """
    values = {
        (name, head): of_texts
        for name, measures in changes.items()
        for head, of_texts in enumerate(measures["loss_zeroed"].T.tolist())
    }
    num_tests = len(values) * (1 + len(more))
    effects = {head: ablation_effect(known, num_tests) for head, known in values.items()}
    for batches in more:
        open_heads = [head for head, effect in effects.items() if effect.state == INCONCLUSIVE]
        if not open_heads:
            break
        whole = outcomes(model, batches, objective, {})
        for head in open_heads:
            change = outcomes(model, batches, objective, {head: "zero"}) - whole
            values[head] += change[:, 0].tolist()
            effects[head] = ablation_effect(values[head], num_tests)
    return effects


def ablation_effect(loss_increases: Sequence[float], num_tests: int = 1) -> AblationEffect:
    """Test one head on the loss increase of each text, as one of `num_tests` tests."""
    values = np.array(loss_increases, dtype=np.float64)
    n = len(values)
    mean = float(values.mean())
    standard_error = float(values.std(ddof=1) / n**0.5) if n > 1 else 0.0
    state = INCONCLUSIVE
    if n >= MIN_TEXTS:
        margin = student_t.ppf(1 - ALPHA / (2 * num_tests), n - 1) * standard_error
        if abs(mean) - margin > MIN_EFFECT:
            state = MATTERS
        elif abs(mean) + margin < MIN_EFFECT:
            state = NO_EFFECT
    return AblationEffect(state, mean, standard_error, n)


def mean_loss_increases(effects: Mapping[Head, AblationEffect]) -> Summary:
    """Return each head's mean loss increase over all the texts of its test, as a measure."""
    summary: Summary = {}
    for (layer, _), effect in effects.items():
        means, errors = summary.setdefault(layer, {"loss_zeroed": ([], [])})["loss_zeroed"]
        means.append(effect.loss_increase)
        errors.append(effect.standard_error)
    return summary


def effect_arrays(effects: Mapping[Head, AblationEffect]) -> dict[str, np.ndarray]:
    """Return the effects by the record's names: `verdicts` [L, H] and what belongs to all heads."""
    layers = layer_names(effects)
    states = np.full((len(layers), 1 + max(head for _, head in effects)), NO_HEAD, dtype=np.int32)
    for (layer, head), effect in effects.items():
        states[layers.index(layer), head] = RECORDED[effect.state]
    return {
        "verdicts": states,
        "verdicts/smallest": np.array(MIN_EFFECT, dtype=np.float32),
        "studied": np.array(most_texts(effects.values()), dtype=np.int32),
    }


def layer_names(effects: Iterable[Head]) -> list[str]:
    """Return the layers of some heads, in order."""
    return list(dict.fromkeys(layer for layer, _ in effects))


def most_texts(effects: Iterable[AblationEffect]) -> int:
    """Return the number of texts of the head that was tested on most."""
    return max(effect.num_texts for effect in effects)
