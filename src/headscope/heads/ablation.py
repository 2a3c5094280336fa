"""What a head does to the model's answers: what changes without it, and how steeply the loss rises with it.

Every function runs the model in eval mode and leaves weights, gradients and modes as they were, after errors too.
Shape letters: B texts of a batch, N texts in all, C classes, H heads, Q queries, T tokens, E head width.
"""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.heads.interventions import (
    CHANGES,
    Means,
    device_of,
    eval_mode,
    headed_layers,
    intervene,
    intervene_layers,
    logits_of,
    mean_outputs,
)
from headscope.heads.measures import Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective


def ablation(
    model: nn.Module,
    batches: Iterable[Batch],
    means: Means | None = None,
    objective: Objective = ONE_CLASS,
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
    return averaged(ablated(model, batches, means, objective))


def averaged(changes: Mapping[str, Mapping[str, Float[Tensor, "N H"]]]) -> Summary:
    """Return means and standard errors of what was found text by text."""
    return {
        layer: {measure: mean_and_error(values) for measure, values in measures.items()}
        for layer, measures in changes.items()
    }


def ablated(
    model: nn.Module,
    batches: Iterable[Batch],
    means: Means | None = None,
    objective: Objective = ONE_CLASS,
) -> dict[str, dict[str, Float[Tensor, "N H"]]]:
    """Return `ablation` text by text: layer -> measure -> the change of each text, without each head."""
    sample = _labelled(batches)
    means = mean_outputs(model, sample) if means is None else means
    result: dict[str, dict[str, Float[Tensor, "N H"]]] = {}
    with eval_mode(model), torch.no_grad():
        whole = _outcomes(model, sample, objective)  # [N, 2]
        for name, layer in headed_layers(model).items():
            for suffix, change in CHANGES.items():
                differences = []
                for head in range(layer.num_heads):
                    with intervene(model, {(name, head): change}, means):
                        differences.append(_outcomes(model, sample, objective) - whole)
                loss, accuracy = torch.stack(differences, dim=-1).transpose(
                    0, 1
                )  # [N, 2, H] -> [2, N, H]
                measured = {f"loss_{suffix}": loss, f"accuracy_{suffix}": accuracy}
                result.setdefault(name, {}).update(measured)
    return result


def losses(
    model: nn.Module, batches: Iterable[Batch], objective: Objective = ONE_CLASS
) -> Float[Tensor, " N"]:
    """Return the loss of each text, in nats."""
    with eval_mode(model), torch.no_grad():
        return _outcomes(model, _labelled(batches), objective)[:, 0]


def losses_without(
    model: nn.Module,
    batches: Iterable[Batch],
    head: tuple[str, int],
    objective: Objective = ONE_CLASS,
) -> Float[Tensor, " N"]:
    """Return the loss of each text, in nats, where one head, (layer, number), gives nothing."""
    with intervene(model, {head: "zero"}):
        return losses(model, batches, objective)


def gate_gradient(
    model: nn.Module, batches: Iterable[Batch], objective: Objective = ONE_CLASS
) -> Summary:
    """Return I_h = mean over texts of |d loss / d g_h| at g_h = 1: layer -> "gate_gradient" -> (means, errors).

    g_h multiplies what head h gives before the heads are joined, and the loss is that of a text in nats (Michel et al.
    2019, section 4.1, which goes on to normalize each layer's I to length 1; that is not done here). One forward and
    one backward pass: the cheap forecast of `ablation`, for small changes. Arguments and errors are those of
    `ablation`.
    """
    parts: dict[str, list[Float[Tensor, "B H"]]] = {name: [] for name in headed_layers(model)}
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        for batch in _labelled(batches):
            for name, gradient in _gate_gradients(model, batch, objective).items():
                parts[name].append(gradient.abs().cpu())
    return {
        name: {"gate_gradient": mean_and_error(torch.cat(values))} for name, values in parts.items()
    }


def _gate_gradients(
    model: nn.Module, batch: Batch, objective: Objective
) -> dict[str, Float[Tensor, "B H"]]:
    """Return d loss_b / d g_bh, with a gate for each text, so that one backward pass serves all of them."""
    B, device = len(batch.labels), device_of(model)
    gates = {name: torch.ones(B, layer.num_heads, dtype=torch.float64, device=device, requires_grad=True)
             for name, layer in headed_layers(model).items()}  # fmt: skip
    interventions = {name: lambda sums, gate=gate: sums * gate.to(sums.dtype)[:, :, None, None]
                     for name, gate in gates.items()}  # fmt: skip
    with intervene_layers(model, interventions):
        loss = objective.losses(logits_of(model, batch).double(), batch.labels.to(device)).sum()
    # Not backward(): that would add to the parameters' own gradients.
    gradients = torch.autograd.grad(
        loss, list(gates.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(gates, gradients, strict=True))


def _outcomes(model: nn.Module, batches: list[Batch], objective: Objective) -> Float[Tensor, "N 2"]:
    """Return each text's loss, and 1 if it was given its label, else 0."""
    parts = []
    for batch in batches:
        logits = logits_of(model, batch)
        labels = batch.labels.to(logits.device)
        outcome = [
            objective.losses(logits.double(), labels),
            objective.hits(logits, labels).double(),
        ]
        parts.append(torch.stack(outcome, dim=1).cpu())
    return torch.cat(parts)


def _labelled(batches: Iterable[Batch]) -> list[Batch]:
    found = list(batches)
    if not found or any((batch.labels < 0).any() for batch in found):
        raise ValueError("needs texts, and the class of each of them")
    return found
