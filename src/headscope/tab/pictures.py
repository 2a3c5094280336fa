"""Pictures by array work: the confusion matrix, and accuracy by confidence.

Every picture is [height, width, 3] bytes. Shape letters: C classes, M bins, N texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from cmap import Colormap
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw, ImageFont

# In pixels.
GAP = 6
MARGIN = 22
LETTERS = 13
CONFUSION_CELL = 52
BACKGROUND = (255, 255, 255)
INK = (40, 40, 40)
MAX_LETTERS = 24  # of the name of a class

BINS = 15
# In pixels: a bin's width, the side of the square, the height of the counts, room for numbers.
CELL = 26
SIDE = CELL * BINS
COUNTS = 96
LEFT = 40
TOP = 2 * MARGIN  # room for two lines
BASE = TOP + SIDE + 2 * MARGIN + COUNTS  # the bars of counts stand on this row
ACCURACY = (66, 106, 160)
DIFFERENCE = (240, 160, 150)
TEXTS = (150, 160, 170)
AXES = (120, 120, 120)

# Fonts with Japanese and Chinese, then Latin alone; the one that Pillow brings is the last resort.
FONTS = (
    "NotoSansCJK-Regular.ttc",
    "ipag.ttf",
    "wqy-microhei.ttc",
    "ヒラギノ角ゴシック W3.ttc",
    "PingFang.ttc",
    "YuGothR.ttc",
    "msgothic.ttc",
    "msyh.ttc",
    "DejaVuSans.ttf",
)
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def font_of(path: str | None, size: int = LETTERS) -> Font:
    """Return the font file at `path`, or the first of `FONTS` on this machine; `size` in pixels."""
    for name in [path] if path else FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:  # not there, or broken
            continue
    return ImageFont.load_default(size)


@cache
def colors() -> np.ndarray:
    """Return viridis, whose lightness grows evenly, as [256, 3] bytes."""
    return np.asarray(Colormap("viridis").lut(256)[:, :3] * 255).round().astype(np.uint8)


def confusion_picture(
    counts: Sequence[Sequence[int]], names: Sequence[str], font: str | None = None
) -> np.ndarray:
    """Draw counts [label, prediction], each cell coloured by its share of the label's texts."""
    table = np.asarray(counts)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    labels = [_label(name, font_of(font)) for name in names]
    room = max(label.width for label in labels) + 10
    half = CONFUSION_CELL // 2
    side = room + CONFUSION_CELL * len(names) + GAP
    picture = Image.new("RGB", (side, side + MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    _write(draw, (GAP, 3), "rows: label, columns: prediction")
    middles = [room + place * CONFUSION_CELL + half for place in range(len(names))]
    for row, (label, y) in enumerate(zip(labels, middles, strict=True)):
        turned = label.rotate(90, expand=True)
        picture.paste(label, (room - label.width - 5, MARGIN + y - label.height // 2))
        picture.paste(turned, (y - turned.width // 2, MARGIN + room - turned.height - 5))
        for column, x in enumerate(middles):
            share = float(shares[row, column])
            color = tuple(colors()[round(share * 255)].tolist())
            # Viridis is dark for small shares and light for large ones.
            ink = (20, 20, 20) if share > 0.6 else (255, 255, 255)
            corners = (x - half, MARGIN + y - half, x + half - 2, MARGIN + y + half - 2)
            draw.rectangle(corners, fill=color)
            draw.text((x, MARGIN + y), str(int(table[row, column])), ink, anchor="mm")
    return np.asarray(picture)


def _label(name: str, font: Font) -> Image.Image:
    """Draw the name of a class, cut to `MAX_LETTERS`, on white."""
    shown = name if len(name) <= MAX_LETTERS else name[: MAX_LETTERS - 1] + "…"
    width = max(1, round(font.getlength(shown)))
    label = Image.new("RGB", (width, LETTERS + 2), BACKGROUND)
    ImageDraw.Draw(label).text((0, (LETTERS + 2) // 2), shown, INK, font=font, anchor="lm")
    return label


def _write(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str) -> None:
    draw.text(place, text, fill=INK, font=font_of(None))


@dataclass(frozen=True)
class Reliability:
    """Texts in bins of confidence; 0 where there is no text."""

    counts: Int[np.ndarray, " M"]  # number of texts in each bin
    confidence: Float[np.ndarray, " M"]  # mean probability of the predictions
    accuracy: Float[np.ndarray, " M"]  # share of predictions that are correct


def reliability(
    confidence: Float[np.ndarray, " N"], is_correct: Bool[np.ndarray, " N"]
) -> Reliability:
    """Return texts in 15 bins of confidence, the probability of a text's prediction.

    Bin m holds ((m - 1) / 15, m / 15] (Guo et al. 2017, section 2).
    """
    places = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    means = [
        np.bincount(places, values, BINS) / np.maximum(counts, 1)
        for values in (confidence, is_correct)
    ]
    return Reliability(counts, *means)


def reliability_picture(panels: Mapping[str, Reliability]) -> np.ndarray:
    """Draw accuracy by confidence and the texts in each bin, a panel for each title.

    As in Guo et al. 2017, figure 1: the black line on a bar is the bin's accuracy, red goes from
    there to its mean confidence, and on the diagonal both would be equal. Counts have one scale for
    all panels.
    """
    width = LEFT + SIDE + 4 * GAP
    picture = Image.new("RGB", (width * len(panels), BASE + MARGIN + GAP), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    max_count = max(int(panel.counts.max()) for panel in panels.values())
    for number, (title, panel) in enumerate(panels.items()):
        left = number * width + LEFT
        _write(draw, (left, 3), title)
        _write(draw, (left, MARGIN), "black line: accuracy; red: from there to the mean confidence")
        for place in range(BINS):
            if panel.counts[place]:
                _draw_bin(draw, left + place * CELL, panel, place, max_count)
        _draw_axes(draw, left)
    return np.asarray(picture)


def height_of(share: float) -> int:
    """Return the row of the picture where an accuracy or a confidence in [0, 1] is drawn."""
    return TOP + round((1 - share) * SIDE)


def _draw_axes(draw: ImageDraw.ImageDraw, left: int) -> None:
    draw.rectangle((left - 1, TOP - 1, left + SIDE, TOP + SIDE), outline=AXES)
    draw.line((left, TOP + SIDE, left + SIDE, TOP), fill=AXES)
    for share in (0.0, 0.5, 1.0):
        _number(draw, (left - 18, height_of(share)), f"{share:g}")
        _number(draw, (left + round(share * SIDE), BASE + 10), f"{share:g}")
    _write(draw, (left, TOP + SIDE + GAP), "texts by confidence")
    draw.line((left, BASE, left + SIDE, BASE), fill=AXES)


def _draw_bin(
    draw: ImageDraw.ImageDraw, left: int, panel: Reliability, place: int, max_count: int
) -> None:
    accuracy = height_of(float(panel.accuracy[place]))
    confidence = height_of(float(panel.confidence[place]))
    count = int(panel.counts[place])
    right = left + CELL - 2
    draw.rectangle((left, accuracy, right, height_of(0.0)), fill=ACCURACY)
    ends = sorted([accuracy, confidence])
    draw.rectangle((left, ends[0], right, ends[1]), fill=DIFFERENCE)
    draw.line((left, accuracy, right, accuracy), fill=INK, width=2)
    top = BASE - max(1, round(count / max_count * COUNTS))
    draw.rectangle((left, top, right, BASE - 1), fill=TEXTS)
    shown = str(count) if count < 10_000 else f"{count // 1000}k"
    _number(draw, (left + CELL // 2 - 1, top - 7), shown)


def _number(draw: ImageDraw.ImageDraw, place: tuple[int, int], number: str) -> None:
    draw.text(place, number, fill=INK, font=font_of(None, 10), anchor="mm")
