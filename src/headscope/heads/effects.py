"""What ablating a head does to the loss, beyond chance, and how many heads are enough.

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

How many heads are enough: an order from one half of the texts, its accuracy on the other half.
Heads outside a set are ablated to zero. The order is that of forward selection: the next head is
the one that lowers the mean loss of the first half most. More than MOST_GREEDY heads, which would
take A (A + 1) / 2 sets, are in the order of the loss increase when each is ablated alone.

Every function runs the model in eval mode and leaves weights, gradients and modes as they were,
after errors too. Shape letters: N texts in all or that choose, M other texts, L layers, H heads, A
heads of all layers.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import t as student_t
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headscope.attention import MultiHeadAttention, SharedProjectionAttention
from headscope.data.batching import Batch, moved
from headscope.heads.capture import Change, ablate, device_of, eval_mode, logits_of
from headscope.model.classifier import TextClassifier
from headscope.model.objective import Objective
from headscope.record.schema import stack_layers

Head = tuple[str, int]  # the layer's name, the head's number
Zeros = tuple[frozenset[int], ...]  # heads ablated to zero, layer by layer from the first on
NONE: Zeros = (frozenset(),)  # in one layer

MATTERS = "matters"
NO_EFFECT = "no effect"
INCONCLUSIVE = "inconclusive"
RECORDED = {MATTERS: 1, NO_EFFECT: 0, INCONCLUSIVE: -1}  # the record's numbers
NO_HEAD = -2  # in the record, where a layer has fewer heads than the widest
MIN_EFFECT = 0.01  # nats: the smallest effect of interest
ALPHA = 0.05  # family-wise error rate over all heads
MIN_TEXTS = 30  # fewer texts give no usable standard error
MOST_GREEDY = 16  # heads
MOST_KEPT = 2**28  # bytes of the vectors of all tokens, and as many of those of [CLS] alone
MARGIN = 0.01  # fewer heads are enough where accuracy is at most this much lower
# From heads, all others ablated, and whether the other texts are run as well, to losses in nats and
# whether each text's class is right.
Run = Callable[[Sequence[Head], bool], Float[np.ndarray, "N 2"]]


# What ablation changes


def outcomes(
    runs: "AblatedRuns", count: int, objective: Objective, ablated: Mapping[Head, Change]
) -> Float[Tensor, "N 2"]:
    """Return each text's loss in nats with heads ablated, and 1 if its class is right, else 0.

    The texts are those of the first `count` batches.
    """
    parts = []
    with eval_mode(runs.model), torch.no_grad():
        for number, batch in enumerate(runs.batches[:count]):
            logits = runs.logits(number, ablated).cpu()  # MPS has no float64
            loss = objective.losses(logits.double(), batch.labels)
            is_correct = objective.correct(logits, batch.labels).double()
            parts.append(torch.stack([loss, is_correct], dim=1))
    return torch.cat(parts)


class _AtBlock(NamedTuple):
    """What a block does with a batch before its heads are ablated; Q is 1 if [CLS] alone is read.

    `others` are the arguments of the block beside the tokens, if nothing is ablated below.
    """

    tokens: Float[Tensor, "B Q D"]
    heads: Float[Tensor, "B Q D"]  # outputs of all heads, merged
    others: tuple[Any, ...]


class AblatedRuns:
    """A model run over batches with heads ablated, where runs share what they have in common.

    Ablating a head changes no other head of its layer. So the blocks of a `TextClassifier` compute
    their heads once for each set of heads ablated in the layers below, and a set of their own costs
    W^O and the feed-forward network. Heads are kept until they fill MOST_KEPT bytes, beside as many
    where [CLS] alone is read; the others are computed anew. Any other model is run as a whole, and
    so is one with heads that attend uniformly.
    """

    def __init__(self, model: nn.Module, batches: Sequence[Batch]) -> None:
        self.model: Any = model
        self.batches = batches
        self.blocks: list[Any] = []  # that share
        kinds = (MultiHeadAttention, SharedProjectionAttention)
        if type(model) is TextClassifier:
            blocks = [*model.encoder.blocks]
            self.blocks = blocks if all(type(each.attention) in kinds for each in blocks) else []
        self._kept: dict[tuple[int, Zeros], _AtBlock] = {}
        self._room = {True: MOST_KEPT, False: MOST_KEPT}  # bytes: of [CLS] alone, of all tokens

    def logits(self, number: int, ablated: Mapping[Head, Change]) -> Float[Tensor, "B C"]:
        """Return the logits of a batch with heads ablated."""
        batch = self.batches[number]
        zeros = tuple(
            frozenset(
                head
                for head in range(block.attention.num_heads)
                if ablated.get((f"encoder.blocks.{layer}.attention", head)) == "zero"
            )
            for layer, block in enumerate(self.blocks)
        )
        if not self.blocks or sum(map(len, zeros)) < len(ablated):
            with ablate(self.model, ablated):
                return logits_of(self.model, batch)
        padding = moved(batch, device_of(self.model)).key_padding_mask
        logits: Tensor = self.model.read_out(
            self.model.encoder.norm(self._tokens(number, zeros)), padding
        )
        return logits

    def _tokens(self, number: int, zeros: Zeros) -> Float[Tensor, "B Q D"]:
        """Return a batch's tokens after a block; `zeros` are the heads ablated in it and below."""
        block = self.blocks[len(zeros) - 1]
        tokens, merged, _ = self._at_block(number, zeros[:-1])
        heads = merged.unflatten(-1, (block.attention.num_heads, -1)).clone()  # [B, Q, H, E]
        heads[:, :, [*zeros[-1]]] = 0.0
        after: Tensor = block.add(tokens, block.attention.output_projection(heads.flatten(2)))
        return after

    def _at_block(self, number: int, zeros: Zeros) -> _AtBlock:
        """Return what a block does with a batch; `zeros` are the heads ablated below it."""
        if (number, zeros) in self._kept:
            return self._kept[number, zeros]
        layer = len(zeros)
        if any(zeros):
            others = self._at_block(number, NONE * layer).others
            block = self.blocks[layer]
            (found,) = _observed([block], partial(block, self._tokens(number, zeros), *others))
            self._keep((number, zeros), found._replace(others=()))
            return found
        of_blocks = _observed(self.blocks, partial(logits_of, self.model, self.batches[number]))
        for below, each in enumerate(of_blocks):
            self._keep((number, NONE * below), each)
        return of_blocks[layer]

    def _keep(self, key: tuple[int, Zeros], found: _AtBlock) -> None:
        tensors = [each for each in tree_leaves(found) if isinstance(each, Tensor)]
        size = sum(each.nbytes for each in tensors)
        is_first = found.tokens.shape[1] == 1
        if key not in self._kept and size <= self._room[is_first]:
            self._room[is_first] -= size
            self._kept[key] = found


