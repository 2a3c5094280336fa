"""One study of a finished model: what its heads attend to, and what depends on them.

Shape letters: B texts, A heads of all layers together, L layers, H heads of each, Q queries, T
positions.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.data.batching import Batch, TextBatches, TokenBudgetSampler
from headscope.heads import ablation, measures
from headscope.heads.ablation import AblationEffect, Head, outcomes
from headscope.heads.answer import answer
from headscope.heads.capture import (
    HEADED,
    Change,
    capture,
    eval_mode,
    headed_layers,
    logits_of,
    read_at_first,
)
from headscope.heads.contributions import has_contributions, mean_contributions
from headscope.heads.faithfulness import NUM_RANDOM, Faithfulness, faithfulness
from headscope.heads.measures import (
    HeadStatistics,
    Padding,
    SpecialTokens,
    Summary,
    mean_and_error,
    mean_over_queries,
    row_entropy,
)
from headscope.heads.sets import (
    HeadSets,
    head_sets,
    passes_allowed,
    seconds_of_pass,
    texts_for_all_sets,
)
from headscope.model.objective import ONE_CLASS, Objective

MAX_SAMPLES = 4  # at most 8 times the first sample in all
MIN_TEXTS = 8  # half of which choose sets of heads
MIN_PASSES = 4  # over all texts, for sets
NUM_CHOOSERS = NUM_RANDOM + 3  # of tokens, beside the heads
Advance = Callable[[int, int], object]  # called with the passes of texts that are done, and all


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the ids that a tokenizer puts around a text, such as [CLS] and [SEP]."""
    encoding = tokenizer.encode("")
    is_special = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    ids = tuple(number for number, special in is_special if special)
    return SpecialTokens(ids[1:], ids)


@dataclass(frozen=True)
class Study:
    """What a study found: measures, ablation effects, divergence of heads, and faithfulness."""

    numbers: Summary  # layer -> measure -> (means, standard errors), one of each per head
    faithfulness: Faithfulness | None  # None where it was not measured, or no text has two words
    divergence: Float[Tensor, "A A"]  # of any two heads' maps: see `divergences`
    texts: int  # how many were measured
    effects: dict[Head, AblationEffect]
    answer: str = ""  # see `headscope.heads.answer`
    details: str = ""
    sets: HeadSets | None = None  # None where the budget or the texts do not allow any

    def loss_increases(self) -> dict[str, tuple[float, float]]:
        """Return each head's mean loss increase under zero ablation and its standard error."""
        return {
            f"layer {layer} head {head}": increase
            for layer, measured in enumerate(self.numbers.values())
            for head, increase in enumerate(zip(*measured["loss_zeroed"], strict=True))
        }

    def extra(self) -> dict[str, np.ndarray]:
        """Return the record's members that belong to no single measure."""
        arrays = {"likeness": self.divergence.float().numpy()}
        if self.faithfulness is not None:
            # [measure, (mean, standard error)], measures in their order: comprehensiveness,
            # sufficiency
            for name, both in self.faithfulness.choosers.items():
                arrays[f"faithfulness/{name}"] = np.array(list(both.values()), np.float32)
            paired = np.array(self.faithfulness.rollout_less_chance, np.float32)
            arrays["faithfulness/rollout_less_chance"] = paired
        arrays |= {"answer": np.array(self.answer), "answer/details": np.array(self.details)}
        if self.sets is not None:
            arrays |= self.sets.arrays()
        return arrays | ablation.effect_arrays(self.effects) | measures.role_arrays(self.numbers)


@dataclass(frozen=True)
class StudyPlan:
    """What a study will run, from the sizes of network and texts alone."""

    texts: list[Batch]  # on which heads are ablated, one by one and in sets
    for_all_sets: list[Batch]  # on which every set of heads is run; none if there are too many
    set_passes: int  # over the texts, for sets; 0 where budget or texts do not allow any
    runs: int  # of the network on one text, in all
    seconds: float  # on two cores, about

    @property
    def num_texts(self) -> int:
        """On how many texts heads are ablated."""
        return _count(self.texts)


