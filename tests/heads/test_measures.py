"""Measures of maps whose answer is known: of texts, heads and pairs; rollout; divergences."""

import math

import numpy as np
import pytest
import torch

from headscope.heads.faithfulness import received, rollout
from headscope.heads.measures import (
    MEASURES,
    PAIR_MEASURES,
    POOLING_MEASURES,
    RARE_MEASURES,
    RARE_TOKEN_MEASURES,
    TOKEN_MEASURES,
    Examples,
    HeadStatistics,
    SpecialTokens,
    Tokens,
    crossing_mass,
    position_only,
    role,
    role_arrays,
)
from headscope.heads.study import divergences
from headscope.record.pairs import between, quadrants
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
    means, errors = pooling.summary()["pool"]["entropy"]
    assert (means, errors) == (pytest.approx([math.log(T)]), [0.0])


def test_tokens_and_pairs_bring_their_measures_and_rare_ones_are_taken_if_asked() -> None:
    statistics = HeadStatistics(MEASURES | RARE_MEASURES, TOKEN_MEASURES | RARE_TOKEN_MEASURES)
    values = statistics.update("layer", maps(), None, tokens())
    all_token_measures = TOKEN_MEASURES | RARE_TOKEN_MEASURES
    assert set(values) == {*MEASURES, *RARE_MEASURES, *all_token_measures}
    for name, measure in all_token_measures.items():
        assert torch.equal(values[name], measure(maps(), None, tokens()))
    pairs = SPECIAL.tokens_of(torch.tensor([2, 5, 6, 3, 7, 8, 3]).expand(B, T), pairs=True)
    values = HeadStatistics().update("layer", maps(), None, pairs)
    assert set(values) == {*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES}
    assert torch.equal(values["crossing"], PAIR_MEASURES["crossing"](maps(), None, pairs))


def test_the_share_of_entropy_is_made_of_the_entropy_with_padding_too() -> None:
    padding = (torch.arange(T) >= 4).expand(B, -1)
    for mask in (None, padding):
        values = HeadStatistics().update("layer", maps(), mask)
        torch.testing.assert_close(values["entropy_share"], MEASURES["entropy_share"](maps(), mask))


# --- texts that stand out ---


def examples_of(weights: torch.Tensor, order: list[int] | None = None) -> Examples:
    examples, statistics = Examples(), HeadStatistics()
    rows = torch.tensor(order or list(range(len(weights))))
    for part in rows.split(2):
        lengths = torch.full_like(part, weights.shape[-1])
        examples.update("layer", 10 * part, lengths, statistics.update("layer", weights[part]))
    return examples


def planted(sharp: int) -> torch.Tensor:
    """Uniform heads, but for one text whose first head attends to one token alone."""
    weights = torch.full((B, H, T, T), 1 / T)
    weights[sharp, 0] = torch.eye(T)[0]
    return weights


def test_the_sharpest_texts_of_a_stream_are_those_of_all_at_once() -> None:
    torch.manual_seed(0)
    weights = torch.randn(50, H, T, T).softmax(-1)
    rows, scores = examples_of(weights, torch.randperm(50).tolist()).focused()["layer"]
    focus = 1 - MEASURES["entropy_share"](weights, None)
    expected, order = focus.sort(dim=0, descending=True)
    torch.testing.assert_close(scores, expected[:5])
    assert torch.equal(rows, 10 * order[:5])


def test_of_equal_texts_the_first_ones_stay_and_those_of_two_tokens_are_left_out() -> None:
    examples = Examples()
    values = {"entropy_share": torch.full((4, 1), 0.5)}
    lengths = torch.tensor([7, 2, 7, 3])
    examples.update("layer", torch.tensor([7, 1, 2, 3]), lengths, values)
    rows, scores = examples.focused()["layer"]
    assert (rows[:, 0].tolist(), scores[:, 0].tolist()) == ([7, 2, 3], [0.5] * 3)


def test_the_text_that_changed_most_comes_first_whatever_the_order() -> None:
    before = examples_of(planted(sharp=3), order=[4, 0, 3, 1, 2])
    rows, scores = examples_of(planted(sharp=1), order=[2, 1, 4, 3, 0]).changed(before)["layer"]
    assert {*rows[:2, 0].tolist()} == {10, 30}
    # The shares of that head went from 1/T (next, previous, self, first, last) and 1
    # (entropy_share) to what is below.
    sharp = {"self": 1 / T, "previous": 1 / (T - 1), "next": 0, "first": 1, "last": 0}
    differences = [-1, *(value - 1 / T for value in sharp.values())]
    expected = math.sqrt(sum(difference**2 for difference in differences) / 6)
    assert scores[0, 0].item() == pytest.approx(expected, abs=1e-5)
    assert scores[:, 1].tolist() == pytest.approx([0] * B)


