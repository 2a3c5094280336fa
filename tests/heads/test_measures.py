"""Measures of maps whose answer is known: of texts, heads and pairs; roles."""

import math

import numpy as np
import pytest
import torch

from headscope.heads.measures import (
    MEASURES,
    PAIR_MEASURES,
    POOLING_MEASURES,
    TOKEN_MEASURES,
    HeadStatistics,
    SpecialTokens,
    Tokens,
    crossing_mass,
    role,
    role_arrays,
)
from headscope.record.schema import Text

B, H, T = 5, 2, 7
SPECIAL = SpecialTokens((3,), (2, 3))


def maps() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(B, H, T, T).softmax(-1)


def tokens() -> Tokens:
    return SPECIAL.tokens_of(torch.arange(B * T).view(B, T) % 4, pairs=False)


def test_means_and_standard_errors_over_texts_of_several_batches() -> None:
    statistics = HeadStatistics()
    statistics.update("layer", maps()[:3])
    statistics.update("layer", maps()[3:])
    summary = statistics.summary()["layer"]
    assert list(summary) == list(MEASURES)
    for name, measure in MEASURES.items():
        each = measure(maps(), None).double()
        means, errors = summary[name]
        assert means == pytest.approx(each.mean(0).tolist())
        assert errors == pytest.approx((each.std(0) / math.sqrt(B)).tolist())
    pooling = HeadStatistics(POOLING_MEASURES)  # one query, of one text
    pooling.update("pool", torch.full((1, 1, 1, T), 1 / T))
    means, errors = pooling.summary()["pool"]["entropy_share"]
    assert (means, errors) == (pytest.approx([1.0]), [0.0])


def test_tokens_and_pairs_bring_their_measures() -> None:
    statistics = HeadStatistics()
    statistics.update("layer", maps(), None, tokens())
    summary = statistics.summary()["layer"]
    assert set(summary) == {*MEASURES, *TOKEN_MEASURES}
    expected = TOKEN_MEASURES["separator"](maps(), None, tokens()).double().mean(0)
    assert summary["separator"][0] == pytest.approx(expected.tolist())
    pairs = SPECIAL.tokens_of(torch.tensor([2, 5, 6, 3, 7, 8, 3]).expand(B, T), pairs=True)
    statistics = HeadStatistics()
    statistics.update("layer", maps(), None, pairs)
    summary = statistics.summary()["layer"]
    assert set(summary) == {*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES}
    expected = crossing_mass(maps(), None, pairs).double().mean(0)
    assert summary["crossing"][0] == pytest.approx(expected.tolist())


# --- measures on maps made so that the answer is known ---


IDS = torch.tensor([[2, 5, 6, 5, 6, 5, 3]])  # [CLS] a b a b a [SEP]
TOKENS = SPECIAL.tokens_of(IDS, pairs=False)


def numbers(head: torch.Tensor, padding: torch.Tensor | None = None) -> dict[str, float]:
    return {
        name: measure(head[None, None], padding)[0, 0].item() for name, measure in MEASURES.items()
    }


def token_numbers(head: torch.Tensor) -> dict[str, float]:
    return {
        name: measure(head[None, None], None, TOKENS)[0, 0].item()
        for name, measure in TOKEN_MEASURES.items()
    }


def looking_at(keys: list[int]) -> torch.Tensor:
    return torch.eye(len(keys))[keys]


PREVIOUS = looking_at([0, 0, 1, 2, 3, 4, 5])
UNIFORM = torch.full((T, T), 1 / T)


def test_a_uniform_head() -> None:
    found = numbers(UNIFORM)
    assert found["entropy_share"] == pytest.approx(1)
    assert found["mean_distance"] == pytest.approx(
        sum(abs(i - j) for i in range(T) for j in range(T)) / T**2
    )
    assert found["self"] == found["first"] == pytest.approx(1 / T)
    assert found["previous"] == found["next"] == pytest.approx(1 / T)
    assert token_numbers(UNIFORM) == pytest.approx({"separator": 1 / T})


def test_a_head_that_looks_at_the_token_before() -> None:
    expected = {"entropy_share": 0, "mean_distance": (T - 1) / T, "self": 1 / T}
    expected |= {"previous": 1, "next": 0, "first": 2 / T}
    assert numbers(PREVIOUS) == pytest.approx(expected, abs=1e-6)


