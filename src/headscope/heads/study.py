"""Everything that is measured about the heads of a finished model: what they do, and what depends on them.

Shape letters: B texts, N heads of all layers together, L layers, H heads of each, Q queries, T positions.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.data.batching import Batch, TextBatches, TokenBudgetSampler, moved
from headscope.heads.ablation import ablated, averaged, gate_gradient
from headscope.heads.capture import HEADED, capture
from headscope.heads.contributions import attributable, attribution, class_direction
from headscope.heads.effects import (
    AblationEffect,
    Head,
    ablation_effects,
    rises_of,
    role_arrays,
    verdict_arrays,
)
from headscope.heads.faithfulness import Faithfulness, faithfulness
from headscope.heads.interventions import device_of, eval_mode, headed_layers, logits_of
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
    row_entropy,
)
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, Objective

MAX_SAMPLES = 4  # at most 8 times the first texts
Watch = Callable[
    [Sequence[Batch]], Iterable[Batch]
]  # hands batches on, and may show how far they have come


@dataclass(frozen=True)
class Likeness:
    """How far any two heads look apart; rows and columns are the heads (layer, number), in order.

    `divergence` is the mean Jensen-Shannon divergence over texts in nats, from 0 (the same maps) to ln 2 (no key in
    common), and `error` its standard error.
    """

    heads: list[tuple[str, int]]
    divergence: Float[Tensor, "N N"]
    error: Float[Tensor, "N N"]

    def distance(self) -> Float[Tensor, "N N"]:
        """Return the square root of the divergence, a metric (Endres and Schindelin 2003), for clusters and pictures.

        The mean is of the divergence itself, as in Clark et al. 2019, section 6: nats add up over queries, roots do
        not.
        """
        return self.divergence.sqrt()


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that are no words of a text: `separators` such as [SEP]; `fixed` ones, [CLS] too, that are never hidden."""

    separators: tuple[int, ...]
    fixed: tuple[int, ...]

    def tokens_of(self, token_ids: Int[Tensor, "B T"], pairs: bool) -> Tokens:
        """Return what the tokens of a batch are, of pairs also which text each is of."""
        if pairs:
            return Tokens.of_pairs(token_ids, self.separators, self.fixed)
        return Tokens.of(token_ids, self.separators)


