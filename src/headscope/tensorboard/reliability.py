"""How often a model is right by how sure it is, as a picture (Guo et al. 2017, figure 1)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw

from headscope.tensorboard.fonts import font_for
from headscope.tensorboard.images import BACKGROUND, GAP, INK, MARGIN, write

BINS = 15
# In pixels: a bin's width, the side of the square, the height of the counts, room for the numbers on the left.
CELL, SIDE, COUNTS, LEFT = 26, 26 * BINS, 96, 40
TOP = 2 * MARGIN  # room for two lines
BOTH, DIFFERENCE, TEXTS, DIAGONAL = (66, 106, 160), (240, 160, 150), (150, 160, 170), (120, 120, 120)


@dataclass(frozen=True)
class Reliability:
    """Texts in bins of confidence.

    Attributes:
        counts: how many texts are in each bin.
        confidence: mean probability of the prediction in each; 0 where there is no text.
        accuracy: share of them that is right; 0 where there is no text.
    """

    counts: Int[np.ndarray, " M"]
    confidence: Float[np.ndarray, " M"]
    accuracy: Float[np.ndarray, " M"]


def reliability(confidence: Float[np.ndarray, " N"], is_right: Bool[np.ndarray, " N"]) -> Reliability:
    """Put texts into 15 bins of confidence: bin m holds those in ((m - 1) / 15, m / 15] (Guo et al. 2017, section 2).

    Args:
        confidence: probability of each text's prediction.
        is_right: whether that prediction is the text's label.
    """
    places = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    means = (np.bincount(places, values, BINS) / np.maximum(counts, 1) for values in (confidence, is_right))
    return Reliability(counts, *means)


def reliability_picture(panels: Mapping[str, Reliability]) -> np.ndarray:
    """Draw accuracy by confidence, a panel for each title, and below it how many texts each bin has.

    The black line on a bar is the bin's accuracy, red goes from there up or down to its mean confidence, and on the
    diagonal both would be equal. Counts have one scale for all panels.

    Returns:
        Picture [height, width, 3], bytes.
    """
    width = LEFT + SIDE + 4 * GAP
    picture = Image.new("RGB", (width * len(panels), place_of_counts() + MARGIN + GAP), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    most = max(int(panel.counts.max()) for panel in panels.values())  # of any bin
    for number, (title, panel) in enumerate(panels.items()):
        left = number * width + LEFT
        write(draw, (left, 3), title, None)
        write(draw, (left, MARGIN), "black line: accuracy; red: from there to the mean confidence", None)
        for place in range(BINS):
            if panel.counts[place]:
                _draw_bin(draw, left + place * CELL, panel, place, most)
        _draw_axes(draw, left)
    return np.asarray(picture)


def height_of(share: float) -> int:
    """Return the row of the picture where an accuracy or a confidence in [0, 1] is drawn."""
    return TOP + round((1 - share) * SIDE)


def place_of_counts() -> int:
    """Return the row of the picture that the bars of counts stand on."""
    return TOP + SIDE + 2 * MARGIN + COUNTS


def _draw_axes(draw: ImageDraw.ImageDraw, left: int) -> None:
    draw.rectangle((left - 1, TOP - 1, left + SIDE, TOP + SIDE), outline=DIAGONAL)
    draw.line((left, TOP + SIDE, left + SIDE, TOP), fill=DIAGONAL)
    for share in (0.0, 0.5, 1.0):
        _number(draw, (left - 18, height_of(share)), f"{share:g}")
        _number(draw, (left + round(share * SIDE), place_of_counts() + 10), f"{share:g}")
    write(draw, (left, TOP + SIDE + GAP), "texts by confidence", None)
    draw.line((left, place_of_counts(), left + SIDE, place_of_counts()), fill=DIAGONAL)


def _draw_bin(draw: ImageDraw.ImageDraw, left: int, panel: Reliability, place: int, most: int) -> None:
    accuracy, confidence = float(panel.accuracy[place]), float(panel.confidence[place])
    count, right, base = int(panel.counts[place]), left + CELL - 2, place_of_counts()
    draw.rectangle((left, height_of(accuracy), right, height_of(0.0)), fill=BOTH)
    draw.rectangle((left, height_of(max(accuracy, confidence)), right, height_of(min(accuracy, confidence))),
                   fill=DIFFERENCE)  # fmt: skip
    draw.line((left, height_of(accuracy), right, height_of(accuracy)), fill=INK, width=2)
    top = base - max(1, round(count / most * COUNTS))
    draw.rectangle((left, top, right, base - 1), fill=TEXTS)
    _number(draw, (left + CELL // 2 - 1, top - 7), str(count) if count < 10_000 else f"{count // 1000}k")


def _number(draw: ImageDraw.ImageDraw, place: tuple[int, int], number: str) -> None:
    font, shown = font_for(number, 10)
    draw.text(place, shown, fill=INK, font=font, anchor="mm")
