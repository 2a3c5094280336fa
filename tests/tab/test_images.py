"""Pictures: the right colour in the right place, legible names, one scale."""

import numpy as np
import pytest
from PIL import Image

from headscope.tab.pictures import (
    CONFUSION_CELL,
    GAP,
    LABEL,
    MARGIN,
    STRIP,
    TILE,
    colored,
    colors,
    confusion_picture,
    font_files,
    font_for,
    head_grid,
    labelled_heads,
    labelled_pooling,
    token_label,
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


def test_the_scale_is_the_same_for_every_map() -> None:
    assert colored(np.array([0.0, 0.25, 1.0])).tolist() == [
        colors()[number].tolist() for number in (0, 128, 255)
    ]


def test_the_grid_shows_each_weight_where_it_belongs() -> None:
    rng = np.random.default_rng(0)
    maps = [rng.random((3, 5, 5)) for _ in range(2)]
    picture = head_grid(maps)
    cell = TILE // 5
    for layer, head, query, key in [(0, 0, 0, 0), (1, 2, 4, 3), (0, 1, 2, 4)]:
        top = MARGIN + layer * (cell * 5 + GAP) + query * cell + cell // 2
        left = 3 * MARGIN + head * (cell * 5 + GAP) + key * cell + cell // 2
        assert picture[top, left].tolist() == colored(maps[layer][head, query])[key].tolist()


def test_a_pooling_is_one_more_row_below_the_maps() -> None:
    pooling = np.array([0.5, 0.0, 0.1, 0.15, 0.25])
    plain, picture = head_grid([np.eye(5)[None]]), head_grid([np.eye(5)[None]], pooling=pooling)
    assert picture.shape[0] == plain.shape[0] + STRIP + GAP
    cell = TILE // 5
    top = MARGIN + cell * 5 + GAP + STRIP // 2
    for token in range(5):
        assert (
            picture[top, 3 * MARGIN + token * cell + cell // 2].tolist()
            == colored(pooling)[token].tolist()
        )


def test_a_pooling_is_drawn_as_a_bar_for_each_token() -> None:
    weights = np.array([0.5, 0.25, 0.0])
    picture = labelled_pooling(weights, ["[CLS]", "日本", "[SEP]"], "pooling")
    room = max(token_label(token).width for token in ("[CLS]", "日本", "[SEP]")) + 2 * GAP
    for place, weight in enumerate(weights):
        line = picture[MARGIN + place * (LABEL + 4) + LABEL // 2]
        bar = (line == colored(weights)[place]).all(axis=1)[room:].sum()
        assert abs(bar - round(TILE * weight / 0.5)) <= 1


def test_a_long_text_has_a_pixel_for_each_weight() -> None:
    assert head_grid([np.full((2, 300, 300), 1 / 300)]).shape[1] == 3 * MARGIN + 2 * (300 + GAP)


def test_labelled_maps_hold_the_weights_and_something_written_on_both_axes() -> None:
    maps = np.eye(4)[None].repeat(2, axis=0)
    picture = labelled_heads(maps, ["[CLS]", "word", "日本", "[SEP]"], "layer 0")
    cell = LABEL + 2
    room = max(token_label(token).width for token in ("[CLS]", "word", "日本", "[SEP]")) + 6
    left, top = GAP + room, MARGIN + room + MARGIN
    assert picture[top + cell // 2, left + cell // 2].tolist() == colors()[255].tolist()
    assert picture[top + cell // 2, left + cell + cell // 2].tolist() == colors()[0].tolist()
    assert (picture[top : top + 4 * cell, GAP : left - 2] < 128).any()
    assert (picture[top - room : top - 2, left : left + 4 * cell] < 128).any()


def test_names_are_cut_and_never_empty() -> None:
    assert token_label("x" * 1000).width < 40 * LABEL
    assert token_label("").width >= 1


def test_what_no_font_has_is_shown_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.tab.pictures.font_files", lambda: ())
    assert font_for("a日", 13)[1] == "a<U+65E5>"


def test_a_font_of_this_machine_that_has_the_characters_is_found() -> None:
    cyrillic = font_for("Ж", 13)
    if any("DejaVuSans" in path or "NotoSans" in path for path in font_files()):
        assert cyrillic[1] == "Ж"
    if any("CJK" in path for path in font_files()):
        font, shown = font_for("日本語中文", 13)
        assert shown == "日本語中文"
        drawn = {bytes(font.getmask(character)) for character in shown}
        assert len(drawn) == 5  # five different signs, not five boxes


def test_a_broken_font_file_is_passed_over(tmp_path) -> None:
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"not a font")
    assert font_for("é", 13, str(broken))[1]


def test_the_confusion_matrix_is_coloured_by_the_share_of_the_row() -> None:
    picture = confusion_picture([[3, 1], [0, 0]], ["yes", "no"])
    room = max(token_label(name).width for name in ("yes", "no")) + 10
    corner = MARGIN + room + 3
    assert picture[corner, room + 3].tolist() == colors()[round(0.75 * 255)].tolist()
    assert (
        picture[corner, room + CONFUSION_CELL + 3].tolist() == colors()[round(0.25 * 255)].tolist()
    )
    assert picture[corner + CONFUSION_CELL, room + 3].tolist() == colors()[0].tolist()
    assert Image.fromarray(picture).size[1] == room + 2 * CONFUSION_CELL + GAP + MARGIN
