"""The work that is timed: made texts of given lengths, and how many operations they ask for."""

from dataclasses import dataclass

import numpy as np

from headscope.benchmark.config import BenchmarkConfig
from headscope.data.batching import Batch, TextBatches, TokenBudgetSampler
from headscope.data.token_ids import EncodedTexts

MEDIAN, SIGMA, LONGEST, SHORTEST = 60, 0.7, 256, 4  # tokens; lognormal
SPECIAL = 5  # ids below this one are the tokenizer's own


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder: D, H, L, width of the feed-forward layer, vocabulary, classes."""

    d_model: int = 256
    num_heads: int = 8
    num_layers: int = 4
    feedforward_size: int = 1024
    vocab_size: int = 4000
    num_classes: int = 4

    def operations(self, lengths: np.ndarray, training: bool) -> int:
        """Return floating-point operations for texts of these lengths, padding not counted.

        A layer multiplies each token with 4 D^2 + 2 D F weights, and each pair of tokens in 2 D multiply-adds, two
        operations each; the backward pass takes twice as many as the forward one (Kaplan et al. 2020, Scaling Laws
        for Neural Language Models, section 2.1). Embedding, norms, softmax, pooling and the classes are left out.
        """
        D, F, tokens, pairs = self.d_model, self.feedforward_size, int(lengths.sum()), int((lengths**2).sum())
        forward = 2 * self.num_layers * (tokens * (4 * D * D + 2 * D * F) + pairs * 2 * D)
        return forward * (3 if training else 1)


def sizes_of(config: BenchmarkConfig) -> Sizes:
    """Return the sizes that a benchmark's settings ask for, the feed-forward layer four times as wide as the model."""
    return Sizes(config.d_model, config.num_heads, config.num_layers, 4 * config.d_model)


def lognormal_lengths(count: int, seed: int = 0, longest: int = LONGEST) -> np.ndarray:
    """Return lengths in tokens: lognormal, median 60, sigma 0.7, cut to 4 and `longest`."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEDIAN), SIGMA, count)
    return np.clip(drawn.round().astype(np.int64), SHORTEST, longest)


def texts_of(lengths: np.ndarray, sizes: Sizes, seed: int = 0) -> TextBatches:
    """Return texts of random ids with these lengths and random labels."""
    random = np.random.default_rng(seed)
    ids = random.integers(SPECIAL, sizes.vocab_size, int(lengths.sum())).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    labels = random.integers(0, sizes.num_classes, len(lengths))
    return TextBatches(EncodedTexts(ids, starts, None, 0), labels)


def bucketed(texts: TextBatches, tokens_per_batch: int, seed: int = 0) -> list[Batch]:
    """Return an epoch of batches as training has them: texts of like length, to a budget of tokens."""
    return [texts[rows] for rows in TokenBudgetSampler(texts.texts.lengths, tokens_per_batch, seed)]


def shuffled(texts: TextBatches, texts_per_batch: int, seed: int = 0) -> list[Batch]:
    """Return an epoch of batches as a plain loader has them: any texts, padded to the longest of the batch."""
    order: list[int] = np.random.default_rng(seed).permutation(len(texts.texts.lengths)).tolist()
    return [texts[order[start : start + texts_per_batch]] for start in range(0, len(order), texts_per_batch)]