def _observed(blocks: Sequence[Any], run: Callable[[], object]) -> list[_AtBlock]:
    """Run something in which blocks run, and return what they do."""
    given: list[Any] = []
    heads: list[Tensor] = []
    with ExitStack() as stack:
        for block in blocks:
            hook = block.register_forward_pre_hook(lambda _, inputs: given.append(inputs))
            stack.callback(hook.remove)
            projection = block.attention.output_projection
            hook = projection.register_forward_pre_hook(lambda _, inputs: heads.append(inputs[0]))
            stack.callback(hook.remove)
        run()
    pairs = zip(given, heads, strict=True)
    return [
        _AtBlock(tokens[:, : own.shape[1]].clone(), own, tuple(others))
        for (tokens, *others), own in pairs
    ]


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


# Sets of heads


@dataclass(frozen=True)
class HeadSets:
    """What the first heads of an order do alone.

    Attributes:
        order: the heads, the most useful first.
        sizes: numbers of heads that were tried, from 0 to all.
        correct: [sizes, M], 1 where that many heads alone give the right class of another text.
        enough: the smallest of `sizes` that is within MARGIN of all heads, on texts that chose.
    """

    order: list[Head]
    sizes: list[int]
    correct: Float[np.ndarray, "sizes M"]
    enough: int

    @property
    def place(self) -> int:
        """The place in `sizes` of the few that are told: `enough`, or fewer where that is all."""
        return min(self.sizes.index(self.enough), len(self.sizes) - 2)


def head_sets(increases: Mapping[Head, float], num_choosing: int, run: Run) -> HeadSets:
    """Order the heads by the first texts, and score the first ones alone on the others.

    `increases` are the loss increases of each head alone over the texts that choose, which `run`
    has first.
    """
    order = sorted(increases, key=lambda head: -increases[head])
    if len(order) <= MOST_GREEDY:
        order = _forward_selection(order, run)
    sizes = tried_sizes(len(order))
    correct = np.stack([run(order[:size], True)[:, 1] for size in sizes])
    chosen = correct[:, :num_choosing].mean(axis=1)
    enough = sizes[int((chosen >= chosen[-1] - MARGIN).argmax())]
    return HeadSets(order, sizes, correct[:, num_choosing:], enough)


def tried_sizes(A: int) -> list[int]:
    """Return the numbers of heads that are tried: all up to MOST_GREEDY, then powers of two."""
    powers = [2**power for power in range(A.bit_length())]
    return sorted({0, A, *powers} if A > MOST_GREEDY else range(A + 1))


def num_runs(A: int) -> int:
    """Return how often `head_sets` runs some texts."""
    chosen = A * (A + 1) // 2 if A <= MOST_GREEDY else 0
    return chosen + len(tried_sizes(A))


def _forward_selection(heads: Sequence[Head], run: Run) -> list[Head]:
    order: list[Head] = []
    rest = list(heads)
    while rest:
        losses = [run([*order, head], False)[:, 0].mean() for head in rest]
        order.append(rest.pop(int(np.argmin(losses))))
    return order