def study_plan(
    model: nn.Module, samples: Sequence[Sequence[Batch]], shares: Sequence[float] = ()
) -> StudyPlan:
    """Plan a study: as many of the samples as the budget of sets allows, at least the first."""
    first = samples[0]
    A = sum(layer.num_heads for layer in headed_layers(model).values())
    samples = _affordable(model, samples, A)
    texts = list(chain.from_iterable(samples))
    N = _count(texts)
    passes = passes_allowed(model, texts)
    if N < MIN_TEXTS or passes < MIN_PASSES:
        passes = 0
    for_all_sets = texts_for_all_sets(model, samples) if passes else []
    runs = N * 4 + N * A * len(_ablations(shares)) + _count(first) * 4
    if shares:
        runs += N + _count(first) * 2 * (A + NUM_CHOOSERS) * len(shares)
    if for_all_sets:
        runs += 2**A * _count(for_all_sets)
        if len(for_all_sets) < len(texts):
            runs += N * (A * (A + 1) // 2 + 1)
    else:
        runs += N * passes
    seconds = runs * seconds_of_pass(model, texts) / N
    return StudyPlan(texts, for_all_sets, passes, runs, seconds)


def _affordable(
    model: nn.Module, samples: Sequence[Sequence[Batch]], num_heads: int
) -> Sequence[Sequence[Batch]]:
    passes = 5 * num_heads + 4  # each head alone in three ways, and about two orders for each text
    for count in range(2, len(samples) + 1):
        texts = list(chain.from_iterable(samples[:count]))
        if passes_allowed(model, texts) < passes:
            return samples[: count - 1]
    return samples


def _ablations(shares: Sequence[float]) -> dict[str, Change]:
    return ablation.ABLATIONS if shares else {"zeroed": ablation.ABLATIONS["zeroed"]}


def _count(batches: Sequence[Batch]) -> int:
    return sum(len(batch.labels) for batch in batches)


def study(
    model: nn.Module,
    samples: Sequence[Sequence[Batch]],
    special: SpecialTokens,
    shares: Sequence[float] = (),
    objective: Objective = ONE_CLASS,
    advance: Advance | None = None,
    temperature: float = 1.0,
) -> Study:
    """Measure attention, ablation, gates, contributions and faithfulness of every head.

    No text of the samples comes twice. Heads are ablated, one by one and in sets, on as many of the
    samples as the budget allows; all else is measured on the first. `shares` are those of
    `faithfulness`: without any, attention, zero ablation, sets and gates alone are measured.
    `advance` may show the progress. The temperature is that of the contributions.
    """
    plan = study_plan(model, samples, shares)
    with _counted_runs(model, plan.runs, advance):
        return _study(model, samples[0], plan, special, shares, objective, temperature)


@contextmanager
def _counted_runs(model: nn.Module, total: int, advance: Advance | None) -> Iterator[None]:
    """Call `advance` after each pass of the model, with the texts that it has run so far."""
    if advance is None:
        yield
        return
    done = 0

    def count(module: nn.Module, inputs: object, logits: Tensor) -> None:
        nonlocal done
        done = min(done + len(logits), total)
        advance(done, total)

    handle = model.register_forward_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _study(
    model: nn.Module,
    first: Sequence[Batch],
    plan: StudyPlan,
    special: SpecialTokens,
    shares: Sequence[float],
    objective: Objective,
    temperature: float,
) -> Study:
    numbers, divergence = measure_attention(model, first, special)
    changes = ablation.ablation_changes(model, plan.texts, objective, _ablations(shares))
    effects = ablation.ablation_effects(model, changes, (), objective)
    if shares:
        for name, measured in numbers.items():
            for measure, values in changes[name].items():
                measured[measure] = mean_and_error(values)
    _add(numbers, ablation.mean_loss_increases(effects))
    _add(numbers, ablation.gate_gradient(model, first, objective))
    if has_contributions(model):
        of_heads = mean_contributions(model, first, objective, temperature).heads  # [N, L, H]
        for measured, values in zip(numbers.values(), of_heads.unbind(dim=1), strict=True):
            measured["nats"] = mean_and_error(values)
    faithful = None
    if shares:
        faithful = faithfulness(model, first, special.fixed, shares, objective)
    if faithful is not None:
        _add(numbers, faithful.heads)
    sets = None
    if plan.set_passes:
        sets = head_sets(model, plan.texts, plan.for_all_sets, objective, plan.set_passes)
        _add(numbers, sets.shapley)
    words = _answer(model, plan.texts, objective, changes, sets)
    return Study(numbers, faithful, divergence, plan.num_texts, effects, *words, sets)


def _answer(
    model: nn.Module,
    texts: Sequence[Batch],
    objective: Objective,
    changes: ablation.Changes,
    sets: HeadSets | None,
) -> tuple[str, str]:
    """Return the answer and its details; takes three passes over the texts."""
    uniform: dict[Head, Change] = {
        (name, head): "uniform"
        for name, layer in headed_layers(model).items()
        for head in range(layer.num_heads)
    }
    whole = outcomes(model, texts, objective, {})[:, 1].numpy()
    averaged = outcomes(model, texts, objective, uniform)[:, 1].numpy()
    without = {
        (name, head): whole + change.numpy()
        for name, measured in changes.items()
        for head, change in enumerate(measured["accuracy_zeroed"].T)
    }
    with eval_mode(model), torch.no_grad():
        logits = torch.cat([logits_of(model, batch).cpu() for batch in texts])
    predicted = objective.predicted(objective.probabilities(logits))
    are_alike = bool((predicted == predicted[0]).all())
    return answer(whole, without, averaged, sets, are_alike)


def _add(numbers: Summary, more: Summary) -> None:
    """Add measures to those of each layer, in place of any of the same name."""
    for layer, measured in numbers.items():
        measured |= more.get(layer, {})


def measure_attention(
    model: nn.Module, batches: Sequence[Batch], special: SpecialTokens
) -> tuple[Summary, Float[Tensor, "A A"]]:
    """Return what every head attends to, and the divergence of any two heads, mean over texts.

    Of a layer that is read at [CLS] alone that row counts, in either head's.
    """
    statistics = HeadStatistics(
        measures.MEASURES | measures.RARE_MEASURES,
        measures.TOKEN_MEASURES | measures.RARE_TOKEN_MEASURES,
    )
    read_at = read_at_first(model)
    of_texts = []
    with eval_mode(model), torch.no_grad():
        for batch in batches:
            with capture(model, kind=HEADED) as maps:
                logits_of(model, batch)
            device = next(iter(maps.values())).device
            padding = None if batch.key_padding_mask is None else batch.key_padding_mask.to(device)
            tokens = special.tokens_of(batch.token_ids.to(device), batch.segment_ids is not None)
            for layer, weights in maps.items():
                rows = weights[:, :, :1] if layer in read_at else weights
                statistics.update(layer, rows, padding, tokens)
            whole = [weights for layer, weights in maps.items() if layer not in read_at]
            divergence = divergences(
                torch.cat([w[:, :, :1] for w in maps.values()], dim=1), padding
            )
            if whole:  # the first layers
                of_whole = divergences(torch.cat(whole, dim=1), padding)
                divergence[:, : of_whole.shape[1], : of_whole.shape[1]] = of_whole
            of_texts.append(divergence.cpu())
    return statistics.summary(), torch.cat(of_texts).double().mean(dim=0)


def divergences(maps: Float[Tensor, "B N Q T"], padding: Padding = None) -> Float[Tensor, "B N N"]:
    """Return the Jensen-Shannon divergence of any two heads, in nats, the mean over queries.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 with H the entropy: from 0 (equal rows) to ln 2
    (no key in common). (Clark et al. 2019, What Does BERT Look At?, section 6, sums over queries
    instead.) Costs a logarithm for each weight and pair of heads, so it is for a sample of texts.
    """
    B, N, _, _ = maps.shape
    own = row_entropy(maps)  # [B, N, Q]
    result = maps.new_zeros(B, N, N)
    # One head against all that follow, so that memory does not grow with their square.
    for head in range(N - 1):
        others = slice(head + 1, N)
        mixed = row_entropy((maps[:, head : head + 1] + maps[:, others]) / 2)
        divergence = mixed - (own[:, head : head + 1] + own[:, others]) / 2
        divergence = divergence.clamp_min(0)  # below 0 by rounding alone
        result[:, head, others] = mean_over_queries(divergence, padding)
        result[:, others, head] = result[:, head, others]
    return result


def doubling_samples(num_texts: int, size: int, seed: int) -> Iterator[Int[np.ndarray, " _"]]:
    """Yield disjoint random rows: `size`, then as many as drawn so far, until all are drawn."""
    order = np.random.default_rng(seed).permutation(num_texts)
    start = 0
    while start < num_texts:
        stop = max(size, 2 * start)
        yield order[start:stop]
        start = stop


def draw_samples(
    texts: TextBatches, size: int, tokens_per_batch: int, seed: int, max_samples: int = MAX_SAMPLES
) -> list[list[Batch]]:
    """Return the batches of the first `doubling_samples`, texts of like length together."""
    lengths = texts.texts.lengths
    samples = []
    for drawn in islice(doubling_samples(len(lengths), size, seed), max_samples):
        rows = np.sort(drawn)
        sampler = TokenBudgetSampler(lengths[rows], tokens_per_batch)
        samples.append([texts[rows[chosen].tolist()] for chosen in sampler])
    return samples
