"""The confusion matrix as a picture."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from headscope.tensorboard.images import BACKGROUND, GAP, MARGIN, colors, token_label, write

CELL = 52  # pixels


def confusion_picture(
    counts: Sequence[Sequence[int]], names: Sequence[str], configured_font: str | None = None
) -> np.ndarray:
    """Draw counts [label, prediction], each cell coloured by its share of the label's texts.

    Args:
        counts: texts of each label (row) given each prediction (column).
        names: of the classes.
        configured_font: a font file to be looked at first.

    Returns:
        Picture [height, width, 3], bytes.
    """
    table = np.asarray(counts)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    labels = [token_label(name, configured_font) for name in names]
    room = max(label.width for label in labels) + 10
    side = room + CELL * len(names) + GAP
    picture = Image.new("RGB", (side, side + MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), "rows: label, columns: prediction", configured_font)
    for row, label in enumerate(labels):
        top = MARGIN + room + row * CELL
        picture.paste(label, (room - label.width - 5, top + CELL // 2 - label.height // 2))
        turned = label.rotate(90, expand=True)
        picture.paste(turned, (room + row * CELL + CELL // 2 - turned.width // 2, MARGIN + room - turned.height - 5))
        for column, share in enumerate(shares[row]):
            _draw_cell(draw, room + column * CELL, top, float(share), int(table[row, column]))
    return np.asarray(picture)


def _draw_cell(draw: ImageDraw.ImageDraw, left: int, top: int, share: float, count: int) -> None:
    color = tuple(int(part) for part in colors()[round(share * 255)])
    draw.rectangle((left, top, left + CELL - 2, top + CELL - 2), fill=color)
    # Viridis is dark below and light above: the number takes the other end.
    ink = (20, 20, 20) if share > 0.6 else (255, 255, 255)
    draw.text((left + CELL // 2, top + CELL // 2), str(count), fill=ink, anchor="mm")
