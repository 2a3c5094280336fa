"""The answer and the sets of heads: planted heads are named, and chance alone is not."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from torch import nn

from heads.planted import N, Planted, texts
from headscope.heads.answer import accuracy_change, answer, paired_interval
from headscope.heads.effects import INCONCLUSIVE, MATTERS, NO_EFFECT, HeadSets
from headscope.heads.measures import SpecialTokens
from headscope.heads.step import study_arrays
from headscope.heads.study import Study, study
from headscope.record.explanation import head_names


def studied(model: nn.Module) -> Study:
    return study(model, *texts(), SpecialTokens((), ()))


def test_one_head_alone_carries_the_answer() -> None:
    found = studied(Planted({1: 9.0}, heads=4))
    assert found.answer.startswith("On 120 other texts head 1 alone keeps 100.0 of 100.0 % (")
    assert " points), without heads " in found.answer
    # It averages.
    assert "Replacing attention by plain averages costs nothing measurable (" in found.answer
    assert found.details.startswith("240 texts, 120 of which chose the order of the heads; ")
    assert found.texts == N
    losses, _ = found.numbers["attention"]["loss_zeroed"]
    assert [loss > 0.1 for loss in losses] == [False, True, False, False]
    states = [*found.effects.values()]
    assert states == [NO_EFFECT, MATTERS, NO_EFFECT, NO_EFFECT]
    assert found.sets.order[0] == ("attention", 1)
    arrays = study_arrays(found)
    assert arrays["sets/heads"].shape == (4, 2)
    assert arrays["sets/enough"] == arrays["sets/size"] == 1
    assert arrays["sets/accuracy"][2] == 1.0
    low, high = 100 * arrays["sets/changes"][1]  # those of the sentence
    assert f"({low:.1f} to {high:.1f} points)".replace("-", "\N{MINUS SIGN}") in found.answer
    assert str(arrays["answer"]) == found.answer


def test_a_head_that_must_look_costs_accuracy_when_averaged() -> None:
    found = studied(Planted({0: 9.0}, heads=1, looks=True))
    assert found.answer.startswith("On 120 other texts the network without heads keeps ")
    assert "Replacing attention by plain averages costs " in found.answer
    assert "nothing" not in found.answer


def test_more_heads_than_can_be_searched_are_ordered_by_what_each_alone_does() -> None:
    seen: list[tuple[int, int]] = []
    model = Planted({3: 9.0, 11: 9.0}, heads=20)
    found = study(model, *texts(), SpecialTokens((), ()), advance=lambda *both: seen.append(both))
    assert {head for _, head in found.sets.order[:2]} == {3, 11}
    assert found.sets.sizes == [0, 1, 2, 4, 8, 16, 20]
    total = seen[0][1]
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_heads_that_add_nothing_are_not_praised() -> None:
    found = studied(Planted({}, heads=2))
    assert found.answer.startswith("Too few texts to tell whether heads help: on 120 other texts ")
    assert "(−3.1 to 3.1 points)" in found.answer
    assert "enough" not in found.answer


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Over 1,000 draws of 400 texts, of which a change moves 4 % in either direction alike."""
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(1000):
        whole = (random.random(400) < 0.9).astype(float)
        flips = random.random(400) < np.where(whole > 0, 0.04, 0.36)
        alarms += accuracy_change(whole, np.where(flips, 1 - whole, whole)).state == MATTERS
    assert alarms <= 65  # 50 are promised; three standard errors are 21


HEADS = [("attention", head) for head in (1, 3, 0, 2)]
FEW = [5, 6, 6, 6, 7]
GROWING = [100, 150, 196, 197, 198]
PRAISE = "On 200 other texts "
AVERAGES = "eplacing attention by plain averages costs"


