"""Measures on maps made so that the answer is known."""

import math

import pytest
import torch

from headscope.inspection import measures
from headscope.inspection.measures import MEASURES, PAIR_MEASURES, RARE_MEASURES
from headscope.inspection.patterns import Tokens, crossing_mass, position_only

TOKEN_MEASURES = measures.TOKEN_MEASURES | measures.RARE_TOKEN_MEASURES

T = 7
IDS = torch.tensor([[2, 5, 6, 5, 6, 5, 3]])  # [CLS] a b a b a [SEP]
TOKENS = Tokens.of(IDS, [3])


def numbers(head: torch.Tensor, padding: torch.Tensor | None = None) -> dict[str, float]:
    return {name: measure(head[None, None], padding)[0, 0].item() for name, measure in MEASURES.items()}


def token_numbers(head: torch.Tensor) -> dict[str, float]:
    return {name: measure(head[None, None], None, TOKENS)[0, 0].item() for name, measure in TOKEN_MEASURES.items()}


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
    assert found["mean_distance"] == pytest.approx(sum(abs(i - j) for i in range(T) for j in range(T)) / T**2)
    assert found["self"] == found["first"] == found["last"] == pytest.approx(1 / T)
    assert found["previous"] == found["next"] == pytest.approx(1 / T)
    assert token_numbers(UNIFORM) == pytest.approx({"separator": 1 / T, "same_token": (3 * 2 + 2) / T**2})
    assert positional(UNIFORM) == 0


def test_a_head_that_looks_at_the_token_before() -> None:
    expected = {
        "entropy": 0, "entropy_share": 0, "mean_distance": (T - 1) / T, "self": 1 / T, "previous": 1, "next": 0,
        "first": 2 / T, "last": 0,
    }  # fmt: skip
    assert numbers(PREVIOUS) == pytest.approx(expected, abs=1e-6)
    assert positional(PREVIOUS) == 1  # the first token, which has none before it, need not agree


def test_heads_that_look_at_the_token_after_at_the_first_and_at_the_last() -> None:
    assert numbers(looking_at([1, 2, 3, 4, 5, 6, 6]))["next"] == pytest.approx(1)
    first, last = looking_at([0] * T), looking_at([T - 1] * T)
    assert numbers(first)["first"] == numbers(last)["last"] == pytest.approx(1)
    assert numbers(first)["mean_distance"] == pytest.approx((T - 1) / 2)
    assert token_numbers(last) == pytest.approx({"separator": 1, "same_token": 0})
    assert positional(first) == positional(last) == 1


def test_a_head_that_looks_at_where_its_token_stands_once_more() -> None:
    found = token_numbers(looking_at([0, 3, 4, 5, 2, 1, 6]))
    assert found == pytest.approx({"separator": 1 / T, "same_token": 5 / T})  # five tokens are there twice or thrice


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


def test_an_offset_that_few_queries_can_have_is_no_rule() -> None:
    """One query alone has a token T - 1 places further: that it looks there says nothing of the head."""
    assert positional(looking_at([6, 4, 0, 1, 6, 2, 5])) == 0


@pytest.mark.parametrize("name", [*MEASURES, *RARE_MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES])
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
    torch.testing.assert_close(measured(name, padded, padding, ids), torch.cat(alone), rtol=0, atol=1e-6)


def measured(name: str, maps: torch.Tensor, padding: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
    if name in PAIR_MEASURES:
        return PAIR_MEASURES[name](maps, padding, Tokens.of_pairs(ids, [3], [3]))
    if name in TOKEN_MEASURES:
        return TOKEN_MEASURES[name](maps, padding, Tokens.of(ids, [3]))
    return (MEASURES | RARE_MEASURES)[name](maps, padding)


def test_the_shortest_text_there_is_gives_no_nan() -> None:
    for padding in (None, torch.tensor([[False]])):
        found = numbers(torch.ones(1, 1), padding)
        assert all(math.isfinite(value) for value in found.values())
        assert found["entropy_share"] == 0
        assert position_only(torch.ones(1, 1, 1, 1), padding).item() in (0, 1)


def test_rows_of_tokens_are_those_of_the_texts() -> None:
    tokens = Tokens.of(torch.tensor([[1, 3], [3, 1], [1, 1]]), [3])
    assert tokens.rows([2, 0]).separators.tolist() == [[False, False], [False, True]]
    assert tokens.rows(slice(1, 2)).token_ids.tolist() == [[3, 1]]
    assert not Tokens.of(torch.tensor([[1, 3]]), []).separators.any()


# --- pairs ---

# [CLS] a b a [SEP] b [SEP], and <s> a </s></s> b a </s> with a different number of tokens
BERT_IDS, BERT_TEXTS = [2, 5, 6, 5, 3, 6, 3, 0], [-1, 0, 0, 0, -1, 1, -1, 1]  # the last is padding
ROBERTA_IDS, ROBERTA_TEXTS = [2, 5, 3, 3, 6, 5, 9, 3], [-1, 0, -1, -1, 1, 1, 1, -1]


def pairs() -> tuple[Tokens, torch.Tensor]:
    """Return the tokens of two pairs, and which of them are padding."""
    ids = torch.tensor([BERT_IDS, ROBERTA_IDS])
    return Tokens.of_pairs(ids, [3], [2, 3]), ids == 0


def test_the_first_separator_ends_the_first_text() -> None:
    tokens, _ = pairs()
    assert tokens.texts is not None
    assert tokens.texts.tolist() == [BERT_TEXTS, ROBERTA_TEXTS]
    assert tokens.rows([1]).texts.tolist() == [ROBERTA_TEXTS]  # type: ignore[union-attr]
    assert TOKENS.texts is None


def test_crossing_is_the_loop_written_out() -> None:
    torch.manual_seed(0)
    tokens, padding = pairs()
    maps = torch.randn(2, 3, 8, 8, dtype=torch.float64).masked_fill(padding[:, None, None], -torch.inf).softmax(-1)
    found = crossing_mass(maps, padding, tokens)
    for text, texts in enumerate((BERT_TEXTS, ROBERTA_TEXTS)):
        real = [place for place in range(8) if texts[place] >= 0 and not padding[text, place]]
        for head in range(3):
            given = [
                sum(maps[text, head, query, key].item() for key in real if texts[key] != texts[query]) for query in real
            ]
            assert found[text, head].item() == pytest.approx(sum(given) / len(given))


def test_crossing_of_planted_heads() -> None:
    tokens, padding = pairs()
    tokens = tokens.rows([1])  # <s> 5 </s></s> 6 5 9 </s>
    other, own = looking_at([0, 4, 2, 3, 1, 1, 1, 7]), looking_at([1, 1, 4, 5, 4, 6, 6, 1])
    separator = looking_at([3] * 8)
    for head, expected in ((other, 1), (own, 0), (separator, 0), (torch.full((8, 8), 1 / 8), 6 / 4 / 8)):
        assert crossing_mass(head[None, None], padding[1:], tokens).item() == pytest.approx(expected)


def test_crossing_asks_for_pairs() -> None:
    with pytest.raises(ValueError, match="a measure of pairs"):
        crossing_mass(UNIFORM[None, None], None, TOKENS)
    nothing = Tokens.of_pairs(torch.tensor([[2, 3, 3]]), [3], [2, 3])
    assert crossing_mass(torch.full((1, 1, 3, 3), 1 / 3), None, nothing).item() == 0
