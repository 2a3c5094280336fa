"""Heads together: which of them are enough, and what each is worth in all company.

A set of heads is judged with all others ablated to zero. The Shapley value of a head is its mean
gain when it joins the heads before it, over all orders of the heads (Held and Yang 2022, Shapley
Head Pruning, section 3): the values of all heads sum to the gain of the whole model over no head
at all. Up to 10 heads every set is run, if the budget allows; else orders are drawn.

Two heads stand in for each other where ablating both costs more than ablating either and the other
costs together: d_ij - d_i - d_j > 0, with d the loss increase (the pairwise interaction of Grabisch
and Roubens 1999, with all other heads present).

Shape letters: B texts of a batch, N texts in all, A heads of all layers, S sets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, pairwise
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.heads.ablation import MATTERS, ablation_effect
from headscope.heads.capture import device_of, eval_mode, headed_layers, intervene_layers, logits_of
from headscope.heads.measures import Summary
from headscope.model.objective import Objective

Head = tuple[str, int]
MOST_EXACT = 10  # heads
SECONDS = 10.0  # for sets that are chosen
EXACT_SECONDS = 30.0  # for all sets there are
SPEED = 9e10  # floating-point operations a second: of two cores, as the budget counts them
SEED = 0


@dataclass(frozen=True)
class HeadPair:
    """Two heads that stand in for each other, with mean loss increases in nats."""

    heads: tuple[Head, Head]
    alone: tuple[float, float]  # with either ablated
    both: float  # with both ablated


@dataclass(frozen=True)
class HeadSets:
    """What sets of heads are worth.

    Attributes:
        order: heads in the order of forward selection by the loss, on every second text; with more
            than 10 heads, in the order of their Shapley values there.
        correct: [A + 1, M], of the other texts, 1 where the first n heads alone give the right
            class; NaN for a number of heads that was not tried.
        loss: [A + 1], their mean loss in nats.
        chosen: [A + 1], the accuracy on the texts that chose the order.
        shapley: layer -> shapley_accuracy and shapley_loss: gains of accuracy, and of the loss in
            nats, where a positive one lowers it; with standard errors over the texts.
        is_exact: whether every set was run.
        pairs: heads that stand in for each other beyond chance, the strongest first; known only
            where every set was run.
    """

    order: list[Head]
    correct: Float[np.ndarray, "sizes M"]
    loss: Float[np.ndarray, " sizes"]
    chosen: Float[np.ndarray, " sizes"]
    shapley: Summary
    is_exact: bool
    pairs: list[HeadPair] = field(default_factory=list)

    @property
    def accuracy(self) -> Float[np.ndarray, " sizes"]:
        """The accuracy with the first n heads, on the texts that did not choose them."""
        return np.asarray(self.correct.mean(axis=1))

    def facts(self) -> dict[str, object]:
        """Return what metrics.json has of the sets."""
        layers = list(self.shapley)

        def numbered(heads: Sequence[Head]) -> list[list[int]]:
            return [[layers.index(name), head] for name, head in heads]

        return {
            "heads": numbered(self.order),
            "accuracy": [None if np.isnan(each) else float(each) for each in self.accuracy],
            "texts": self.correct.shape[1],
            "exact": self.is_exact,
            "pairs": [
                {"heads": numbered(pair.heads), "loss alone": pair.alone, "loss both": pair.both}
                for pair in self.pairs
            ],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the record's members."""
        layers = list(self.shapley)
        return {
            "sets/heads": np.array(
                [(layers.index(name), head) for name, head in self.order], dtype=np.int32
            ),
            "sets/accuracy": self.accuracy.astype(np.float32),
            "sets/loss": self.loss.astype(np.float32),
        }


def passes_allowed(model: nn.Module, batches: Sequence[Batch], seconds: float = SECONDS) -> int:
    """Return how many passes over the texts fit into a budget, by the network's size alone."""
    return int(seconds / seconds_of_pass(model, batches))


def seconds_of_pass(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Return how long a pass over the texts takes at SPEED, by the network's size alone."""
    network = getattr(model, "encoder", model)
    tables = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in tables)
    tokens = sum(batch.token_ids.numel() for batch in batches)
    return (2 * weights * tokens + 1) / SPEED


def texts_for_all_sets(model: nn.Module, samples: Sequence[Sequence[Batch]]) -> list[Batch]:
    """Return the texts of as many samples as allow every set to be run; none if not even one."""
    A = sum(layer.num_heads for layer in headed_layers(model).values())
    texts: list[Batch] = []
    if A > MOST_EXACT:
        return texts
    for sample in samples:
        budget = SECONDS if texts else EXACT_SECONDS
        if passes_allowed(model, [*texts, *sample], budget) < 2**A:
            break
        texts += sample
    return texts


