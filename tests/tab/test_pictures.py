"""Pictures: which texts are in which bin, the right colour in the right place, names as they are."""

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from headscope.tab.pictures import confusion_picture, reliability, reliability_picture
from headscope.training.scores import scores


def middle(picture: np.ndarray, color: object) -> np.ndarray:
    """Return the middle of what has a colour, row and column; NaN where nothing has."""
    rgb = np.multiply(to_rgb(color), 255).round()  # type: ignore[arg-type]
    is_near = np.abs(picture.astype(int) - rgb) <= 1
    places = np.argwhere(is_near.all(axis=-1))
    return places.mean(axis=0) if len(places) else np.full(2, np.nan)


def test_the_confusion_matrix_is_coloured_by_the_share_of_the_row() -> None:
    picture = confusion_picture([[3, 1], [0, 0]], ["yes", "no"])
    shares = {share: middle(picture, colormaps["viridis"](share)) for share in (0.75, 0.25, 0.0)}
    assert shares[0.75][0] == pytest.approx(shares[0.25][0], abs=3)
    assert shares[0.75][1] < shares[0.25][1] - 20
    assert shares[0.0][0] > shares[0.75][0] + 20


def test_names_are_cut_and_no_markup() -> None:
    names = ["x" * 1000, "$\\frac{", "", "\u0e01日本\n語"]
    assert max(confusion_picture(np.eye(4, dtype=int).tolist(), names).shape) < 800
    assert max(confusion_picture(np.eye(80, dtype=int).tolist(), ["a"] * 80).shape) < 3000


def test_a_bin_holds_what_is_above_its_lower_and_up_to_its_upper_end() -> None:
    confidence = np.array([1.0, 0.95, 0.6001, 0.6, 0.59, 0.5999, 1 / 15, 0.0])
    is_right = np.array([True, False, True, False, True, True, False, True])
    found = reliability(confidence, is_right)
    places = found.counts.nonzero()[0]
    assert (places.tolist(), found.counts[places].tolist()) == ([0, 8, 9, 14], [2, 3, 1, 2])
    assert found.accuracy[places] == pytest.approx([0.5, 2 / 3, 1, 0.5])
    means = [1 / 30, (0.6 + 0.59 + 0.5999) / 3, 0.6001, 0.975]
    assert found.confidence[places] == pytest.approx(means)


def test_the_bins_give_the_calibration_error() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(3_000, 5).double(), torch.randint(5, (3_000,))
    confidence, prediction = logits.softmax(dim=-1).max(dim=-1)
    found = reliability(confidence.numpy(), (prediction == labels).numpy())
    error = (found.counts * np.abs(found.accuracy - found.confidence)).sum() / found.counts.sum()
    assert error == pytest.approx(scores(logits, labels).calibration_error, abs=1e-6)
    assert found.counts.sum() == 3_000


def test_red_is_between_accuracy_and_confidence() -> None:
    too_sure = reliability(np.full(10, 0.9), np.arange(10) < 5)
    just_sure = reliability(np.full(10, 0.5), np.arange(10) < 5)
    picture = reliability_picture({"before": too_sure, "after": just_sure})
    _, width, _ = picture.shape
    blue, red = (middle(picture[:, : width // 2], color) for color in ("C0", "salmon"))
    assert red[0] < blue[0]  # above it, in the same bar
    assert red[1] == pytest.approx(blue[1], abs=40)
    legend = middle(picture[:, width // 2 :], "salmon")  # red is in the legend alone
    assert legend[1] < width / 4
