"""One study of a finished model: what its heads attend to, and what depends on them.

Shape letters: A heads of all layers, N texts in all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import binom
from tokenizers import Tokenizer
from torch import nn

from headscope.attention.functional import AttentionCall
from headscope.data.batching import Batch, TextBatches, TokenBudgetSampler, moved
from headscope.ground.errors import listed, warn
from headscope.heads.answer import AccuracyChange, answer, kept
from headscope.heads.capture import (
    Change,
    NotObservedError,
    device_of,
    eval_mode,
    headed_layers,
    logits_of,
    observe,
    read_at_first,
    texts_apart,
)
from headscope.heads.effects import (
    AblatedRuns,
    Head,
    HeadSets,
    ablation_effect,
    head_sets,
    num_runs,
    outcomes,
)
from headscope.heads.measures import (
    HeadStatistics,
    SpecialTokens,
    Summary,
    mean_and_error,
)
from headscope.model.objective import ONE_CLASS, Objective
from headscope.record.explanation import head_names

MAX_WEIGHTS = 2**22  # held at once: 16 MiB
SURPRISING = 0.001  # probability of so few texts by chance
Advance = Callable[[int, int], object]  # called with the runs over texts that are done, and all


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the ids that a tokenizer puts around a text, such as [CLS] and [SEP]."""
    encoding = tokenizer.encode("")
    is_special = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    ids = tuple(number for number, special in is_special if special)
    return SpecialTokens(ids[1:], ids)


@dataclass(frozen=True)
class Study:
    """What a study found: measures, effects of ablation, sets of heads, and the answer."""

    numbers: Summary  # layer -> measure -> (means, standard errors), one of each per head
    texts: int  # on how many it rests
    right: int  # of these, classified correctly by the whole model
    effects: dict[Head, str]  # state
    sets: HeadSets
    sure: Float[np.ndarray, "N 2"]  # of each text its confidence, and 1 if its class is right
    answer: str  # see `headscope.heads.answer`
    details: str
    kept: list[AccuracyChange]  # on the other texts, see `headscope.heads.answer.kept`

    def loss_increases(self) -> dict[str, tuple[float, float]]:
        """Return each head's mean loss increase under zero ablation and its standard error."""
        measures = [[*zip(*of["loss_zeroed"], strict=True)] for of in self.numbers.values()]
        names = head_names([*self.numbers], [*map(len, measures)])
        return dict(zip(names, chain.from_iterable(measures), strict=True))


def study(
    model: nn.Module,
    chooses: Sequence[Batch],
    others: Sequence[Batch],
    special: SpecialTokens,
    objective: Objective = ONE_CLASS,
    advance: Advance | None = None,
) -> Study:
    """Measure what every head attends to, and ablate heads, one by one and in sets.

    The order of the heads is chosen on one half of the texts and scored on the other; all else is
    measured on both. No text comes twice. `advance` may show the progress.
    """
    batches = [*chooses, *others]
    numbers = measure_attention(model, batches, special)
    layers = headed_layers(model)
    heads = [(name, head) for name in numbers for head in range(layers[name])]
    total = 2 + len(heads) + num_runs(len(heads))
    done = 0

    runs = AblatedRuns(model, batches)

    def run(changes: Mapping[Head, Change], count: int) -> Float[np.ndarray, "N 2"]:
        nonlocal done
        loss_and_accuracy = outcomes(runs, count, objective, changes).numpy()
        done += 1
        if advance is not None:
            advance(done, total)
        return loss_and_accuracy

    def keep(heads_on: Sequence[Head], with_others: bool) -> Float[np.ndarray, "N 2"]:
        ablated: dict[Head, Change] = {head: "zero" for head in heads if head not in heads_on}
        return run(ablated, len(batches if with_others else chooses))

    whole = run({}, len(batches))
    averaged = run(dict.fromkeys(heads, "uniform"), len(batches))
    changes = {head: run({head: "zero"}, len(batches)) - whole for head in heads}  # [N, 2] each
    num_choosing = sum(len(batch.labels) for batch in chooses)
    increases = {head: float(change[:num_choosing, 0].mean()) for head, change in changes.items()}
    sets = head_sets(increases, num_choosing, keep)
    for layer in numbers:
        of_layer = np.stack([change for head, change in changes.items() if head[0] == layer])
        loss, accuracy = torch.from_numpy(of_layer).permute(2, 1, 0)  # [N, H] each
        numbers[layer]["loss_zeroed"] = mean_and_error(loss)
        numbers[layer]["accuracy_zeroed"] = mean_and_error(accuracy)
    effects = {head: ablation_effect(change[:, 0], len(heads)) for head, change in changes.items()}
    words = answer(whole[:, 1], averaged[:, 1], sets, list(numbers))
    right = int(whole[:, 1].sum())
    on_others = kept(sets, averaged[num_choosing:, 1])
    sure = np.stack([confidences(runs), whole[:, 1]], axis=1)
    return Study(numbers, len(whole), right, effects, sets, sure, *words, on_others)