@pytest.mark.parametrize(
    ("right", "enough", "texts", "averaged", "words"),
    [
        (GROWING, 2, 200, 0, [PRAISE + "heads 1 and 3 alone keep 98.0 of 99.0 % ("]),
        ([100, 190, 196, 197, 198], 3, 200, 0, [PRAISE + "heads 1, 3 and 0 alone keep 98.5 of"]),
        ([100, 120, 130, 150, 198], 4, 200, 0, [PRAISE + "heads 1, 3 and 0 alone keep 75.0 of"]),
        (GROWING, 0, 200, 0, [PRAISE + "the network without heads keeps 50.0 of"]),
        (
            [10, 15, 20, 21, 26],
            3,
            30,
            0,
            ["Too few texts to tell how many heads are enough: on 30 other"],
        ),
        ([100, 100, 101, 100, 101], 2, 400, 0, ["Heads are not shown to help: on 400 other texts"]),
        ([120, 100, 90, 80, 80], 1, 200, 0, ["Heads lower the accuracy: ", "is 40.0 % with"]),
        (FEW, 2, 10, 12, ["Too few texts to tell whether heads help: on 10 other texts "]),
        (FEW, 2, 10, 12, [f"Too few texts to tell what r{AVERAGES} ("]),
        (GROWING, 1, 200, 380, [f"R{AVERAGES} 4.0 points ("]),
        (GROWING, 1, 200, 396, [f"R{AVERAGES} nothing measurable ("]),
        (GROWING, 1, 200, 300, [f"R{AVERAGES} 24.0 points ("]),
    ],
)
def test_each_sentence_stands_only_where_it_is_shown(
    right: list[int], enough: int, texts: int, averaged: int, words: list[str]
) -> None:
    """0 to 4 heads alone get so many texts right, of the other half; averages so many of all."""
    correct = np.stack([np.arange(texts) < count for count in right]).astype(float)
    whole = np.arange(2 * texts) < 2 * right[-1]
    after = np.arange(2 * texts) < averaged
    sets = HeadSets(HEADS, [0, 1, 2, 3, 4], correct, enough)
    sentences, details = answer(whole.astype(float), after.astype(float), sets, ["attention"])
    assert all(part in sentences for part in words)
    assert f"accuracy on all {100 * right[-1] / texts:.1f} % (" in details


def test_an_interval_that_is_wide_is_inconclusive() -> None:
    half = np.tile([0.0, 1.0], 20)
    assert accuracy_change(half, 1 - half).state == INCONCLUSIVE
    assert accuracy_change(np.ones(400), np.ones(400)).state == NO_EFFECT
    assert accuracy_change(np.zeros(400), np.ones(400)).state == MATTERS


def test_heads_of_several_layers_have_their_layer() -> None:
    correct = np.stack([np.arange(200) < count for count in (100, 150, 196, 198)]).astype(float)
    order = [("a", 1), ("b", 0), ("a", 0)]
    whole = np.concatenate([correct[-1], correct[-1]])
    sentence, _ = answer(whole, whole, HeadSets(order, [0, 1, 2, 3], correct, 2), ["a", "b"])
    assert "layer 0 head 1 and layer 1 head 0 alone keep 98.0 of 99.0 %" in sentence


def test_an_ensemble_of_one_layer_each_has_networks() -> None:
    layers = [f"members.{at}.encoder.blocks.0.attention" for at in range(3)]
    assert head_names(layers, [2, 1, 1])[1:] == [
        "network 0 head 1",
        "network 1 head 0",
        "network 2 head 0",
    ]
    measured = {layer: {"loss_zeroed": ([0.5], [0.1])} for layer in layers}
    correct = np.zeros((2, 4))
    found = Study(
        measured, 4, 4, {}, HeadSets([], [0, 3], correct, 0), np.zeros((4, 2)), "", "", []
    )
    assert [*found.loss_increases()] == [f"network {at} head 0" for at in range(3)]


def test_a_paired_interval_is_tangos() -> None:
    z = norm.ppf(0.975)
    end = z**2 / (121 + z**2)  # 0 of 121 differ
    assert paired_interval(0, 0, 121) == pytest.approx((-end, end), abs=1e-9)
    assert end == pytest.approx(0.0308, abs=1e-4)
    # Where none is lost it is Wilson's of the share that is gained.
    wilson = binomtest(80, 100).proportion_ci(0.95, "wilson")
    assert paired_interval(80, 0, 100) == pytest.approx((wilson.low, wilson.high), abs=1e-9)
    assert paired_interval(3, 5, 90) == pytest.approx(
        tuple(-end for end in paired_interval(5, 3, 90)[::-1]), abs=1e-9
    )
    assert paired_interval(0, 7, 7)[0] == -1
    # At its ends the score is z: the discordant shares are the likeliest that differ by so much.
    for gained, lost, size in ((5, 3, 121), (40, 10, 200)):
        for end, sign in zip(paired_interval(gained, lost, size), (1, -1), strict=True):
            shares = np.linspace(max(0, -end), min(1, 1 - end) / 2, 400_001)[1:-1]
            rest = np.maximum(1 - 2 * shares - end, 1e-12)
            likelihood = (
                gained * np.log(shares + end)
                + lost * np.log(shares)
                + (size - gained - lost) * np.log(rest)
            )
            share = shares[likelihood.argmax()]
            error = ((2 * share + end - end**2) / size) ** 0.5
            assert sign * ((gained - lost) / size - end) / error == pytest.approx(z, abs=1e-3)
