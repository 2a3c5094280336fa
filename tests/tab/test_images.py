"""Pictures: the right colour in the right place, and names that fit."""

from pathlib import Path

import numpy as np

from headscope.tab.pictures import (
    CONFUSION_CELL,
    GAP,
    MARGIN,
    colors,
    confusion_picture,
    font_of,
)


def test_colours_grow_lighter_evenly() -> None:
    linear = np.where(
        colors() <= 10, colors() / 255 / 12.92, ((colors() / 255 + 0.055) / 1.055) ** 2.4
    )
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = 116 * np.cbrt(luminance) - 16
    steps = np.diff(lightness[::15])  # single steps are rounded to bytes
    assert (steps > 0).all()
    assert steps.std() < 0.25 * steps.mean()


def test_the_confusion_matrix_is_coloured_by_the_share_of_the_row() -> None:
    picture = confusion_picture([[3, 1], [0, 0]], ["yes", "no"])
    room = max(round(font_of(None).getlength(name)) for name in ("yes", "no")) + 10
    corner = MARGIN + room + 3
    assert picture[corner, room + 3].tolist() == colors()[round(0.75 * 255)].tolist()
    right = room + CONFUSION_CELL + 3
    assert picture[corner, right].tolist() == colors()[round(0.25 * 255)].tolist()
    assert picture[corner + CONFUSION_CELL, room + 3].tolist() == colors()[0].tolist()
    assert picture.shape[0] == room + 2 * CONFUSION_CELL + GAP + MARGIN


def test_a_long_name_is_cut_and_a_broken_font_is_passed_over(tmp_path: Path) -> None:
    long = confusion_picture([[1, 0], [0, 1]], ["x" * 1000, ""])
    assert long.shape[1] < 600
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"not a font")
    assert confusion_picture([[1]], ["é"], str(broken)).size
