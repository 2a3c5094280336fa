"""What ablating a head does to the loss, and whether that is more than chance.

`headscope.heads.capture.ablate` ablates; here are the statistics. The loss increase d_t of text t
is its loss with the head ablated less its loss with the whole model. Over n texts the mean m has
the standard error s = std(d) / sqrt(n), and the interval from m - q s to m + q s covers the true
mean with 95 % confidence: q is the quantile of Student's t with n - 1 degrees of freedom, corrected
for the number of heads (Bonferroni).
Against the smallest effect of interest, delta = 0.01 nats, an effect has one of three states:

    matters         the interval lies wholly above delta (the head helps) or below -delta (it harms)
    no effect       it lies wholly between -delta and delta (the two one-sided tests of Schuirmann
                    1987)
    inconclusive    neither: more texts are needed

Every function runs the model in eval mode and leaves weights, gradients and modes as they were,
after errors too. Shape letters: N texts in all, L layers, H heads.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import t as student_t
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.heads.capture import Change, ablate, eval_mode, logits_of
from headscope.model.objective import Objective
from headscope.record.schema import stack_layers

Head = tuple[str, int]  # the layer's name, the head's number

MATTERS = "matters"
NO_EFFECT = "no effect"
INCONCLUSIVE = "inconclusive"
RECORDED = {MATTERS: 1, NO_EFFECT: 0, INCONCLUSIVE: -1}  # the record's numbers
NO_HEAD = -2  # in the record, where a layer has fewer heads than the widest
MIN_EFFECT = 0.01  # nats: the smallest effect of interest
ALPHA = 0.05  # family-wise error rate over all heads
MIN_TEXTS = 30  # fewer texts give no usable standard error


# What ablation changes


def outcomes(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    ablated: Mapping[Head, Change],
) -> Float[Tensor, "N 2"]:
    """Return, with heads ablated, each text's loss in nats, and 1 if its class is right, else 0."""
    parts = []
    with eval_mode(model), torch.no_grad(), ablate(model, ablated):
        for batch in batches:
            logits = logits_of(model, batch).cpu()  # MPS has no float64
            loss = objective.losses(logits.double(), batch.labels)
            is_correct = objective.correct(logits, batch.labels).double()
            parts.append(torch.stack([loss, is_correct], dim=1))
    return torch.cat(parts)


# Effects beyond chance


def ablation_effect(
    loss_increases: Sequence[float] | Float[np.ndarray, " N"], num_tests: int = 1
) -> str:
    """Return the state of one head by the loss increase of each text, in one of `num_tests` tests.

    MATTERS, NO_EFFECT or INCONCLUSIVE.
    """
    values = np.asarray(loss_increases, dtype=np.float64)
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
    return state


def effect_arrays(effects: Mapping[Head, str]) -> dict[str, np.ndarray]:
    """Return the record's `effects` [L, H], of all heads in their order."""
    layers: dict[str, list[int]] = {}
    for (layer, _), state in effects.items():
        layers.setdefault(layer, []).append(RECORDED[state])
    states = [np.array(of_layer, dtype=np.int32) for of_layer in layers.values()]
    return {"effects": stack_layers(states, NO_HEAD)}