def test_of_a_layer_that_is_read_at_cls_its_row_alone_counts() -> None:
    """Whatever the other rows are: of a text with padding as of one without."""
    row = torch.tensor([0.1, 0.5, 0.1, 0.2, 0.1])
    padded = torch.cat([row, torch.zeros(2)])[None, None, None]  # [1, 1, 1, T]
    padding = (torch.arange(T) >= 5)[None]
    ids = torch.tensor([[2, 5, 6, 7, 3, 0, 0]])
    tokens = SPECIAL.tokens_of(ids, pairs=False)
    known = single(padded, padding, tokens)
    short_tokens = SPECIAL.tokens_of(ids[:, :5], pairs=False)
    assert known == pytest.approx(single(row[None, None, None], None, short_tokens))
    assert known["mean_distance"] == pytest.approx(0.5 + 0.2 + 0.6 + 0.4)
    expected = {"self": 0.1, "first": 0.1, "next": 0.5, "previous": 0, "separator": 0.1}
    assert {name: known[name] for name in expected} == pytest.approx(expected)
    assert role(known)[0] == "next token"
    pairs = SPECIAL.tokens_of(ids, pairs=True)
    assert crossing_mass(padded, padding, pairs).item() == 0  # [CLS] is of neither text


def single(maps: torch.Tensor, padding: torch.Tensor | None, tokens: Tokens) -> dict[str, float]:
    statistics = HeadStatistics()
    statistics.update("layer", maps, padding, tokens)
    return {name: means[0] for name, (means, _) in statistics.summary()["layer"].items()}


def test_heads_that_look_at_the_token_after_at_the_first_and_at_the_last() -> None:
    assert numbers(looking_at([1, 2, 3, 4, 5, 6, 6]))["next"] == pytest.approx(1)
    first, last = looking_at([0] * T), looking_at([T - 1] * T)
    assert numbers(first)["first"] == pytest.approx(1)
    assert numbers(first)["mean_distance"] == pytest.approx((T - 1) / 2)
    assert token_numbers(last) == pytest.approx({"separator": 1})


@pytest.mark.parametrize("name", [*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES])
@pytest.mark.parametrize("seed", range(5))
def test_padding_changes_no_number(name: str, seed: int) -> None:
    """A padded batch gives what each of its texts gives alone, whatever padding itself looks at."""
    torch.manual_seed(seed)
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
        alone.append(measured(name, weights, None, ids[row : row + 1, :n]))
    torch.testing.assert_close(
        measured(name, padded, padding, ids), torch.cat(alone), rtol=0, atol=1e-6
    )


def measured(
    name: str, maps: torch.Tensor, padding: torch.Tensor | None, ids: torch.Tensor
) -> torch.Tensor:
    if name in PAIR_MEASURES:
        return PAIR_MEASURES[name](maps, padding, SpecialTokens((3,), (3,)).tokens_of(ids, True))
    if name in TOKEN_MEASURES:
        return TOKEN_MEASURES[name](maps, padding, SPECIAL.tokens_of(ids, False))
    return MEASURES[name](maps, padding)


def test_the_shortest_text_there_is_gives_no_nan() -> None:
    for padding in (None, torch.tensor([[False]])):
        found = numbers(torch.ones(1, 1), padding)
        assert all(math.isfinite(value) for value in found.values())
        assert found["entropy_share"] == 0


# --- pairs ---

# [CLS] a b a [SEP] b [SEP], and <s> a </s></s> b a </s> with a different number of tokens
BERT_IDS, BERT_TEXTS = [2, 5, 6, 5, 3, 6, 3, 0], [-1, 0, 0, 0, -1, 1, -1, 1]  # the last is padding
ROBERTA_IDS, ROBERTA_TEXTS = [2, 5, 3, 3, 6, 5, 9, 3], [-1, 0, -1, -1, 1, 1, 1, -1]


def test_the_first_separator_ends_the_first_text() -> None:
    tokens = SPECIAL.tokens_of(torch.tensor([BERT_IDS, ROBERTA_IDS]), pairs=True)
    assert tokens.texts is not None
    assert tokens.texts.tolist() == [BERT_TEXTS, ROBERTA_TEXTS]
    assert tokens.rows([1]).texts.tolist() == [ROBERTA_TEXTS]  # type: ignore[union-attr]


@pytest.mark.parametrize("segments", [[0], [0, 1, 1], [0, 2], [0, -1], [0, 10**400]])
def test_segments_that_do_not_fit_are_named(segments: list[object]) -> None:
    with pytest.raises(
        ValueError, match="probe_0: segments: expected 0, 1 or None for each of 2 tokens"
    ):
        Text("probe_0", ["a", "b"], "", segments=segments)


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