def test_only_texts_of_both_records_can_change() -> None:
    now, values = Examples(), HeadStatistics().update("layer", planted(1)[:2])
    now.update("layer", torch.tensor([999, 10]), torch.tensor([T, T]), values)
    rows, _ = now.changed(examples_of(planted(3)))["layer"]
    assert rows[:, 0].tolist() == [10]
    assert now.changed(Examples()) == {}


# --- measures on maps made so that the answer is known ---


ALL_TOKEN_MEASURES = TOKEN_MEASURES | RARE_TOKEN_MEASURES

IDS = torch.tensor([[2, 5, 6, 5, 6, 5, 3]])  # [CLS] a b a b a [SEP]
TOKENS = SPECIAL.tokens_of(IDS, pairs=False)


def numbers(head: torch.Tensor, padding: torch.Tensor | None = None) -> dict[str, float]:
    return {
        name: measure(head[None, None], padding)[0, 0].item() for name, measure in MEASURES.items()
    }


def token_numbers(head: torch.Tensor) -> dict[str, float]:
    return {
        name: measure(head[None, None], None, TOKENS)[0, 0].item()
        for name, measure in ALL_TOKEN_MEASURES.items()
    }


def positional(head: torch.Tensor) -> float:
    return position_only(head[None, None])[0, 0].item()


def looking_at(keys: list[int]) -> torch.Tensor:
    return torch.eye(len(keys))[keys]


PREVIOUS = looking_at([0, 0, 1, 2, 3, 4, 5])
UNIFORM = torch.full((T, T), 1 / T)


def test_a_uniform_head() -> None:
    found = numbers(UNIFORM)
    assert found["entropy"] == pytest.approx(math.log(T))
    assert found["entropy_share"] == pytest.approx(1)
    assert found["mean_distance"] == pytest.approx(
        sum(abs(i - j) for i in range(T) for j in range(T)) / T**2
    )
    assert found["self"] == found["first"] == found["last"] == pytest.approx(1 / T)
    assert found["previous"] == found["next"] == pytest.approx(1 / T)
    assert token_numbers(UNIFORM) == pytest.approx(
        {"separator": 1 / T, "same_token": (3 * 2 + 2) / T**2}
    )
    assert positional(UNIFORM) == 0


def test_a_head_that_looks_at_the_token_before() -> None:
    expected = {"entropy": 0, "entropy_share": 0, "mean_distance": (T - 1) / T, "self": 1 / T}
    expected |= {"previous": 1, "next": 0, "first": 2 / T, "last": 0}
    assert numbers(PREVIOUS) == pytest.approx(expected, abs=1e-6)
    assert positional(PREVIOUS) == 1  # the first token, which has none before it, need not agree


def test_of_a_layer_that_is_read_at_cls_its_row_alone_counts() -> None:
    """Whatever the other rows are: of a text with padding as of one without."""
    row = torch.tensor([0.1, 0.5, 0.1, 0.2, 0.1])
    padded = torch.cat([row, torch.zeros(2)])[None, None, None]  # [1, 1, 1, T]
    padding = (torch.arange(T) >= 5)[None]
    ids = torch.tensor([[2, 5, 6, 7, 3, 0, 0]])
    tokens = SPECIAL.tokens_of(ids, pairs=False)
    measures = HeadStatistics(MEASURES | RARE_MEASURES, ALL_TOKEN_MEASURES)
    found = measures.update("layer", padded, padding, tokens)
    short = row[None, None, None]
    short_tokens = SPECIAL.tokens_of(ids[:, :5], pairs=False)
    for name, values in measures.update("layer", short, None, short_tokens).items():
        torch.testing.assert_close(found[name], values)
    known = {name: values.item() for name, values in found.items()}
    assert known["mean_distance"] == pytest.approx(0.5 + 0.2 + 0.6 + 0.4)
    expected = {"self": 0.1, "first": 0.1, "next": 0.5, "previous": 0, "last": 0.1}
    expected |= {"separator": 0.1, "same_token": 0, "position_only": 0}
    assert {name: known[name] for name in expected} == pytest.approx(expected)
    assert role(known)[0] == "next token"
    pairs = SPECIAL.tokens_of(ids, pairs=True)
    assert crossing_mass(padded, padding, pairs).item() == 0  # [CLS] is of neither text


