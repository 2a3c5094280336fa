"""How alike heads are, where that is known."""

import math

import pytest
import torch

from headscope.inspection.likeness import HeadLikeness, divergences

T = 6


def drawn(texts: int, heads: int, length: int = T) -> torch.Tensor:
    return torch.randn(texts, heads, length, length, dtype=torch.float64).softmax(-1)


def test_a_head_is_like_itself_and_disjoint_heads_are_ln_2_apart() -> None:
    even, odd = torch.zeros(T, T, dtype=torch.float64), torch.zeros(T, T, dtype=torch.float64)
    even[:, ::2], odd[:, 1::2] = 2 / T, 2 / T
    likeness = HeadLikeness()
    likeness.update({"a": torch.stack([even, odd])[None], "b": even[None, None]})
    found = likeness.summary()
    assert found.heads == [("a", 0), ("a", 1), ("b", 0)]
    ln2 = math.log(2)
    expected = torch.tensor([[0, ln2, 0], [ln2, 0, ln2], [0, ln2, 0]], dtype=torch.float64)
    torch.testing.assert_close(found.divergence, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.distance(), expected.sqrt(), rtol=0, atol=1e-6)


def test_divergence_is_the_formula_summed_by_hand() -> None:
    torch.manual_seed(0)
    weights = drawn(1, 2)
    total = 0.0
    for p, q in zip(weights[0, 0].tolist(), weights[0, 1].tolist(), strict=True):
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        for part in (p, q):
            total += sum(a * math.log(a / m) for a, m in zip(part, middle, strict=True)) / 2
    assert divergences(weights)[0, 0, 1].item() == pytest.approx(total / T)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    short, padded = drawn(2, 3), drawn(2, 3, T + 4)
    padded[..., :T, :] = 0
    padded[..., :T, :T] = short
    padding = (torch.arange(T + 4) >= T).expand(2, -1)
    torch.testing.assert_close(divergences(padded, padding), divergences(short), rtol=0, atol=1e-12)


def test_batches_add_up_and_errors_are_over_texts() -> None:
    torch.manual_seed(0)
    maps, likeness = drawn(5, 3), HeadLikeness()
    for part in (maps[:2], maps[2:]):
        likeness.update({"a": part[:, :1], "b": part[:, 1:]})
    each, found = divergences(maps), likeness.summary()
    torch.testing.assert_close(found.divergence, each.mean(0))
    torch.testing.assert_close(found.error, each.std(0) / math.sqrt(5))
    assert torch.equal(found.divergence, found.divergence.T)
    with pytest.raises(ValueError, match="expected the maps of"):
        likeness.update({"a": maps})


def test_of_one_text_the_error_is_zero() -> None:
    likeness = HeadLikeness()
    likeness.update({"a": drawn(1, 2).float()})
    assert not likeness.summary().error.any()
