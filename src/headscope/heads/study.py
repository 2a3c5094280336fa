"""One study of a finished model: what its heads attend to, and what depends on them.

Shape letters: B texts, N heads of all layers together, L layers, H heads of each, Q queries, T positions.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.data.batching import Batch, TextBatches, TokenBudgetSampler
from headscope.heads.ablation import (
    AblationEffect,
    Head,
    ablation_changes,
    ablation_effects,
    effect_arrays,
    gate_gradient,
    losses,
    mean_loss_increases,
)
from headscope.heads.capture import HEADED, capture, eval_mode, headed_layers, logits_of
from headscope.heads.contributions import has_contributions, mean_contributions
from headscope.heads.faithfulness import Faithfulness, faithfulness
from headscope.heads.measures import (
    MEASURES,
    RARE_MEASURES,
    RARE_TOKEN_MEASURES,
    TOKEN_MEASURES,
    HeadStatistics,
    Maps,
    Padding,
    Summary,
    Tokens,
    mean_and_error,
    mean_over_queries,
    role_arrays,
    row_entropy,
)
from headscope.model.objective import ONE_CLASS, Objective

MAX_SAMPLES = 4  # at most 8 times the first sample in all
Watch = Callable[[Sequence[Batch]], Iterable[Batch]]  # passes batches on, and may show progress


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that are no words of a text: `separators` such as [SEP]; `fixed` ones, [CLS] too, are never hidden."""

    separators: tuple[int, ...]
    fixed: tuple[int, ...]

    def tokens_of(self, token_ids: Int[Tensor, "B T"], pairs: bool) -> Tokens:
        """Return what the tokens of a batch are, of pairs also which text each is of."""
        if pairs:
            return Tokens.of_pairs(token_ids, self.separators, self.fixed)
        return Tokens.of(token_ids, self.separators)


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the ids that a tokenizer puts around a text, such as [CLS] and [SEP], or <s> and </s>."""
    encoding = tokenizer.encode("")
    is_special = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    ids = tuple(number for number, special in is_special if special)
    return SpecialTokens(ids[1:], ids)


@dataclass(frozen=True)
class Similarity:
    """How far any two heads' maps are apart; rows and columns are the heads (layer, number), in order.

    `divergence` is the mean Jensen-Shannon divergence over texts in nats, from 0 (equal maps) to ln 2 (no key in
    common), and `error` its standard error.
    """

    heads: list[Head]
    divergence: Float[Tensor, "N N"]
    error: Float[Tensor, "N N"]


@dataclass(frozen=True)
class Study:
    """What a study found: measures, ablation effects, similarity of heads, and faithfulness."""

    numbers: Summary  # layer -> measure -> (means, standard errors), one of each per head
    faithfulness: Faithfulness | None  # None where it was not measured, or no text has two words
    similarity: Similarity
    texts: int  # how many were measured
    effects: dict[Head, AblationEffect]

    def loss_increases(self) -> dict[str, tuple[float, float]]:
        """Return each head's mean loss increase when it is ablated, in nats, and its standard error."""
        return {
            f"layer {layer} head {head}": increase
            for layer, measures in enumerate(self.numbers.values())
            for head, increase in enumerate(zip(*measures["loss_zeroed"], strict=True))
        }

    def extra(self) -> dict[str, np.ndarray]:
        """Return the record's members that belong to no single measure."""
        arrays = {"likeness": self.similarity.divergence.float().numpy()}
        if self.faithfulness is not None:
            # [measure, (mean, standard error)], measures in their order: comprehensiveness, sufficiency
            for name, measures in self.faithfulness.choosers.items():
                arrays[f"faithfulness/{name}"] = np.array(list(measures.values()), np.float32)
            paired = np.array(self.faithfulness.rollout_less_chance, np.float32)
            arrays["faithfulness/rollout_less_chance"] = paired
        return arrays | effect_arrays(self.effects) | role_arrays(self.numbers)


def study(
    model: nn.Module,
    samples: Sequence[Sequence[Batch]],
    special: SpecialTokens,
    shares: Sequence[float],
    objective: Objective = ONE_CLASS,
    watch: Watch = iter,
) -> Study:
    """Measure attention, ablation, gates, contributions and faithfulness of every head.

    Args:
        model: the classifier.
        samples: labelled texts, no text twice. All is measured on the first sample; heads whose effect is inconclusive
            are ablated on the further ones too.
        special: ids of tokens that are no words.
        shares: of a text's tokens, for `faithfulness`; fewer are faster.
        objective: what the labels are.
        watch: sees the batches pass by in `faithfulness`, by far the longest part.
    """
    first, *more = samples
    numbers, similarity = measure_attention(model, first, special)
    changes = ablation_changes(model, first, objective=objective)
    loss_increases = {
        (name, head): increases
        for name, measures in changes.items()
        for head, increases in enumerate(measures["loss_zeroed"].unbind(dim=1))
    }
    effects = ablation_effects(model, loss_increases, more, objective)
    summaries: list[Summary] = [
        {
            name: {measure: mean_and_error(values) for measure, values in measures.items()}
            for name, measures in changes.items()
        },
        mean_loss_increases(effects),
        gate_gradient(model, first, objective),
    ]
    if has_contributions(model):
        heads = mean_contributions(model, first, objective).heads.unbind(dim=1)  # [N, H] each
        named = zip(headed_layers(model), heads, strict=True)
        summaries.append({name: {"nats": mean_and_error(values)} for name, values in named})
    try:
        faithful = faithfulness(model, watch(first), special.fixed, shares, objective=objective)
        summaries.append(faithful.heads)
    except ValueError:  # texts of one word each: there is nothing to choose among
        faithful = None
    num_texts = sum(len(batch.labels) for batch in first)
    return Study(_merged(numbers, *summaries), faithful, similarity, num_texts, effects)


