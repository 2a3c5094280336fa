"""Measures of maps whose answer is known: of texts, heads and pairs; roles."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.batching import Batch
from headscope.heads.measures import (
    MEASURES,
    NEEDED,
    HeadStatistics,
    SpecialTokens,
    Tokens,
    role,
    role_arrays,
)

B, H, T = 5, 2, 7
SPECIAL = SpecialTokens((3,), (2, 3))
# [CLS] a b a b a [SEP], and a pair [CLS] a b [SEP] a b [SEP]
IDS = torch.tensor([[2, 5, 6, 5, 6, 5, 3]])
PAIR = torch.tensor([[2, 5, 6, 3, 7, 8, 3]])


def tokens_of(
    ids: torch.Tensor, padding: torch.Tensor | None = None, is_pair: bool = False
) -> Tokens:
    segments = torch.zeros_like(ids) if is_pair else None
    rows = torch.arange(len(ids))
    return SPECIAL.tokens_of(Batch(ids, padding, segments, rows, rows))


def looking_at(*keys: int) -> torch.Tensor:
    return torch.eye(T)[list(keys)]


# What is measured of a head [T, T]; the rest is 0.
UNIFORM = torch.full((T, T), 1 / T)
ALL_ALIKE = dict.fromkeys(("self", "previous", "next", "first", "separator"), 1 / T)
DISTANCE = sum(abs(i - j) for i in range(T) for j in range(T)) / T**2
HEADS: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {
    "uniform": (UNIFORM, ALL_ALIKE | {"entropy_share": 1, "mean_distance": DISTANCE}),
    "the token before": (
        looking_at(0, 0, 1, 2, 3, 4, 5),
        {"mean_distance": (T - 1) / T, "self": 1 / T, "previous": 1, "first": 2 / T},
    ),
    "the token after": (
        looking_at(1, 2, 3, 4, 5, 6, 6),
        {"mean_distance": (T - 1) / T, "self": 1 / T, "next": 1, "separator": 2 / T},
    ),
    "the first": (
        looking_at(*[0] * T),
        {"mean_distance": 3, "self": 1 / T, "previous": 1 / 6, "first": 1},
    ),
    "the last": (
        looking_at(*[6] * T),
        {"mean_distance": 3, "self": 1 / T, "next": 1 / 6, "separator": 1},
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_has_the_numbers_that_its_map_says(name: str) -> None:
    head, expected = HEADS[name]
    found = numbers(head, tokens_of(IDS))
    assert found == pytest.approx(dict.fromkeys(found, 0) | expected, abs=1e-6)


def numbers(rows: torch.Tensor, tokens: Tokens) -> dict[str, float]:
    statistics = HeadStatistics()
    statistics.update("layer", rows[None, None], tokens)
    return {name: means[0] for name, (means, _) in statistics.summary()["layer"].items()}


def test_means_and_standard_errors_over_texts_of_several_batches() -> None:
    maps = torch.randn(B, H, T, T, generator=torch.manual_seed(0)).softmax(-1)
    pairs = tokens_of(PAIR.expand(B, T), is_pair=True)
    statistics = HeadStatistics()
    for rows in (slice(3), slice(3, B)):
        statistics.update("layer", maps[rows], pairs.rows(rows))
    summary = statistics.summary()["layer"]
    assert list(summary) == list(MEASURES)
    for name, measure in MEASURES.items():
        each = measure(maps, pairs).double()
        means, errors = summary[name]
        assert means == pytest.approx(each.mean(0).tolist())
        assert errors == pytest.approx((each.std(0) / math.sqrt(B)).tolist())
    single = numbers(maps[0, 0], Tokens())
    assert set(single) == set(MEASURES) - set(NEEDED), "nothing is known of the tokens"


def test_of_a_layer_that_is_read_at_cls_its_row_alone_counts() -> None:
    """Whatever the other rows are: of a text with padding as of one without."""
    row = torch.tensor([[0.1, 0.5, 0.1, 0.2, 0.1]])  # [1, T]
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    padding = (torch.arange(T) >= 5)[None]
    padded = tokens_of(torch.nn.functional.pad(ids, (0, 2)), padding)
    known = numbers(torch.nn.functional.pad(row, (0, 2)), padded)
    assert known == pytest.approx(numbers(row, tokens_of(ids)))
    expected = {"self": 0.1, "first": 0.1, "next": 0.5, "previous": 0, "separator": 0.1}
    expected["mean_distance"] = 0.5 + 0.2 + 0.6 + 0.4
    assert {name: known[name] for name in expected} == pytest.approx(expected)
    assert role(known)[0] == "next token"
    pair = numbers(row, tokens_of(ids, is_pair=True))
    assert pair["crossing"] == 0  # [CLS] is of neither text


@pytest.mark.parametrize("name", MEASURES)
def test_padding_changes_no_number(name: str) -> None:
    """A padded batch gives what each of its texts gives alone, whatever padding itself looks at."""
    torch.manual_seed(0)
    lengths, H, longest = torch.randint(1, 12, (6,)).tolist(), 3, 13
    padded = torch.rand(6, H, longest, longest, dtype=torch.float64).softmax(-1)
    ids = torch.randint(0, 4, (6, longest))
    padding = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    alone = []
    for row, n in enumerate(lengths):
        weights = (9 * torch.randn(1, H, n, n, dtype=torch.float64)).softmax(-1)
        weights[:, 0] = torch.eye(n)[(torch.arange(n) + 1).clamp(max=n - 1)]
        padded[row, :, :n] = 0
        padded[row, :, :n, :n] = weights
        alone.append(MEASURES[name](weights, tokens_of(ids[row : row + 1, :n], is_pair=True)))
    found = MEASURES[name](padded, tokens_of(ids, padding, is_pair=True))
    torch.testing.assert_close(found, torch.cat(alone), rtol=0, atol=1e-6)


def test_the_shortest_text_there_is_gives_no_nan() -> None:
    for padding in (None, torch.tensor([[False]])):
        found = numbers(torch.ones(1, 1), tokens_of(torch.tensor([[2]]), padding))
        assert all(math.isfinite(value) for value in found.values())
        assert found["entropy_share"] == 0


# --- pairs ---


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([2, 5, 6, 5, 3, 6, 3, 0], [-1, 0, 0, 0, -1, 1, -1, 1]),  # BERT's; the last is padding
        ([2, 5, 3, 3, 6, 5, 9, 3], [-1, 0, -1, -1, 1, 1, 1, -1]),  # RoBERTa's
    ],
)
def test_the_first_separator_ends_the_first_text(ids: list[int], texts: list[int]) -> None:
    found = tokens_of(torch.tensor([ids]), is_pair=True).texts
    assert found is not None
    assert found.tolist() == [texts]


# --- roles ---


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"first": 0.5, "previous": 0.9, "entropy_share": 0.95}, ("first-token sink", 0.5)),
        ({"first": 0.1, "previous": 0.45, "entropy_share": 0.8}, ("previous token", 0.45)),
        ({"first": 0.1, "entropy_share": 0.95}, ("broad", 0.95)),
        ({"first": 0.1, "entropy_share": 0.2}, ("focused", 0.8)),
        (
            {"first": 0.3, "entropy_share": 0.6},
            ("no clear pattern", 0.3),
        ),  # 0.75 of its rule; broad 0.67
        ({}, ("no clear pattern", 0.0)),
    ],
)
def test_a_role_is_never_left_blank(numbers: dict[str, float], expected: tuple[str, float]) -> None:
    assert role(numbers) == (expected[0], pytest.approx(expected[1]))


def test_roles_of_layers_with_different_numbers_of_heads() -> None:
    summary = {"a": {"first": ([0.9, 0.1], [0.0, 0.0])}, "b": {"first": ([0.2], [0.0])}}
    arrays = role_arrays(summary)  # type: ignore[arg-type]
    assert arrays["roles"].tolist() == [
        ["first-token sink", "no clear pattern"],
        ["no clear pattern", ""],
    ]
    np.testing.assert_allclose(arrays["roles/score"], [[0.9, 0.1], [0.2, np.nan]], rtol=1e-6)