def special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the ids that a tokenizer puts around a text, whatever it calls them: [CLS] and [SEP], or <s> and </s>."""
    empty = tokenizer.encode("")
    ids = [
        number
        for number, is_special in zip(empty.ids, empty.special_tokens_mask, strict=True)
        if is_special
    ]
    return SpecialTokens(tuple(ids[1:]), tuple(ids))


@dataclass(frozen=True)
class Study:
    """What was found out."""

    numbers: Summary  # layer -> measure -> (means, standard errors), one of each per head
    faithfulness: Faithfulness | None  # None where no text has two words
    likeness: Likeness
    texts: int  # how many were measured
    verdicts: dict[Head, AblationEffect]  # whether each head matters

    def without_heads(self) -> dict[str, tuple[float, float]]:
        """Return by how much the loss rises without each head alone, in nats, and the standard error of that."""
        return {
            f"layer {layer} head {head}": found
            for layer, measures in enumerate(self.numbers.values())
            for head, found in enumerate(zip(*measures["loss_zeroed"], strict=True))
        }

    def extra(self) -> dict[str, np.ndarray]:
        """Return what belongs to no single head, as the record keeps it."""
        found = {"likeness": self.likeness.divergence.float().numpy()}
        if self.faithfulness is not None:
            # [measure, (mean, standard error)], measures in their order: comprehensiveness, sufficiency
            for name, both in self.faithfulness.choosers.items():
                found[f"faithfulness/{name}"] = np.array(list(both.values()), dtype=np.float32)
            paired = self.faithfulness.rollout_less_chance
            found["faithfulness/rollout_less_chance"] = np.array(paired, dtype=np.float32)
        return found | verdict_arrays(self.verdicts) | role_arrays(self.numbers)


def causes(
    model: nn.Module,
    batches: Sequence[Batch],
    special: SpecialTokens,
    shares: Sequence[float],
    objective: Objective = ONE_CLASS,
    watch: Watch = iter,
    more: Sequence[Sequence[Batch]] = (),
) -> Study:
    """Measure a sample of texts: patterns, ablation, gates, nats, likeness, and which tokens the prediction needs.

    Args:
        model: the classifier.
        batches: the sample, with classes.
        special: ids of tokens that are no words.
        shares: of a text's tokens, for `faithfulness`; fewer are faster.
        objective: what the labels are.
        watch: sees the batches pass by in `faithfulness`, by far the longest part.
        more: further texts, look by look, for the heads of which it cannot be said yet whether they matter.
    """
    patterns, likeness = measure_attention(model, batches, special)
    changes = ablated(model, batches, objective=objective)
    rises = {(name, head): values for name, measures in changes.items()
             for head, values in enumerate(measures["loss_zeroed"].unbind(dim=1))}  # fmt: skip
    verdicts = ablation_effects(model, rises, more, objective)
    effects: list[Summary] = [
        averaged(changes),
        rises_of(verdicts),
        gate_gradient(model, batches, objective),
    ]
    if attributable(model):
        put = mean_contributions(model, batches, objective).heads.unbind(
            dim=1
        )  # [N, H] of each layer
        named = zip(headed_layers(model), put, strict=True)
        effects.append({name: {"nats": mean_and_error(heads)} for name, heads in named})
    try:
        found = faithfulness(model, watch(batches), special.fixed, shares, objective=objective)
    except ValueError:  # texts of one word each: there is nothing to choose among
        found = None
    for effect in [*effects, {} if found is None else found.heads]:
        patterns = {layer: measures | effect.get(layer, {}) for layer, measures in patterns.items()}
    return Study(patterns, found, likeness, sum(len(batch.labels) for batch in batches), verdicts)


@dataclass(frozen=True)
class HeadContributions:
    """What every part put for the class that each of N texts is given, in nats: see `headscope.heads.contributions`.

    The constant is what is there whatever the text says; the rest is of each layer.
    """

    heads: Float[Tensor, "N L H"]
    feedforward: Float[Tensor, "N L"]
    constant: Float[Tensor, " N"]

    def facts(self) -> dict[str, object]:
        """Return the means over the texts as metrics.json has them, and how many texts there are."""
        means = {
            name: getattr(self, name).mean(dim=0).tolist()
            for name in ("heads", "feedforward", "constant")
        }
        return {"texts": len(self.heads), **means}


def mean_contributions(
    model: TextClassifier, batches: Iterable[Batch], objective: Objective
) -> HeadContributions:
    """Split the logit of the class that each text is most likely given, against the mean of classes (`class_direction`)."""
    parts = []
    for batch in batches:
        found = attribution(model, *moved(batch, device_of(model)).inputs, by_key=False)
        weights = class_direction(found.logits, objective)
        split = (found.heads, found.feedforward, found.constant)
        parts.append([torch.einsum("b...c,bc->b...", part, weights) for part in split])
    return HeadContributions(*(torch.cat(part) for part in zip(*parts, strict=True)))


def measure_attention(
    model: nn.Module, batches: Sequence[Batch], special: SpecialTokens
) -> tuple[Summary, Likeness]:
    """Return what every head looks at, and how far any two look apart."""
    statistics = HeadStatistics(MEASURES | RARE_MEASURES, TOKEN_MEASURES | RARE_TOKEN_MEASURES)
    likeness = HeadSimilarity()
    with eval_mode(model), torch.no_grad():
        for batch in batches:
            with capture(model, kind=HEADED) as maps:
                logits_of(model, batch)
            device = next(iter(maps.values())).device
            padding = None if batch.key_padding_mask is None else batch.key_padding_mask.to(device)
            tokens = special.tokens_of(batch.token_ids.to(device), batch.segment_ids is not None)
            for layer, weights in maps.items():
                statistics.update(layer, weights, padding, tokens)
            likeness.update(maps, padding)
    return statistics.summary(), likeness.summary()


class HeadSimilarity:
    """Collect the divergence of every pair of heads, batch by batch.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 with H the entropy in nats, of the two heads' rows p and q for one
    query; averaged over a text's queries, padding left out, then over texts (Clark et al. 2019, What Does BERT Look
    At?, section 6, sums instead). Costs a logarithm for each weight and pair of heads, so it is for a sample of texts.
    """

    def __init__(self) -> None:
        self._heads: list[tuple[str, int]] = []
        self._values: list[Float[Tensor, "B N N"]] = []

    def update(self, maps: Mapping[str, Maps], padding: Padding = None) -> None:
        """Count some texts in: the maps of every layer, from `capture`; ValueError if the heads have changed."""
        heads = [
            (layer, head) for layer, weights in maps.items() for head in range(weights.shape[1])
        ]
        if self._values and heads != self._heads:
            raise ValueError(f"expected the maps of {self._heads}, got {heads}")
        self._heads = heads
        self._values.append(divergences(torch.cat(list(maps.values()), dim=1), padding).cpu())

    def summary(self) -> Likeness:
        """Return means and standard errors over all texts; there must have been one."""
        values = torch.cat(self._values).double()
        texts = len(values)
        error = values.std(dim=0) / math.sqrt(texts) if texts > 1 else torch.zeros_like(values[0])
        return Likeness(self._heads, values.mean(dim=0), error)


def divergences(maps: Float[Tensor, "B N Q T"], padding: Padding = None) -> Float[Tensor, "B N N"]:
    """Return the mean over queries of JS(a_mi, a_ni), in nats, for any two heads m and n of each text."""
    B, N, _, _ = maps.shape
    own = row_entropy(maps)  # [B, N, Q]
    found = maps.new_zeros(B, N, N)
    for head in range(
        N - 1
    ):  # one head against all that follow, so that memory does not grow with their square
        others = slice(head + 1, N)
        mixed = row_entropy((maps[:, head : head + 1] + maps[:, others]) / 2)
        divergence = (mixed - (own[:, head : head + 1] + own[:, others]) / 2).clamp_min(
            0
        )  # below 0 by rounding alone
        found[:, head, others] = found[:, others, head] = mean_over_queries(divergence, padding)
    return found


def doubling_samples(
    batches: TextBatches, count: int, tokens_per_batch: int, seed: int
) -> list[list[Batch]]:
    """Return batches of `count` texts, then of as many again as there were before, up to LOOKS times; no text twice."""
    ends = [
        count * 2**look
        for look in range(MAX_SAMPLES)
        if look == 0 or count * 2 ** (look - 1) < len(batches.texts.lengths)
    ]
    return [
        sample(batches, end, tokens_per_batch, seed, begin) for begin, end in pairwise([0, *ends])
    ]


def sample(
    batches: TextBatches, count: int, tokens_per_batch: int, seed: int, first: int = 0
) -> list[Batch]:
    """Return batches of the `first` to the `count`-th of the texts in random order, or to the last."""
    total = len(batches.texts.lengths)
    rows = np.sort(np.random.default_rng(seed).permutation(total)[first:count])
    sampler = TokenBudgetSampler(batches.texts.lengths[rows], tokens_per_batch)
    return [batches[rows[chosen].tolist()] for chosen in sampler]
