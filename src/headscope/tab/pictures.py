"""Pictures by matplotlib: the confusion matrix, and accuracy by confidence.

Every picture is [height, width, 3] bytes. Shape letters: C classes, M bins, N texts.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

BINS = 15
CELL = 0.55  # inches, of a confusion matrix
MOST = 24.0  # inches: of more classes cells are smaller, and without numbers
MAX_LETTERS = 24  # of the name of a class
# With Japanese and Chinese, then Latin alone.
FAMILIES = (
    *("Noto Sans CJK JP", "IPAGothic", "WenQuanYi Micro Hei", "Hiragino Sans", "PingFang SC"),
    *("Yu Gothic", "MS Gothic", "Microsoft YaHei", "DejaVu Sans"),
)


def confusion_picture(counts: Sequence[Sequence[int]], names: Sequence[str]) -> np.ndarray:
    """Draw counts [label, prediction], each cell coloured by its share of the label's texts."""
    table = np.asarray(counts)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    cell = min(CELL, MOST / len(names))
    side = 3 + cell * len(names)
    figure = Figure((side, side), layout="constrained")
    axes = figure.add_subplot(xlabel="prediction", ylabel="label")
    axes.imshow(shares, vmin=0, vmax=1)
    labels = [name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in names]
    # Of a class's name no character is markup.
    size = min(10.0, 60 * cell)  # points
    families = [name for name in FAMILIES if name in fontManager.get_font_names()]
    style: dict[str, Any] = {"parse_math": False, "fontfamily": families, "fontsize": size}
    axes.set_xticks(range(len(names)), labels, rotation=90, **style)
    axes.set_yticks(range(len(names)), labels, **style)
    for row, column in np.argwhere(table) if cell == CELL else ():
        # Viridis is dark for small shares and light for large ones.
        ink = "black" if shares[row, column] > 0.6 else "white"
        axes.text(column, row, str(table[row, column]), color=ink, ha="center", va="center")
    return _pixels(figure)


def _pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as boxes
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


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

    As in Guo et al. 2017, figure 1: red is between a bin's accuracy and its mean confidence, and on
    the diagonal both would be equal. Counts have one scale for all panels.
    """
    figure = Figure((5 * len(panels), 6), layout="constrained")
    rows = figure.subplots(2, len(panels), squeeze=False, sharey="row", height_ratios=[4, 1])
    for (title, panel), (upper, lower) in zip(panels.items(), rows.T, strict=True):
        has_texts = panel.counts > 0
        middles = (np.arange(BINS)[has_texts] + 0.5) / BINS
        accuracy = panel.accuracy[has_texts]
        gap = panel.confidence[has_texts] - accuracy
        upper.bar(middles, accuracy, 0.9 / BINS, label="accuracy")
        upper.bar(middles, gap, 0.9 / BINS, accuracy, color="salmon", label="to the confidence")
        upper.plot([0, 1], [0, 1], color="grey")
        upper.set(title=title, xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
        upper.legend()
        bars = lower.bar(middles, panel.counts[has_texts], 0.9 / BINS, color="grey")
        lower.bar_label(bars, fontsize=7)
        lower.set(xlim=(0, 1), xlabel="confidence", ylabel="texts")
        lower.margins(y=0.3)
    return _pixels(figure)
