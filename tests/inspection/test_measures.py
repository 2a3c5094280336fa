"""Numbers per head on maps made so that the answer is known."""

import math

import pytest
import torch

from headscope.inspection.measures import MEASURES, HeadStatistics

T = 7


def numbers(head: torch.Tensor, padding: torch.Tensor | None = None) -> dict[str, float]:
    return {name: measure(head[None, None], padding)[0, 0].item() for name, measure in MEASURES.items()}


def test_a_uniform_head() -> None:
    found = numbers(torch.full((T, T), 1 / T))
    assert found["entropy"] == pytest.approx(math.log(T))
    assert found["mean_distance"] == pytest.approx(sum(abs(i - j) for i in range(T) for j in range(T)) / T**2)
    assert found["self"] == found["first"] == pytest.approx(1 / T)
    assert found["previous"] == found["next"] == pytest.approx(1 / T)


def test_a_head_that_looks_at_the_token_before() -> None:
    head = torch.zeros(T, T)
    head[range(1, T), range(T - 1)] = 1
    head[0, 0] = 1
    found = numbers(head)
    assert found == pytest.approx(
        {"entropy": 0, "mean_distance": (T - 1) / T, "self": 1 / T, "previous": 1, "next": 0, "first": 2 / T}, abs=1e-6
    )


def test_a_head_that_looks_at_the_token_after_and_one_that_looks_at_the_first() -> None:
    following = torch.zeros(T, T)
    following[range(T - 1), range(1, T)] = 1
    following[T - 1, T - 1] = 1
    assert numbers(following)["next"] == pytest.approx(1)
    first = torch.zeros(T, T)
    first[:, 0] = 1
    assert numbers(first)["first"] == pytest.approx(1)
    assert numbers(first)["mean_distance"] == pytest.approx((T - 1) / 2)


@pytest.mark.parametrize("name", MEASURES)
def test_padding_is_left_out(name: str) -> None:
    torch.manual_seed(0)
    alone = torch.rand(2, 3, T, T).softmax(-1)
    padded = torch.zeros(2, 3, T + 4, T + 4)
    padded[..., :T, :T] = alone
    padded[..., T:, :] = 1 / T  # what padding looks at must not count
    padding = (torch.arange(T + 4) >= T).expand(2, -1)
    torch.testing.assert_close(MEASURES[name](padded, padding), MEASURES[name](alone, None))


def test_the_shortest_text_there_is_gives_no_nan() -> None:
    assert all(math.isfinite(value) for value in numbers(torch.ones(1, 1)).values())
    assert all(math.isfinite(value) for value in numbers(torch.ones(1, 1), torch.tensor([[False]])).values())


def test_means_and_standard_errors_over_texts_of_several_batches() -> None:
    torch.manual_seed(0)
    maps = torch.rand(5, 2, T, T).softmax(-1)
    statistics = HeadStatistics()
    statistics.update("layer", maps[:3])
    statistics.update("layer", maps[3:])
    means, errors = statistics.summary()["layer"]["entropy"]
    each = MEASURES["entropy"](maps, None).double()
    assert means == pytest.approx(each.mean(0).tolist())
    assert errors == pytest.approx((each.std(0) / math.sqrt(5)).tolist())