def head_sets(
    model: nn.Module,
    batches: Sequence[Batch],
    for_all_sets: Sequence[Batch],
    objective: Objective,
    passes: int,
) -> HeadSets:
    """Run every set of heads on some texts, and sets on all, with as many passes or fewer."""
    heads = [
        (name, head)
        for name, layer in headed_layers(model).items()
        for head in range(layer.num_heads)
    ]
    A = len(heads)
    run = partial(_outcomes, model, batches, objective)
    N = sum(len(batch.labels) for batch in batches)
    chooses = np.arange(N) % 2 == 0  # neighbours are of like length
    pairs: list[HeadPair] = []
    if for_all_sets:
        values = all_sets(model, for_all_sets, objective, A)  # [S, n, 2]
        gains = exact_gains(values)
        pairs = stand_ins(heads, values[..., 0])
        known = dict(enumerate(values)) if len(for_all_sets) == len(batches) else {}
        sets = _forward_selection(run, known, chooses, A)
        sizes = list(range(A + 1))
        nested = np.stack([known[number] for number in sets])
        order = [int(new ^ old).bit_length() - 1 for old, new in pairwise(sets)]
    else:
        gains = _sampled_gains(run, N, A, max(2, passes // 2))
        chosen_gains = _means(gains[chooses, :, 0])
        order = np.nan_to_num(chosen_gains).argsort(kind="stable")[::-1].tolist()
        sizes = [0, *(2**power for power in range(A.bit_length()) if 2**power < A), A]
        of_sizes = []
        for size in sizes:
            kept = np.zeros((N, A), dtype=bool)
            kept[:, order[:size]] = True
            of_sizes.append(run(kept))
        nested = np.stack(of_sizes)
    correct = np.full((A + 1, int((~chooses).sum())), np.nan)
    loss = np.full(A + 1, np.nan)
    chosen = np.full(A + 1, np.nan)
    correct[sizes] = nested[:, ~chooses, 1]
    loss[sizes] = nested[:, ~chooses, 0].mean(axis=1)
    chosen[sizes] = nested[:, chooses, 1].mean(axis=1)
    ordered = [heads[head] for head in order]
    shapley = _summary(heads, gains)
    return HeadSets(ordered, correct, loss, chosen, shapley, bool(for_all_sets), pairs)


def all_sets(
    model: nn.Module, batches: Sequence[Batch], objective: Objective, A: int
) -> Float[np.ndarray, "S N 2"]:
    """Return each text's loss and whether it is right with each set of heads alone.

    The number of a set has bit h where head h is kept.
    """
    N = sum(len(batch.labels) for batch in batches)
    run = partial(_outcomes, model, batches, objective)
    return np.stack([run(_kept(number, N, A)) for number in range(2**A)])


def _kept(number: int, N: int, A: int) -> Bool[np.ndarray, "N A"]:
    return np.tile((number >> np.arange(A)) & 1 > 0, (N, 1))


def stand_ins(heads: Sequence[Head], losses: Float[np.ndarray, "S N"]) -> list[HeadPair]:
    """Return the pairs that stand in for each other beyond chance, the strongest first."""
    A = len(heads)
    whole = 2**A - 1
    increases = losses - losses[whole]
    found = []
    for one, other in combinations(range(A), 2):
        alone = increases[whole ^ 1 << one], increases[whole ^ 1 << other]
        both = increases[whole ^ 1 << one ^ 1 << other]
        interaction = both - alone[0] - alone[1]
        effect = ablation_effect(interaction.tolist(), num_tests=comb(A, 2))
        if effect.state == MATTERS and effect.loss_increase > 0:
            means = float(alone[0].mean()), float(alone[1].mean())
            pair = HeadPair((heads[one], heads[other]), means, float(both.mean()))
            found.append((effect.loss_increase, pair))
    found.sort(key=lambda each: -each[0])
    return [pair for _, pair in found]


def exact_gains(values: Float[np.ndarray, "S N 2"]) -> Float[np.ndarray, "N A 2"]:
    """Return each text's Shapley values of -loss and of being right, from all 2^A sets.

    phi_h = sum over S without h of |S|! (A - |S| - 1)! / A! (v(S + h) - v(S)).
    """
    A = len(values).bit_length() - 1
    numbers = np.arange(2**A)
    sizes = ((numbers[:, None] >> np.arange(A)) & 1).sum(axis=1)
    signed = values * np.array([-1.0, 1.0])  # a lower loss is a gain
    gains = []
    for head in range(A):
        without = numbers[(numbers >> head) & 1 == 0]
        weights = np.array([1 / (A * comb(A - 1, size)) for size in sizes[without]])
        gains.append(np.einsum("s,snk->nk", weights, signed[without | 1 << head] - signed[without]))
    return np.stack(gains, axis=1)


def _forward_selection(
    run: Callable[..., Float[np.ndarray, "N 2"]],
    known: dict[int, Float[np.ndarray, "N 2"]],
    chooses: Bool[np.ndarray, " N"],
    A: int,
) -> list[int]:
    """Return the numbers of the sets from none to all, each with the head that lowers it most.

    What is run is added to `known`, outcomes by the number of the set.
    """

    def loss(number: int) -> float:
        if number not in known:
            known[number] = run(_kept(number, len(chooses), A))
        return float(known[number][chooses, 0].mean())

    loss(0)
    sets = [0]
    for _ in range(A):
        larger = [sets[-1] | 1 << head for head in range(A) if not sets[-1] >> head & 1]
        sets.append(min(larger, key=loss))
    return sets


def _sampled_gains(
    run: Callable[..., Float[np.ndarray, "N 2"]], N: int, A: int, passes: int
) -> Float[np.ndarray, "N A 2"]:
    """Return estimates of the Shapley values; NaN for a text that says nothing of a head.

    Every text draws its own order of the heads, and in each round one part of it, whose heads join
    one by one. A head's place is as likely to be any, so the mean over texts is unbiased.
    """
    random = np.random.default_rng(SEED)
    part = min(A, max(1, passes - 1))
    parts = -(-A // part)
    sums = np.zeros((N, A, 2))
    counts = np.zeros((N, A, 1))
    texts = np.arange(N)
    for turn in range(max(1, min(passes // (part + 1), 32))):
        ranks = random.random((N, A)).argsort(axis=1).argsort(axis=1)  # place of each head
        orders = ranks.argsort(axis=1)
        starts = (np.arange(N) + turn) % parts * part
        before = run(ranks < starts[:, None])
        for step in range(part):
            ends = starts + step
            after = run(ranks <= ends[:, None])
            has_head = ends < A
            head = orders[texts, np.minimum(ends, A - 1)]
            gain = (after - before) * np.array([-1.0, 1.0])
            sums[texts, head] += np.where(has_head[:, None], gain, 0)
            counts[texts, head, 0] += has_head
            before = after
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _means(gains: Float[np.ndarray, "N *A"]) -> Float[np.ndarray, "*A"]:
    """Return the means over the texts that say something; NaN for a head of which none does."""
    known = np.isfinite(gains).sum(axis=0)
    return np.where(known > 0, np.nansum(gains, axis=0) / np.maximum(known, 1), np.nan)


def _summary(heads: Sequence[Head], gains: Float[np.ndarray, "N A 2"]) -> Summary:
    known = np.isfinite(gains).sum(axis=0)
    means = _means(gains)
    spread = np.sqrt(np.nansum((gains - means) ** 2, axis=0) / np.maximum(known - 1, 1))
    errors = spread / np.sqrt(np.maximum(known, 1))
    summary: Summary = {}
    for (layer, _), mean, error in zip(heads, means, errors, strict=True):
        for place, name in ((1, "shapley_accuracy"), (0, "shapley_loss")):
            of_layer = summary.setdefault(layer, {}).setdefault(name, ([], []))
            of_layer[0].append(float(mean[place]))
            of_layer[1].append(float(error[place]))
    return summary


def _outcomes(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    kept: Bool[np.ndarray, "N A"],
) -> Float[np.ndarray, "N 2"]:
    """Return each text's loss, and 1 if its class is right, with the heads that it keeps alone."""
    parts = []
    start = 0
    for batch in batches:
        B = len(batch.labels)
        masks = torch.from_numpy(kept[start : start + B]).to(device_of(model))
        start += B
        first = 0
        interventions = {}
        for name, layer in headed_layers(model).items():
            of_layer = masks[:, first : first + layer.num_heads]
            first += layer.num_heads
            if not bool(of_layer.all()):
                interventions[name] = partial(_keep, of_layer)
        with eval_mode(model), torch.no_grad(), intervene_layers(model, interventions):
            logits = logits_of(model, batch)
        labels = batch.labels.to(logits.device)
        loss = objective.losses(logits.double(), labels)
        is_correct = objective.correct(logits, labels).double()
        parts.append(torch.stack([loss, is_correct], dim=1).cpu().numpy())
    return np.concatenate(parts)


def _keep(is_kept: Bool[Tensor, "B H"], head_outputs: Float[Tensor, "B H Q E"]) -> Tensor:
    return head_outputs * is_kept[:, :, None, None].to(head_outputs.dtype)