def quick_study(
    model: nn.Module,
    samples: Sequence[Sequence[Batch]],
    special: SpecialTokens,
    objective: Objective = ONE_CLASS,
) -> Study:
    """Measure attention, zero ablation and gates alone; arguments as in `study`."""
    first, *more = samples
    numbers, similarity = measure_attention(model, first, special)
    whole = losses(model, first, objective)
    loss_increases = {
        (name, head): losses(model, first, objective, (name, head)) - whole
        for name, layer in headed_layers(model).items()
        for head in range(layer.num_heads)
    }
    effects = ablation_effects(model, loss_increases, more, objective)
    gradients = gate_gradient(model, first, objective)
    num_texts = max(effect.num_texts for effect in effects.values())
    merged = _merged(numbers, mean_loss_increases(effects), gradients)
    return Study(merged, None, similarity, num_texts, effects)


def _merged(numbers: Summary, *summaries: Summary) -> Summary:
    """Return the numbers of each layer with the measures of the summaries; of those of one name the last."""
    merged = {layer: dict(measures) for layer, measures in numbers.items()}
    for summary in summaries:
        for layer, measures in merged.items():
            measures.update(summary.get(layer, {}))
    return merged


def measure_attention(
    model: nn.Module, batches: Sequence[Batch], special: SpecialTokens
) -> tuple[Summary, Similarity]:
    """Return what every head attends to, and how far any two heads are apart."""
    statistics = HeadStatistics(MEASURES | RARE_MEASURES, TOKEN_MEASURES | RARE_TOKEN_MEASURES)
    similarity = HeadSimilarity()
    with eval_mode(model), torch.no_grad():
        for batch in batches:
            with capture(model, kind=HEADED) as maps:
                logits_of(model, batch)
            device = next(iter(maps.values())).device
            padding = None if batch.key_padding_mask is None else batch.key_padding_mask.to(device)
            tokens = special.tokens_of(batch.token_ids.to(device), batch.segment_ids is not None)
            for layer, weights in maps.items():
                statistics.update(layer, weights, padding, tokens)
            similarity.update(maps, padding)
    return statistics.summary(), similarity.summary()


class HeadSimilarity:
    """Collect the divergence of every pair of heads, batch by batch.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 with H the entropy in nats, of the two heads' rows p and q for one
    query; averaged over a text's queries, padding left out, then over texts (Clark et al. 2019, What Does BERT Look
    At?, section 6, sums instead). Costs a logarithm for each weight and pair of heads, so it is for a sample of texts.
    """

    def __init__(self) -> None:
        self._heads: list[Head] = []
        self._values: list[Float[Tensor, "B N N"]] = []

    def update(self, maps: Mapping[str, Maps], padding: Padding = None) -> None:
        """Count some texts in: the maps of every layer, from `capture`."""
        self._heads = [
            (name, head) for name, weights in maps.items() for head in range(weights.shape[1])
        ]
        self._values.append(divergences(torch.cat(list(maps.values()), dim=1), padding).cpu())

    def summary(self) -> Similarity:
        """Return means and standard errors over all texts; there must have been one."""
        values = torch.cat(self._values).double()
        n = len(values)
        error = values.std(dim=0) / math.sqrt(n) if n > 1 else torch.zeros_like(values[0])
        return Similarity(self._heads, values.mean(dim=0), error)


def divergences(maps: Float[Tensor, "B N Q T"], padding: Padding = None) -> Float[Tensor, "B N N"]:
    """Return the mean over queries of JS(a_mi, a_ni), in nats, for any two heads m and n of each text."""
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


def doubling_samples(
    num_texts: int, size: int, seed: int, max_samples: int = MAX_SAMPLES
) -> Iterator[Int[np.ndarray, " _"]]:
    """Yield disjoint random rows: `size`, then as many as drawn so far."""
    order = np.random.default_rng(seed).permutation(num_texts)
    start, stop = 0, size
    for _ in range(max_samples):
        if start >= num_texts:
            return
        yield order[start:stop]
        start, stop = stop, 2 * stop


def draw_samples(
    texts: TextBatches, size: int, tokens_per_batch: int, seed: int, max_samples: int = MAX_SAMPLES
) -> list[list[Batch]]:
    """Return the batches of `doubling_samples`, texts of like length together."""
    lengths = texts.texts.lengths
    samples = []
    for drawn in doubling_samples(len(lengths), size, seed, max_samples):
        rows = np.sort(drawn)
        sampler = TokenBudgetSampler(lengths[rows], tokens_per_batch)
        samples.append([texts[rows[chosen].tolist()] for chosen in sampler])
    return samples
