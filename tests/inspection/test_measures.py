"""Numbers of many texts: their means and errors, and the texts that stand out."""

import math

import pytest
import torch

from headscope.inspection.measures import (
    MEASURES,
    PAIR_MEASURES,
    POOLING_MEASURES,
    RARE_MEASURES,
    RARE_TOKEN_MEASURES,
    SHARES,
    TOKEN_MEASURES,
    Examples,
    HeadStatistics,
    TopTexts,
)
from headscope.inspection.patterns import Tokens

B, H, T = 5, 2, 7


def maps() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(B, H, T, T).softmax(-1)


def tokens() -> Tokens:
    return Tokens.of(torch.arange(B * T).view(B, T) % 4, [3])


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


def test_one_text_has_no_error() -> None:
    statistics = HeadStatistics()
    statistics.update("layer", maps()[:1])
    assert statistics.summary()["layer"]["self"][1] == [0.0] * H


def test_tokens_bring_their_measures_and_rare_ones_are_taken_if_asked() -> None:
    statistics = HeadStatistics(MEASURES | RARE_MEASURES, TOKEN_MEASURES | RARE_TOKEN_MEASURES)
    values = statistics.update("layer", maps(), None, tokens())
    assert set(statistics.summary()["layer"]) == {*MEASURES, *RARE_MEASURES, *TOKEN_MEASURES, *RARE_TOKEN_MEASURES}
    for name, measure in (TOKEN_MEASURES | RARE_TOKEN_MEASURES).items():
        assert torch.equal(values[name], measure(maps(), None, tokens()))
    assert set(SHARES) - set(PAIR_MEASURES) <= set(values)
    assert "crossing" not in values


def test_pairs_bring_theirs_as_well() -> None:
    statistics = HeadStatistics()
    pairs = Tokens.of_pairs(torch.tensor([2, 5, 6, 3, 7, 8, 3]).expand(B, T), [3], [2, 3])
    values = statistics.update("layer", maps(), None, pairs)
    assert set(statistics.summary()["layer"]) == {*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES}
    assert torch.equal(values["crossing"], PAIR_MEASURES["crossing"](maps(), None, pairs))
    assert (values["crossing"] > 0).all()


def test_a_pooling_has_one_query() -> None:
    statistics = HeadStatistics(POOLING_MEASURES)
    statistics.update("pool", torch.full((B, 1, 1, T), 1 / T))
    assert statistics.summary()["pool"]["entropy"][0] == pytest.approx([math.log(T)])


def test_the_share_of_entropy_is_made_of_the_entropy_with_padding_too() -> None:
    padding = (torch.arange(T) >= 4).expand(B, -1)
    for mask in (None, padding):
        values = HeadStatistics().update("layer", maps(), mask)
        torch.testing.assert_close(values["entropy_share"], MEASURES["entropy_share"](maps(), mask))


# --- texts that stand out ---


def test_top_texts_of_a_stream_are_those_of_all_at_once() -> None:
    torch.manual_seed(0)
    scores, texts, top = torch.rand(50, H), torch.randperm(50), TopTexts(5)
    for start in range(0, 50, 8):
        top.update(texts[start : start + 8], scores[start : start + 8])
    for head in range(H):
        order = scores[:, head].argsort(descending=True)[:5]
        assert top.best()[head] == list(zip(texts[order].tolist(), scores[order, head].tolist(), strict=True))


def test_fewer_texts_than_asked_for_none_and_ties() -> None:
    top = TopTexts(3)
    assert top.best() == []
    top.update(torch.tensor([7]), torch.tensor([[0.5]]))
    assert top.best() == [[(7, 0.5)]]
    top.update(torch.tensor([1, 2, 3]), torch.full((3, 1), 0.5))
    assert [text for text, _ in top.best()[0]] == [7, 1, 2]


def planted(sharp: int) -> torch.Tensor:
    """Uniform heads, but for one text whose first head looks at one token alone."""
    weights = torch.full((B, H, T, T), 1 / T)
    weights[sharp, 0] = torch.eye(T)[0]
    return weights


def examples_of(weights: torch.Tensor, before: Examples | None = None, order: list[int] | None = None) -> Examples:
    examples, statistics = Examples(2, before), HeadStatistics()
    rows = torch.tensor(order or list(range(B)))
    for part in (slice(0, 2), slice(2, B)):
        examples.update("layer", 10 * rows[part], statistics.update("layer", weights[rows[part]]))
    return examples


def test_the_sharpest_text_comes_first() -> None:
    (text, focus), (_, other) = examples_of(planted(sharp=3)).focused["layer"].best()[0]
    assert (text, focus) == (30, pytest.approx(1))
    assert other == pytest.approx(0, abs=1e-5)


def test_the_text_that_changed_most_comes_first_whatever_the_order() -> None:
    before = examples_of(planted(sharp=3), order=[4, 0, 3, 1, 2])
    now = examples_of(planted(sharp=1), before, order=[2, 1, 4, 3, 0])
    best = now.changed["layer"].best()
    assert {text for text, _ in best[0]} == {10, 30}
    # The shares of that head went from 1/T (next, previous, self, first, last) and 1 (entropy_share) to what is below.
    sharp = {"entropy_share": 0, "self": 1 / T, "previous": 1 / (T - 1), "next": 0, "first": 1, "last": 0}
    differences = [value - (1 if name == "entropy_share" else 1 / T) for name, value in sharp.items()]
    assert best[0][0][1] == pytest.approx(math.sqrt(sum(d**2 for d in differences) / 6), abs=1e-5)
    assert [change for _, change in best[1]] == pytest.approx([0, 0])
    assert before.changed == {}


def test_only_texts_of_both_records_can_change() -> None:
    before, now = Examples(), Examples(before=examples_of(planted(3)))
    values = HeadStatistics().update("layer", planted(1)[:2])
    before.update("layer", torch.tensor([999, 10]), values)
    now.update("layer", torch.tensor([999, 10]), values)
    assert [text for text, _ in now.changed["layer"].best()[0]] == [10]
    assert Examples(before=Examples()).changed == {}


def test_texts_of_two_tokens_do_not_compete() -> None:
    examples = Examples()
    values = HeadStatistics().update("layer", planted(sharp=3))
    examples.update("layer", torch.arange(B), values, lengths=torch.tensor([7, 7, 7, 2, 7]))
    assert 3 not in [text for text, _ in examples.focused["layer"].best()[0]]
