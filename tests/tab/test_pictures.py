"""Pictures: the right colour in the right place, names as they are."""

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from headscope.tab.pictures import confusion_picture


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
