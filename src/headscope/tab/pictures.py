"""A picture by matplotlib, [height, width, 3] bytes: the confusion matrix."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

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
    size = min(10.0, 60 * cell)  # points
    style = text_style(size)
    axes.set_xticks(range(len(names)), labels, rotation=90, **style)
    axes.set_yticks(range(len(names)), labels, **style)
    for row, column in np.argwhere(table) if cell == CELL else ():
        # Viridis is dark for small shares and light for large ones.
        ink = "black" if shares[row, column] > 0.6 else "white"
        axes.text(column, row, str(table[row, column]), color=ink, ha="center", va="center")
    return _pixels(figure)


def text_style(size: float) -> dict[str, Any]:
    """Return the style of a text of somebody else's, in which no character is markup."""
    families = [name for name in FAMILIES if name in fontManager.get_font_names()]
    return {"parse_math": False, "fontfamily": families, "fontsize": size}


def _pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as boxes
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
