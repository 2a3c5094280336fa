"""What a map says of a pair of texts, held against loops written out."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from headscope.inspection.pairs import between, check_segments, numbers_of_pair, quadrants
from headscope.inspection.patterns import Tokens, crossing_mass

# [CLS] a a a [SEP] b b [SEP], and what tokenizers of other families do.
BERT = [None, 0, 0, 0, None, 1, 1, None]
ROBERTA = [None, 0, None, None, 1, 1, 1, None]
ONE_SPECIAL_INSIDE = [0, None, 0, 1, 1]
FORMS = [BERT, ROBERTA, ONE_SPECIAL_INSIDE, [0, 0, 1]]


def maps(tokens: int, heads: int = 3, seed: int = 0) -> np.ndarray:
    scores = np.exp(2 * np.random.default_rng(seed).standard_normal((heads, tokens, tokens)))
    weights: np.ndarray = scores / scores.sum(axis=-1, keepdims=True)
    return weights


def looped(weights: np.ndarray, segments: Sequence[int | None], start: int, end: int) -> float:
    """Return what a token of one text gives to the tokens of another, mean over the tokens of the first."""
    sums = []
    for query, text in enumerate(segments):
        if text == start:
            sums.append(sum(weights[query, key] for key, other in enumerate(segments) if other == end))
    return float(np.mean(sums))


@pytest.mark.parametrize("segments", FORMS)
def test_the_four_shares_are_those_of_the_loop(segments: list[int | None]) -> None:
    weights = maps(len(segments))
    shares = quadrants(weights, segments)
    assert shares.shape == (3, 2, 2)
    for head in range(3):
        expected = [[looped(weights[head], segments, start, end) for end in (0, 1)] for start in (0, 1)]
        np.testing.assert_allclose(shares[head], expected, rtol=1e-12)
    np.testing.assert_array_equal(quadrants(weights[1], segments), shares[1])
    if None not in segments:
        np.testing.assert_allclose(shares.sum(axis=-1), 1)


@pytest.mark.parametrize("segments", FORMS)
def test_between_is_the_mean_over_the_tokens_of_both_texts(segments: list[int | None]) -> None:
    weights = maps(len(segments))
    for head, found in enumerate(between(weights, segments)):
        given = [
            sum(weights[head, query, key] for key, other in enumerate(segments) if other == 1 - text)
            for query, text in enumerate(segments)
            if text is not None
        ]
        assert found == pytest.approx(np.mean(given))
    assert numbers_of_pair(weights[0], segments) == {"between": pytest.approx(between(weights, segments)[0])}
    assert numbers_of_pair(weights[0], None) == {}


def test_crossing_of_one_pair_is_between() -> None:
    weights = maps(len(BERT)).astype(np.float32)
    tokens = Tokens.of_pairs(torch.tensor([[2, 7, 8, 9, 3, 7, 8, 3]]), [3], [2, 3])
    found = crossing_mass(torch.from_numpy(weights)[None], None, tokens)
    np.testing.assert_allclose(found[0], between(weights, BERT), rtol=1e-5)


def test_a_text_without_tokens_has_no_shares_and_nothing_goes_between() -> None:
    segments = [None, 0, 0, None, None]
    weights = maps(5)
    shares = quadrants(weights, segments)
    assert np.isnan(shares[:, 1]).all()
    np.testing.assert_allclose(shares[:, 0, 1], 0)
    assert between(weights, segments).tolist() == [0, 0, 0]
    assert between(weights, [None] * 5).tolist() == [0, 0, 0]


def test_segments_become_plain_numbers() -> None:
    found = check_segments([None, np.int64(0), 1.0, True], 4, "t")
    assert found == [None, 0, 1, 1]
    assert [type(segment) for segment in found[1:]] == [int, int, int]


@pytest.mark.parametrize(
    "segments", [[0], [0, 1, 1], [0, 2], [0, -1], ["0", 1], "01", [[0], 1], [0, 0.5], [0, 10**400]]
)
def test_segments_that_do_not_fit_are_named(segments: Sequence[object]) -> None:
    with pytest.raises(ValueError, match="probe_0: segments has to be 0, 1 or None for each of the 2 tokens"):
        check_segments(segments, 2, "probe_0")