def confidences(runs: AblatedRuns) -> Float[np.ndarray, " N"]:
    """Return each text's probability of its likeliest class."""
    with eval_mode(runs.model), torch.no_grad():
        logits = torch.cat([runs.logits(number, {}).cpu() for number in range(len(runs.batches))])
    found: Float[np.ndarray, " N"] = logits.double().softmax(dim=-1).amax(dim=-1).numpy()
    return found


def warn_below_chance(right: int, texts: int, classes: Sequence[str]) -> None:
    """Warn if fewer texts are right than by chance, by more than it gives one time in a thousand.

    Then the classes may well be in another order than the labels.
    """
    if binom.cdf(right, texts, 1 / len(classes)) < SURPRISING:
        order = listed([f"{number} = {name}" for number, name in enumerate(classes)])
        warn(
            f"{right} of {texts} texts are classified correctly, {texts / len(classes):.0f} would "
            f"be by chance: do the labels mean other classes than {order}?"
        )


def measure_attention(
    model: nn.Module, batches: Iterable[Batch], special: SpecialTokens
) -> Summary:
    """Return what every head attends to.

    Of a layer that is read at [CLS] alone that row counts. The weights of few texts at a time are
    held, so that memory does not depend on the batch.
    """
    heads = HeadStatistics()
    read_at = read_at_first(model)
    device = device_of(model)

    def measure(batch: Batch, layer: str, call: AttentionCall) -> None:
        if call.is_pooling:
            return
        T = batch.token_ids.shape[1]
        if call.shape[-1] != T and special.fixed:
            raise NotObservedError(
                f"{layer}: expected a map of {T} tokens, got {list(call.shape[1:])}, so its heads "
                "are not measured over texts"
            )
        tokens = special.tokens_of(batch)
        B = len(batch.rows)
        size = max(1, MAX_WEIGHTS * B // math.prod(call.shape))
        for start in range(0, B, size):
            rows = slice(start, start + size)
            weights = call.weights(rows)
            if layer in read_at:
                weights = weights[:, :, :1]
            heads.update(layer, weights, tokens.rows(rows))

    with eval_mode(model), torch.no_grad():
        for batch in texts_apart(model, batches):
            with observe(model, partial(measure, moved(batch, device))):
                logits_of(model, batch)
    return heads.summary()


def draw_samples(
    texts: TextBatches, size: int, tokens_per_batch: int, seed: int, count: int = 1
) -> list[list[Batch]]:
    """Return `count` disjoint random samples of `size` texts, in batches of like length."""
    lengths = texts.texts.lengths
    order = np.random.default_rng(seed).permutation(len(lengths))
    samples = []
    for number in range(count):
        rows = np.sort(order[number * size : (number + 1) * size])
        sampler = TokenBudgetSampler(lengths[rows], tokens_per_batch)
        samples.append([texts[rows[chosen].tolist()] for chosen in sampler])
    return samples
