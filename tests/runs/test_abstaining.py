"""Abstaining: confidence thresholds, and texts unlike those of training."""

import numpy as np
import pytest

from headscope.data.batching import encode_texts
from headscope.data.tokenizer import train_tokenizer
from headscope.ground.errors import ConfigError
from headscope.runs.abstaining import (
    accuracy_curve,
    least_confidence,
    most_unknown,
    unknown_share,
)
from headscope.settings.config import TokenizerConfig

CONFIDENCE = np.array([0.9, 0.6, 0.8, 0.7, 0.8])
IS_RIGHT = np.array([True, False, True, False, True])


def test_the_curve_counts_texts_of_one_confidence_together() -> None:
    assert accuracy_curve(CONFIDENCE, IS_RIGHT) == [
        (0.9, 1, 1),
        (0.8, 3, 3),
        (0.7, 4, 3),
        (0.6, 5, 3),
    ]


def test_a_target_takes_the_lowest_threshold_that_reaches_it() -> None:
    curve = accuracy_curve(CONFIDENCE, IS_RIGHT)
    assert least_confidence(curve, 1.0) == 0.8
    assert least_confidence(curve, 0.75) == 0.7


def test_an_impossible_target_names_the_best() -> None:
    curve = accuracy_curve(CONFIDENCE, ~IS_RIGHT)
    with pytest.raises(ConfigError, match=r"at most 0\.4000, the best on validation, got 0\.9"):
        least_confidence(curve, 0.9)


def test_a_text_is_unfamiliar_beyond_the_unknown_tokens_of_99_in_100_texts() -> None:
    words = ["the", "film", "was", "lovely", "and", "quite", "warm"]
    tokenizer = train_tokenizer(iter([" ".join(words)] * 3), TokenizerConfig(vocab_size=300))
    texts = [(" ".join([*words[:number], *["zzz"] * (4 - number)]),) for number in range(5)]
    encoded = encode_texts(tokenizer, [*texts, ("",)])
    assert unknown_share(tokenizer, encoded).tolist() == [1.0, 0.75, 0.5, 0.25, 0.0, 1.0]
    pairs = encode_texts(tokenizer, [("the zzz", "film"), ("", "")])
    assert unknown_share(tokenizer, pairs).tolist() == [1 / 3, 1.0]
    familiar = [texts[4]] * 148 + [texts[3]] + [texts[0]]
    assert most_unknown(tokenizer, encode_texts(tokenizer, familiar)) == 0.25
