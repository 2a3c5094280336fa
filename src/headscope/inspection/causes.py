"""What a head does to the model's answers: what changes without it, and how steeply the loss rises with it.

Every function runs the model in eval mode and leaves weights, gradients and modes as they were, after errors too.
Shape letters: B texts of a batch, N texts in all, C classes, H heads, Q queries, T tokens, E head width.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.multi_head import HeadedAttention, Intervention
from headscope.data.batching import Batch, moved
from headscope.inspection.measures import Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective

Change = Literal["zero", "mean"]
CHANGES: dict[str, Change] = {"zeroed": "zero", "averaged": "mean"}
Means = dict[str, Float[Tensor, "H E"]]


def ablation(
    model: nn.Module, batches: Iterable[Batch], means: Means | None = None, objective: Objective = ONE_CLASS
) -> Summary:
    """Return what every head's absence does: layer -> measure -> (mean of each head, standard error of each head).

    loss_zeroed and loss_averaged are the change of a text's loss in nats, accuracy_zeroed and accuracy_averaged that of
    the share of texts given their label, the head ablated less the model whole: of a head that helps, the first are
    above 0 and the others below. Means are over texts, standard errors those of the paired differences. One head at a
    time, so heads that stand in for each other all look idle (Michel et al. 2019, Are Sixteen Heads Really Better than
    One?, section 3.2). Takes 2 * heads + 2 forward passes.

    Args:
        model: called with token ids, key padding mask and segment ids; returns logits.
        batches: a sample of texts with their classes.
        means: what "averaged" puts in a head's place; by default its mean over the tokens of these texts.
        objective: what the labels are, which decides about loss and hits.

    Raises:
        ValueError: if a text's class is not known, or there are no texts.
    """
    return {
        layer: {measure: mean_and_error(values) for measure, values in measures.items()}
        for layer, measures in ablated(model, batches, means, objective).items()
    }


def ablated(
    model: nn.Module, batches: Iterable[Batch], means: Means | None = None, objective: Objective = ONE_CLASS
) -> dict[str, dict[str, Float[Tensor, "N H"]]]:
    """Return `ablation` text by text: layer -> measure -> the change of each text, without each head."""
    sample = _labelled(batches)
    means = mean_outputs(model, sample) if means is None else means
    result: dict[str, dict[str, Float[Tensor, "N H"]]] = {}
    with evaluating(model), torch.no_grad():
        whole = _outcomes(model, sample, objective)  # [N, 2]
        for name, layer in headed_layers(model).items():
            for suffix, change in CHANGES.items():
                differences = []
                for head in range(layer.num_heads):
                    with intervene(model, {(name, head): change}, means):
                        differences.append(_outcomes(model, sample, objective) - whole)
                loss, accuracy = torch.stack(differences, dim=-1).transpose(0, 1)  # [N, 2, H] -> [2, N, H]
                measured = {f"loss_{suffix}": loss, f"accuracy_{suffix}": accuracy}
                result.setdefault(name, {}).update(measured)
    return result


def losses(model: nn.Module, batches: Iterable[Batch], objective: Objective = ONE_CLASS) -> Float[Tensor, " N"]:
    """Return the loss of each text, in nats."""
    with evaluating(model), torch.no_grad():
        return _outcomes(model, _labelled(batches), objective)[:, 0]


def losses_without(
    model: nn.Module, batches: Iterable[Batch], head: tuple[str, int], objective: Objective = ONE_CLASS
) -> Float[Tensor, " N"]:
    """Return the loss of each text, in nats, where one head, (layer, number), gives nothing."""
    with intervene(model, {head: "zero"}):
        return losses(model, batches, objective)


def gate_gradient(model: nn.Module, batches: Iterable[Batch], objective: Objective = ONE_CLASS) -> Summary:
    """Return I_h = mean over texts of |d loss / d g_h| at g_h = 1: layer -> "gate_gradient" -> (means, errors).

    g_h multiplies what head h gives before the heads are joined, and the loss is that of a text in nats (Michel et al.
    2019, section 4.1, which goes on to normalize each layer's I to length 1; that is not done here). One forward and
    one backward pass: the cheap forecast of `ablation`, for small changes. Arguments and errors are those of
    `ablation`.
    """
    parts: dict[str, list[Float[Tensor, "B H"]]] = {name: [] for name in headed_layers(model)}
    with evaluating(model), torch.inference_mode(False), torch.enable_grad():
        for batch in _labelled(batches):
            for name, gradient in _gate_gradients(model, batch, objective).items():
                parts[name].append(gradient.abs().cpu())
    return {name: {"gate_gradient": mean_and_error(torch.cat(values))} for name, values in parts.items()}


def _gate_gradients(model: nn.Module, batch: Batch, objective: Objective) -> dict[str, Float[Tensor, "B H"]]:
    """Return d loss_b / d g_bh, with a gate for each text, so that one backward pass serves all of them."""
    B, device = len(batch.labels), device_of(model)
    gates = {name: torch.ones(B, layer.num_heads, dtype=torch.float64, device=device, requires_grad=True)
             for name, layer in headed_layers(model).items()}  # fmt: skip
    interventions = {name: lambda sums, gate=gate: sums * gate.to(sums.dtype)[:, :, None, None]
                     for name, gate in gates.items()}  # fmt: skip
    with intervening(model, interventions):
        loss = objective.losses(logits_of(model, batch).double(), batch.labels.to(device)).sum()
    # Not backward(): that would add to the parameters' own gradients.
    gradients = torch.autograd.grad(loss, list(gates.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(gates, gradients, strict=True))


def _outcomes(model: nn.Module, batches: list[Batch], objective: Objective) -> Float[Tensor, "N 2"]:
    """Return each text's loss, and 1 if it was given its label, else 0."""
    parts = []
    for batch in batches:
        logits = logits_of(model, batch)
        labels = batch.labels.to(logits.device)
        outcome = [objective.losses(logits.double(), labels), objective.hits(logits, labels).double()]
        parts.append(torch.stack(outcome, dim=1).cpu())
    return torch.cat(parts)


def _labelled(batches: Iterable[Batch]) -> list[Batch]:
    found = list(batches)
    if not found or any((batch.labels < 0).any() for batch in found):
        raise ValueError("needs texts, and the class of each of them")
    return found


def headed_layers(model: nn.Module) -> dict[str, HeadedAttention]:
    """Return the model's attention layers that have heads, by name, in the order of their registration."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, HeadedAttention)}


def logits_of(model: nn.Module, batch: Batch) -> Float[Tensor, "B C"]:
    """Run the model on a batch, on the device of its parameters."""
    logits: Float[Tensor, "B C"] = model(*moved(batch, device_of(model)).inputs)
    return logits


def device_of(model: nn.Module) -> torch.device:
    """Return where the model computes; the CPU, if it has no parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode; afterwards each of its modules is again in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def intervening(model: nn.Module, interventions: Mapping[str, Intervention]) -> Iterator[None]:
    """Change the sums [B, H, Q, E] of some layers, after what may change them already; ValueError if there is none."""
    layers = headed_layers(model)
    if unknown := set(interventions) - set(layers):
        raise ValueError(f"no layer with heads is called {sorted(unknown)[0]!r}; there are {list(layers)}")
    before = {name: layers[name].intervention for name in interventions}
    try:
        for name, intervention in interventions.items():
            earlier = before[name]
            layers[name].intervention = intervention if earlier is None else _chained(earlier, intervention)
        yield
    finally:
        for name, earlier in before.items():
            layers[name].intervention = earlier


def _chained(earlier: Intervention, later: Intervention) -> Intervention:
    return lambda sums: later(earlier(sums))


@contextmanager
def intervene(
    model: nn.Module, changes: Mapping[tuple[str, int], Change], means: Means | None = None
) -> Iterator[None]:
    """Replace what some heads give, at every query, until the block is left.

        with intervene(model, {("encoder.blocks.0.attention", 2): "zero"}):
            model(token_ids, key_padding_mask)

    Other heads' sums stay the same to the last digit; the output projection and its bias act as before.

    Args:
        model: any module with our attention layers in it.
        changes: from a layer's name and a head's number to "zero", the head gives nothing, or "mean", it gives every
            query its mean output, which keeps what is the same for all texts (mean ablation).
        means: of each layer, for "mean"; from `mean_outputs`.

    Raises:
        ValueError: if there is no such layer, head or change, or its mean is not given.
    """
    layers = headed_layers(model)
    chosen: dict[str, dict[int, Float[Tensor, " E"]]] = {}
    for (name, head), change in changes.items():
        if name not in layers or not 0 <= head < layers[name].num_heads:
            raise ValueError(f"there is no head {head} in a layer {name!r}; the layers with heads are {list(layers)}")
        if change not in CHANGES.values():
            raise ValueError(f"a head is changed to 'zero' or to 'mean', not to {change!r}")
        if change == "mean" and (means is None or name not in means):
            raise ValueError(f"the mean of {name!r} is needed: pass means=mean_outputs(model, batches)")
        vector = means[name][head] if change == "mean" and means else torch.zeros(layers[name].head_dim)
        chosen.setdefault(name, {})[head] = vector
    with intervening(model, {name: _replacing(layers[name], heads) for name, heads in chosen.items()}):
        yield


def mean_outputs(model: nn.Module, batches: Iterable[Batch]) -> Means:
    """Return, for each layer, the mean over all tokens of all texts of what each head gives, padding left out.

    For self-attention, where a layer's queries are the batch's tokens. In float64, on the model's device.
    """
    sums: Means = {}
    tokens = 0

    def adding(name: str, kept: Bool[Tensor, "B T"]) -> Intervention:
        """Return what adds a layer's sums over all tokens to those it had, and changes nothing."""

        def add(given: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
            found = torch.einsum("bhqe,bq->he", given.double(), kept.double())
            sums[name] = sums[name] + found if name in sums else found
            return given

        return add

    with evaluating(model), torch.no_grad():
        for batch in batches:
            mask = batch.key_padding_mask
            kept = torch.ones_like(batch.token_ids, dtype=torch.bool) if mask is None else ~mask
            kept = kept.to(device_of(model))
            with intervening(model, {name: adding(name, kept) for name in headed_layers(model)}):
                logits_of(model, batch)
            tokens += int(kept.sum())
    return {name: total / tokens for name, total in sums.items()}


def _replacing(layer: HeadedAttention, heads: Mapping[int, Float[Tensor, " E"]]) -> Intervention:
    """Return what puts these vectors [E] in the place of these heads' sums at every query."""
    values = torch.zeros(layer.num_heads, 1, layer.head_dim, dtype=torch.float64)
    changed = torch.zeros(layer.num_heads, 1, 1, dtype=torch.bool)
    for head, value in heads.items():
        values[head, 0], changed[head] = value.to(values), True
    return lambda sums: torch.where(changed.to(sums.device), values.to(sums), sums)