def test_heads_that_look_at_the_token_after_at_the_first_and_at_the_last() -> None:
    assert numbers(looking_at([1, 2, 3, 4, 5, 6, 6]))["next"] == pytest.approx(1)
    first, last = looking_at([0] * T), looking_at([T - 1] * T)
    assert numbers(first)["first"] == numbers(last)["last"] == pytest.approx(1)
    assert numbers(first)["mean_distance"] == pytest.approx((T - 1) / 2)
    assert token_numbers(last) == pytest.approx({"separator": 1, "same_token": 0})
    assert positional(first) == positional(last) == 1


def test_a_head_that_looks_at_where_its_token_stands_once_more() -> None:
    found = token_numbers(looking_at([0, 3, 4, 5, 2, 1, 6]))
    # Five tokens are there twice or thrice.
    assert found == pytest.approx({"separator": 1 / T, "same_token": 5 / T})


def test_position_only_asks_for_nine_queries_in_ten() -> None:
    keys = [max(0, place - 2) for place in range(22)]  # 20 queries have a token two places before
    agreeing, differing = list(keys), list(keys)
    agreeing[5], agreeing[9] = 20, 21
    differing[5], differing[9], differing[12] = 20, 21, 20
    assert positional(looking_at(agreeing)) == 1
    assert positional(looking_at(differing)) == 0
    most_at_first = [0] * 18 + [7, 9]
    assert positional(looking_at(most_at_first)) == 1
    assert positional(looking_at([0] * 17 + [5, 7, 9])) == 0
    # One query alone has a token T - 1 places further: that is no rule.
    assert positional(looking_at([6, 4, 0, 1, 6, 2, 5])) == 0


@pytest.mark.parametrize("name", [*MEASURES, *RARE_MEASURES, *ALL_TOKEN_MEASURES, *PAIR_MEASURES])
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
    if name in ALL_TOKEN_MEASURES:
        return ALL_TOKEN_MEASURES[name](maps, padding, SPECIAL.tokens_of(ids, False))
    return (MEASURES | RARE_MEASURES)[name](maps, padding)


def test_the_shortest_text_there_is_gives_no_nan() -> None:
    for padding in (None, torch.tensor([[False]])):
        found = numbers(torch.ones(1, 1), padding)
        assert all(math.isfinite(value) for value in found.values())
        assert found["entropy_share"] == 0
        assert position_only(torch.ones(1, 1, 1, 1), padding).item() in (0, 1)


# --- pairs ---

# [CLS] a b a [SEP] b [SEP], and <s> a </s></s> b a </s> with a different number of tokens
BERT_IDS, BERT_TEXTS = [2, 5, 6, 5, 3, 6, 3, 0], [-1, 0, 0, 0, -1, 1, -1, 1]  # the last is padding
ROBERTA_IDS, ROBERTA_TEXTS = [2, 5, 3, 3, 6, 5, 9, 3], [-1, 0, -1, -1, 1, 1, 1, -1]


def test_the_first_separator_ends_the_first_text() -> None:
    tokens = SPECIAL.tokens_of(torch.tensor([BERT_IDS, ROBERTA_IDS]), pairs=True)
    assert tokens.texts is not None
    assert tokens.texts.tolist() == [BERT_TEXTS, ROBERTA_TEXTS]
    assert tokens.rows([1]).texts.tolist() == [ROBERTA_TEXTS]  # type: ignore[union-attr]


# --- what a map says of a pair of texts, held against loops written out ---


# [CLS] a a a [SEP] b b [SEP], and what tokenizers of other families do.
BERT = [None, 0, 0, 0, None, 1, 1, None]
ROBERTA = [None, 0, None, None, 1, 1, 1, None]
ONE_SPECIAL_INSIDE = [0, None, 0, 1, 1]
FORMS = [BERT, ROBERTA, ONE_SPECIAL_INSIDE, [0, 0, 1]]


def maps_of(tokens: int, heads: int = 3) -> np.ndarray:
    scores = np.exp(2 * np.random.default_rng(0).standard_normal((heads, tokens, tokens)))
    weights: np.ndarray = scores / scores.sum(axis=-1, keepdims=True)
    return weights


@pytest.mark.parametrize("segments", FORMS)
def test_the_four_shares_and_what_goes_between_are_those_of_the_loop(
    segments: list[int | None],
) -> None:
    weights = maps_of(len(segments))
    shares = quadrants(weights, segments)
    for head in range(3):
        sums: dict[tuple[int, int], list[float]] = {}  # (from, to) -> of each token
        for query, start in enumerate(segments):
            for end in (0, 1) if start is not None else ():
                row = [
                    weight
                    for weight, text in zip(weights[head, query], segments, strict=True)
                    if text == end
                ]
                sums.setdefault((start, end), []).append(sum(row))
        expected = [[np.mean(sums[start, end]) for end in (0, 1)] for start in (0, 1)]
        np.testing.assert_allclose(shares[head], expected, rtol=1e-12)
        across = np.mean([*sums[0, 1], *sums[1, 0]])
        assert between(weights, segments)[head] == pytest.approx(across)


