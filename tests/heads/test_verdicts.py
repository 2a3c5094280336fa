"""Whether a head matters is said only where the texts suffice, and its role is never left blank."""

from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.batching import Batch
from headscope.heads import effects as verdicts
from headscope.heads.effects import (
    MATTERS,
    NOTHING,
    UNKNOWN,
    ablation_effects,
    answer,
    role,
    role_arrays,
    verdict,
)

RANDOM = np.random.default_rng(7)


def rises(mean: float, spread: float, texts: int) -> list[float]:
    values = RANDOM.normal(size=texts)
    return (mean + spread * (values - values.mean()) / values.std(ddof=1)).tolist()


@pytest.mark.parametrize(
    ("mean", "spread", "texts", "said"),
    [
        (0.4, 0.5, 101, MATTERS),
        (-0.4, 0.5, 101, MATTERS),  # it does harm
        (0.0, 0.03, 101, NOTHING),
        (0.004, 0.02, 401, NOTHING),  # surely above 0, and surely too small to count
        (0.02, 0.5, 101, UNKNOWN),
        (0.011, 0.01, 101, UNKNOWN),  # surely above 0, but perhaps below what counts
        (0.4, 0.0, 29, UNKNOWN),  # the same for all texts, of which there are too few
        (0.0, 0.0, 29, UNKNOWN),
    ],
)
def test_three_verdicts(mean: float, spread: float, texts: int, said: int) -> None:
    found = verdict(rises(mean, spread, texts))
    assert found.verdict == said
    assert (found.rise, found.error, found.texts) == pytest.approx(
        (mean, spread / texts**0.5, texts), abs=1e-9
    )


def test_more_tests_ask_for_more() -> None:
    values = rises(0.1, 0.4, 101)  # 2.26 errors beyond what counts
    assert (verdict(values).verdict, verdict(values, tests=100).verdict) == (MATTERS, UNKNOWN)


def test_chance_alone_rarely_makes_a_head_matter() -> None:
    alarms = sum(
        any(
            verdict(RANDOM.normal(0.01, 0.3, 60).tolist(), tests=8).verdict != UNKNOWN
            for _ in range(8)
        )
        for _ in range(200)
    )
    assert alarms / 200 <= 0.08  # 0.05 is promised for a head that lies on the limit


def test_only_heads_that_are_not_decided_are_measured_on_more_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {
        ("a", 0): rises(0.5, 0.5, 100),
        ("a", 1): rises(0.03, 0.3, 100),
        ("b", 0): rises(0.0, 0.01, 100),
    }
    seen: list[Any] = []

    def without(_: Any, batches: Any, head: tuple[str, int], __: Any) -> torch.Tensor:
        seen.append((batches, head))
        return torch.tensor(rises(0.3, 0.3, 100)) + 1

    monkeypatch.setattr(verdicts, "losses", lambda *_: torch.ones(100))
    monkeypatch.setattr(verdicts, "losses_without", without)
    more: list[list[Batch]] = [[], [], []]
    found = ablation_effects(
        torch.nn.Identity(), {head: torch.tensor(values) for head, values in first.items()}, more
    )
    assert [head for _, head in seen] == [("a", 1)]
    assert [(each.verdict, each.texts) for each in found.values()] == [
        (MATTERS, 100),
        (MATTERS, 200),
        (NOTHING, 100),
    ]
    assert answer(found) == (
        "2 of 3 heads matter: ablating layer 0 head 0 raises the loss by 0.50 ± 0.05 nats;"
        " 1 has no effect"
    )


def test_heads_that_are_inconclusive_are_counted() -> None:
    found = {("a", 0): verdict(rises(-0.5, 0.5, 100)), ("a", 1): verdict(rises(0.02, 0.5, 64))}
    assert answer(found) == (
        "1 of 2 heads matters: ablating layer 0 head 0 lowers the loss by 0.50 ± 0.05 nats;"
        " 1 is inconclusive (64 texts)"
    )
    open_heads = {head: verdict(rises(0.02, 0.5, 64)) for head in found}
    assert answer(open_heads) == "Ablating any single head is inconclusive (64 texts)"


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
    assert role_arrays({}) == {}
