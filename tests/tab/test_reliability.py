"""The reliability picture: which texts are in which bin, and what each bin looks like."""

import numpy as np
import pytest
import torch

from headscope.tab.pictures import (
    ACCURACY,
    BACKGROUND,
    BASE,
    BINS,
    CELL,
    COUNTS,
    DIFFERENCE,
    LEFT,
    TEXTS,
    Reliability,
    height_of,
    reliability,
    reliability_picture,
)
from headscope.training.scores import scores


def test_a_bin_holds_what_is_above_its_lower_and_up_to_its_upper_end() -> None:
    confidence = np.array([1.0, 0.95, 0.6001, 0.6, 0.59, 0.5999, 1 / 15, 0.0])
    is_right = np.array([True, False, True, False, True, True, False, True])
    found = reliability(confidence, is_right)
    places = found.counts.nonzero()[0]
    assert dict(zip(places.tolist(), found.counts[places].tolist(), strict=True)) == {
        0: 2, 8: 3, 9: 1, 14: 2
    }  # fmt: skip
    assert found.accuracy[[0, 8, 9, 14]] == pytest.approx([0.5, 2 / 3, 1, 0.5])
    assert found.confidence[[0, 8, 9, 14]] == pytest.approx(
        [1 / 30, (0.6 + 0.59 + 0.5999) / 3, 0.6001, 0.975]
    )
    assert found.accuracy[[1, 5]].tolist() == [0, 0]


def test_the_bins_give_the_calibration_error() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(3_000, 5).double(), torch.randint(5, (3_000,))
    confidence, prediction = logits.softmax(dim=-1).max(dim=-1)
    found = reliability(confidence.numpy(), (prediction == labels).numpy())
    error = (found.counts * np.abs(found.accuracy - found.confidence)).sum() / found.counts.sum()
    assert error == pytest.approx(scores(logits, labels).calibration_error, abs=1e-6)
    assert found.counts.sum() == 3_000


def panel(**bins: tuple[int, float, float]) -> Reliability:
    """Return bins by name, such as bin_8=(count, confidence, accuracy)."""
    arrays = np.zeros(BINS, dtype=np.int64), np.zeros(BINS), np.zeros(BINS)
    for name, values in bins.items():
        for array, value in zip(arrays, values, strict=True):
            array[int(name[4:])] = value
    return Reliability(*arrays)


def test_each_bin_shows_its_accuracy_how_far_its_confidence_is_from_it_and_its_texts() -> None:
    sure, unsure = (
        panel(bin_14=(400, 0.97, 0.62), bin_9=(100, 0.64, 0.64)),
        panel(bin_6=(200, 0.45, 0.75)),
    )
    picture = reliability_picture({"before": sure, "after": unsure})
    width = picture.shape[1] // 2

    def seen(number: int, place: int, row: int) -> tuple[int, ...]:
        return tuple(picture[row, number * width + LEFT + place * CELL + 3].tolist())

    # Too sure: blue up to the accuracy, red from there to the confidence, nothing above.
    assert [seen(0, 14, height_of(share)) for share in (0.1, 0.58, 0.66, 0.92, 0.99)] == [
        ACCURACY, ACCURACY, DIFFERENCE, DIFFERENCE, BACKGROUND]  # fmt: skip
    # Not sure enough: red from the confidence up to the accuracy.
    assert [seen(1, 6, height_of(share)) for share in (0.3, 0.5, 0.7, 0.8)] == [
        ACCURACY, DIFFERENCE, DIFFERENCE, BACKGROUND]  # fmt: skip
    assert seen(0, 9, height_of(0.6)) == ACCURACY
    assert seen(0, 9, height_of(0.68)) == BACKGROUND
    # Bins without texts.
    assert seen(0, 6, height_of(0.1)) == seen(1, 14, height_of(0.3)) == BACKGROUND
    for number, place, count in ((0, 14, 400), (0, 9, 100), (1, 6, 200)):  # one scale for both
        height = round(count / 400 * COUNTS)
        colors = [seen(number, place, BASE - offset) for offset in (1, height, height + 1)]
        assert colors == [TEXTS, TEXTS, BACKGROUND]
    assert picture.shape[0] > BASE
