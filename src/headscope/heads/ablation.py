"""What ablating a head does to the loss, and whether that is more than chance.

The loss increase d_t of text t is its loss with the head ablated less its loss with the whole model. Over n texts the
mean m has the standard error s = std(d) / sqrt(n), and the interval m +- q s covers the true mean with 95 % confidence:
q is the quantile of Student's t with n - 1 degrees of freedom, corrected for the number of heads and of interim
analyses (Bonferroni). Against the smallest effect of interest, delta = 0.01 nats, an effect has one of three states:

    matters         the interval lies wholly above delta, or wholly below -delta: then the head does harm
    no effect       it lies wholly between -delta and delta (the two one-sided tests of Schuirmann 1987)
    inconclusive    neither: more texts are needed

Every function runs the model in eval mode and leaves weights, gradients and modes as they were, after errors too.
Shape letters: B texts of a batch, N texts in all, L layers, H heads, Q queries, T tokens, E head width.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import t as student_t
from torch import Tensor, nn

from headscope.attention.multi_head import Intervention
from headscope.data.batching import Batch
from headscope.heads.capture import (
    Change,
    Means,
    device_of,
    eval_mode,
    gating,
    headed_layers,
    intervene,
    intervene_layers,
    logits_of,
)
from headscope.heads.measures import Summary, mean_and_error
from headscope.model.objective import ONE_CLASS, Objective

Head = tuple[str, int]  # the layer's name, the head's number
ABLATIONS: dict[str, Change] = {"zeroed": "zero", "averaged": "mean"}  # as the measures are called

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


def mean_outputs(model: nn.Module, batches: Iterable[Batch]) -> Means:
    """Return each head's mean output over all tokens of all texts, padding left out; float64 [H, E] of each layer.

    For self-attention, where a layer's queries are the batch's tokens.
    """
    sums: Means = {}
    num_tokens = 0

    def adding(name: str, is_token: Bool[Tensor, "B T"]) -> Intervention:
        def add(head_outputs: Float[Tensor, "B H T E"]) -> Float[Tensor, "B H T E"]:
            total = torch.einsum("bhqe,bq->he", head_outputs.double(), is_token.double())
            sums[name] = sums[name] + total if name in sums else total
            return head_outputs

        return add

    with eval_mode(model), torch.no_grad():
        for batch in batches:
            padding = batch.key_padding_mask
            is_token = torch.ones_like(batch.token_ids, dtype=torch.bool)
            if padding is not None:
                is_token = ~padding
            is_token = is_token.to(device_of(model))
            adders = {name: adding(name, is_token) for name in headed_layers(model)}
            with intervene_layers(model, adders):
                logits_of(model, batch)
            num_tokens += int(is_token.sum())
    return {name: total / num_tokens for name, total in sums.items()}


def ablation_changes(
    model: nn.Module,
    batches: Iterable[Batch],
    means: Means | None = None,
    objective: Objective = ONE_CLASS,
) -> dict[str, dict[str, Float[Tensor, "N H"]]]:
    """Return how each text's loss and accuracy change without each head: layer -> measure -> [N, H].

    loss_zeroed and loss_averaged are loss increases in nats under zero and mean ablation, accuracy_zeroed and
    accuracy_averaged changes of whether the text is classified correctly (1, 0 or -1). One head is ablated at a time,
    so heads that stand in for each other all look idle (Michel et al. 2019, Are Sixteen Heads Really Better than One?,
    section 3.2). Takes 2 * heads + 2 forward passes.

    Args:
        model: called with token ids, key padding mask and segment ids; returns logits.
        batches: a sample of texts with their classes.
        means: for mean ablation; by default each head's mean over the tokens of these texts.
        objective: decides about loss and accuracy.

    Raises:
        ValueError: if a text's class is not known, or there are no texts.
    """
    sample = _labelled(batches)
    means = mean_outputs(model, sample) if means is None else means
    changes: dict[str, dict[str, Float[Tensor, "N H"]]] = {}
    with eval_mode(model), torch.no_grad():
        whole = _outcomes(model, sample, objective)  # [N, 2]
        for name, layer in headed_layers(model).items():
            changes[name] = {}
            for suffix, change in ABLATIONS.items():
                differences = []
                for head in range(layer.num_heads):
                    with intervene(model, {(name, head): change}, means):
                        differences.append(_outcomes(model, sample, objective) - whole)
                loss, accuracy = torch.stack(differences, dim=-1).unbind(dim=1)  # [N, H] each
                changes[name][f"loss_{suffix}"] = loss
                changes[name][f"accuracy_{suffix}"] = accuracy
    return changes


def losses(
    model: nn.Module,
    batches: Iterable[Batch],
    objective: Objective = ONE_CLASS,
    without: Head | None = None,
) -> Float[Tensor, " N"]:
    """Return the loss of each text in nats, with one head set to zero if `without` names it."""
    changes: dict[Head, Change] = {} if without is None else {without: "zero"}
    with eval_mode(model), torch.no_grad(), intervene(model, changes):
        return _outcomes(model, _labelled(batches), objective)[:, 0]


def gate_gradient(
    model: nn.Module, batches: Iterable[Batch], objective: Objective = ONE_CLASS
) -> Summary:
    """Return I_h = mean over texts of |d loss / d g_h| at g_h = 1: layer -> "gate_gradient" -> (means, errors).

    g_h multiplies the output of head h, and the loss is that of a text in nats (Michel et al. 2019, section 4.1, which
    goes on to normalize each layer's I to length 1; that is not done here). One forward and one backward pass: a cheap
    first-order estimate of `ablation_changes`. Arguments and errors are those of `ablation_changes`.
    """
    gradients: dict[str, list[Float[Tensor, "B H"]]] = {name: [] for name in headed_layers(model)}
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        for batch in _labelled(batches):
            for name, gradient in _gate_gradients(model, batch, objective).items():
                gradients[name].append(gradient.abs().cpu())
    return {
        name: {"gate_gradient": mean_and_error(torch.cat(parts))}
        for name, parts in gradients.items()
    }


def _gate_gradients(
    model: nn.Module, batch: Batch, objective: Objective
) -> dict[str, Float[Tensor, "B H"]]:
    """Return d loss_b / d g_bh; each text has gates of its own, so that one backward pass serves all."""
    B, device = len(batch.labels), device_of(model)
    options = {"dtype": torch.float64, "device": device, "requires_grad": True}
    gates = {
        name: torch.ones(B, layer.num_heads, **options)
        for name, layer in headed_layers(model).items()
    }
    with intervene_layers(model, {name: gating(gate) for name, gate in gates.items()}):
        loss = objective.losses(logits_of(model, batch).double(), batch.labels.to(device)).sum()
    # Not backward(): that would add to the parameters' own gradients.
    gradients = torch.autograd.grad(
        loss, list(gates.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(gates, gradients, strict=True))


def _outcomes(model: nn.Module, batches: list[Batch], objective: Objective) -> Float[Tensor, "N 2"]:
    """Return each text's loss, and 1 if it is classified correctly, else 0."""
    outcomes = []
    for batch in batches:
        logits = logits_of(model, batch)
        labels = batch.labels.to(logits.device)
        loss = objective.losses(logits.double(), labels)
        is_correct = objective.correct(logits, labels).double()
        outcomes.append(torch.stack([loss, is_correct], dim=1).cpu())
    return torch.cat(outcomes)


def _labelled(batches: Iterable[Batch]) -> list[Batch]:
    sample = list(batches)
    if not sample or any((batch.labels < 0).any() for batch in sample):
        raise ValueError("batches: expected texts with a class each, got none or an unknown class")
    return sample


def ablation_effects(
    model: nn.Module,
    loss_increases: Mapping[Head, Float[Tensor, " N"]],
    more: Sequence[Sequence[Batch]] = (),
    objective: Objective = ONE_CLASS,
) -> dict[Head, AblationEffect]:
    """Test every head, and go on with further texts for the inconclusive ones, as long as there are texts.

    Args:
        model: called as in `ablation_changes`.
        loss_increases: of each head, without it, of each of the first texts.
        more: batches of further texts for each further analysis; no text may come twice.
        objective: decides about the loss.
    """
    num_tests = len(loss_increases) * (1 + len(more))
    values = {head: increases.double().tolist() for head, increases in loss_increases.items()}
    effects = {head: ablation_effect(known, num_tests) for head, known in values.items()}
    for batches in more:
        open_heads = [head for head, effect in effects.items() if effect.state == INCONCLUSIVE]
        if not open_heads:
            break
        whole = losses(model, batches, objective)
        for head in open_heads:
            values[head] += (losses(model, batches, objective, head) - whole).tolist()
            effects[head] = ablation_effect(values[head], num_tests)
    return effects


def ablation_effect(loss_increases: Sequence[float], num_tests: int = 1) -> AblationEffect:
    """Test one head on the loss increase of each text; `num_tests` is the number of tests in all."""
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
    """Return each head's mean loss increase, over all the texts that it was tested on, as a measure."""
    summary: Summary = {}
    for (layer, _), effect in effects.items():
        means, errors = summary.setdefault(layer, {"loss_zeroed": ([], [])})["loss_zeroed"]
        means.append(effect.loss_increase)
        errors.append(effect.standard_error)
    return summary


def effect_arrays(effects: Mapping[Head, AblationEffect]) -> dict[str, np.ndarray]:
    """Return the effects by the record's names: `verdicts` [L, H] and what belongs to all heads."""
    layers = list(dict.fromkeys(layer for layer, _ in effects))
    states = np.full((len(layers), 1 + max(head for _, head in effects)), NO_HEAD, dtype=np.int32)
    for (layer, head), effect in effects.items():
        states[layers.index(layer), head] = RECORDED[effect.state]
    most = max(effect.num_texts for effect in effects.values())
    return {
        "verdicts": states,
        "verdicts/headline": np.array(headline(effects)),
        "verdicts/smallest": np.array(MIN_EFFECT, dtype=np.float32),
        "studied": np.array(most, dtype=np.int32),
    }


def headline(effects: Mapping[Head, AblationEffect]) -> str:
    """Return one line: which heads matter, the largest effect, and how many are inconclusive."""
    layers = list(dict.fromkeys(layer for layer, _ in effects))
    counts = Counter(effect.state for effect in effects.values())
    matter, none, unknown = (counts[state] for state in (MATTERS, NO_EFFECT, INCONCLUSIVE))
    texts = max(effect.num_texts for effect in effects.values())
    if unknown == len(effects):
        return f"Ablating any single head is inconclusive ({texts} texts)"
    if none == len(effects):
        return f"Ablating any single head has no effect ({texts} texts)"
    parts = [f"{matter or 'None'} of {len(effects)} heads {'matters' if matter < 2 else 'matter'}"]
    if matter:
        (layer, head), effect = max(
            ((head, effect) for head, effect in effects.items() if effect.state == MATTERS),
            key=lambda item: abs(item[1].loss_increase),
        )
        moves = "raises" if effect.loss_increase > 0 else "lowers"
        parts[0] += (
            f": ablating layer {layers.index(layer)} head {head} {moves} the loss by"
            f" {abs(effect.loss_increase):.2f} ± {effect.standard_error:.2f} nats"
        )
    if none:
        parts.append(f"{none} {'has' if none == 1 else 'have'} no effect")
    if unknown:
        texts = max(each.num_texts for each in effects.values() if each.state == INCONCLUSIVE)
        parts.append(f"{unknown} {'is' if unknown == 1 else 'are'} inconclusive ({texts} texts)")
    return "; ".join(parts)