def test_crossing_of_one_pair_is_between() -> None:
    weights = maps_of(len(BERT)).astype(np.float32)
    tokens = SPECIAL.tokens_of(torch.tensor([[2, 7, 8, 9, 3, 7, 8, 3]]), pairs=True)
    found = crossing_mass(torch.from_numpy(weights)[None], None, tokens)
    np.testing.assert_allclose(found[0], between(weights, BERT), rtol=1e-5)
    nothing = SPECIAL.tokens_of(torch.tensor([[2, 3, 3]]), pairs=True)
    assert crossing_mass(torch.full((1, 1, 3, 3), 1 / 3), None, nothing).item() == 0


def test_a_text_without_tokens_has_no_shares_and_nothing_goes_between() -> None:
    segments = [None, 0, 0, None, None]
    weights = maps_of(5)
    shares = quadrants(weights, segments)
    assert np.isnan(shares[:, 1]).all()
    np.testing.assert_allclose(shares[:, 0, 1], 0)
    assert between(weights, segments).tolist() == [0, 0, 0]
    assert between(weights, [None] * 5).tolist() == [0, 0, 0]


@pytest.mark.parametrize("segments", [[0], [0, 1, 1], [0, 2], [0, -1], [0, 10**400]])
def test_segments_that_do_not_fit_are_named(segments: list[object]) -> None:
    with pytest.raises(
        ValueError, match="probe_0: segments: expected 0, 1 or None for each of 2 tokens"
    ):
        Text("probe_0", ["a", "b"], "", segments=segments)


# --- rollout and received mass, by hand ---


def test_rollout_of_two_layers_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    second = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    assert received(first[None, None]).tolist() == [[[0.75, 0.25]]]
    # (A + I) / 2: [[1, 0], [1/4, 3/4]] and [[1/2, 1/2], [0, 1]]; the second times the first
    expected = torch.tensor([[[0.625, 0.375], [0.25, 0.75]]], dtype=torch.float64)
    torch.testing.assert_close(
        rollout([first[None, None], second[None, None]]), expected, rtol=0, atol=0
    )


def test_padding_changes_nothing_and_comes_out_as_zero() -> None:
    torch.manual_seed(0)
    short = [torch.randn(2, 3, 4, 4, dtype=torch.float64).softmax(-1) for _ in range(2)]
    padded = [torch.zeros(2, 3, 6, 6, dtype=torch.float64) for _ in range(2)]
    for whole, part in zip(padded, short, strict=True):
        whole[..., 4:, :] = 1 / 6  # what padding looks at
        whole[..., :4, :4] = part
    padding = (torch.arange(6) >= 4).expand(2, -1)
    found = rollout(padded, padding)
    torch.testing.assert_close(found[:, :4, :4], rollout(short), rtol=0, atol=1e-12)
    assert not found[:, 4:].any()
    assert not found[:, :, 4:].any()
    masses = received(padded[0], padding)
    torch.testing.assert_close(masses[..., :4], received(short[0]), rtol=0, atol=1e-12)
    assert not masses[..., 4:].any()


# --- how far heads are apart, where that is known ---


LENGTH = 6


def drawn(texts: int, heads: int, length: int = LENGTH) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(texts, heads, length, length, dtype=torch.float64).softmax(-1)


def test_a_head_is_like_itself_and_disjoint_heads_are_ln_2_apart() -> None:
    even = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
    odd = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
    even[:, ::2] = odd[:, 1::2] = 2 / LENGTH
    ln2 = math.log(2)
    expected = torch.tensor([[[0, ln2, 0], [ln2, 0, ln2], [0, ln2, 0]]], dtype=torch.float64)
    found = divergences(torch.stack([even, odd, even])[None])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_divergence_is_the_formula_summed_by_hand() -> None:
    weights = drawn(1, 2)
    total = 0.0
    for p, q in zip(weights[0, 0].tolist(), weights[0, 1].tolist(), strict=True):
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        for part in (p, q):
            total += sum(a * math.log(a / m) for a, m in zip(part, middle, strict=True)) / 2
    assert divergences(weights)[0, 0, 1].item() == pytest.approx(total / LENGTH)


def test_padding_changes_no_divergence() -> None:
    short, padded = drawn(2, 3), drawn(2, 3, LENGTH + 4)
    padded[..., :LENGTH, :] = 0
    padded[..., :LENGTH, :LENGTH] = short
    padding = (torch.arange(LENGTH + 4) >= LENGTH).expand(2, -1)
    torch.testing.assert_close(divergences(padded, padding), divergences(short), rtol=0, atol=1e-12)


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
