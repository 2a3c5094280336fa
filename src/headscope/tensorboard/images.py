"""Attention maps as pictures for the image tab, made by array work: a plotting library takes 3 to 35 times as long.

Weights are coloured by their square root on a fixed scale from 0 to 1, the same for every head, text and step: linear
colours would leave a head that spreads over 50 tokens (weights near 0.02) black, and a scale of each map's own would
make maps incomparable. The colours are viridis, whose lightness grows evenly.

Shape letters: L layers, H heads, T tokens.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from cmap import Colormap
from PIL import Image, ImageDraw

from headscope.tensorboard.fonts import font_for

# In pixels: a map's least side, the gap between maps, room for captions, height of letters, height of a pooling's row.
TILE, GAP, MARGIN, LABEL, STRIP = 144, 6, 22, 13, 18
BACKGROUND, INK = (255, 255, 255), (40, 40, 40)


@cache
def colors() -> np.ndarray:
    """Return viridis as [256, 3] bytes."""
    return np.asarray(Colormap("viridis").lut(256)[:, :3] * 255).round().astype(np.uint8)


def colored(weights: np.ndarray) -> np.ndarray:
    """Return weights [...] in [0, 1] as colours [..., 3], by their square root."""
    levels = (np.sqrt(np.clip(weights, 0, 1)) * 255).round().astype(np.uint8)
    picture: np.ndarray = colors()[levels]
    return picture


def _scaled(weights: np.ndarray, cell: int) -> np.ndarray:
    """Return a map [T, T] as a picture, each weight a square of `cell` pixels."""
    return colored(weights).repeat(cell, axis=0).repeat(cell, axis=1)


def head_grid(
    maps: Sequence[np.ndarray], configured_font: str | None = None, pooling: np.ndarray | None = None
) -> np.ndarray:
    """Draw all heads of a text: a row of maps for each layer, a column for each head, captions, and the scale below.

    Args:
        maps: for each layer, weights [H, T, T].
        configured_font: a font file to be looked at first.
        pooling: weights [T] of a pooling that attends, drawn as one more row.

    Returns:
        Picture [height, width, 3], bytes.
    """
    tokens = maps[0].shape[-1]
    cell = max(1, TILE // tokens)
    side, heads = cell * tokens, max(len(layer) for layer in maps)
    step = side + GAP
    below = MARGIN + len(maps) * step + (0 if pooling is None else STRIP + GAP)
    canvas = np.full((below + 2 * MARGIN, 3 * MARGIN + heads * step, 3), 255, dtype=np.uint8)
    for row, layer in enumerate(maps):
        for column, weights in enumerate(layer):
            top, left = MARGIN + row * step, 3 * MARGIN + column * step
            canvas[top : top + side, left : left + side] = _scaled(weights, cell)
    if pooling is not None:
        strip = colored(pooling).repeat(cell, axis=0)  # [side, 3]
        canvas[below - STRIP - GAP : below - GAP, 3 * MARGIN : 3 * MARGIN + side] = strip
    picture = Image.fromarray(canvas)
    draw = ImageDraw.Draw(picture)
    if pooling is not None:
        write(draw, (6, below - STRIP - GAP + 1), "pooling", configured_font)
    for row in range(len(maps)):
        write(draw, (6, MARGIN + row * step + side // 2 - 8), f"layer {row}", configured_font)
    for column in range(heads):
        write(draw, (3 * MARGIN + column * step, 3), f"head {column}", configured_font)
    _draw_scale(picture, 3 * MARGIN, below + 4, min(240, heads * step - GAP))
    return np.asarray(picture)


def _draw_scale(picture: Image.Image, left: int, top: int, width: int) -> None:
    """Draw the colours with the weights that they stand for."""
    ramp = colors()[np.linspace(0, 255, width).astype(np.uint8)]  # [width, 3]
    picture.paste(Image.fromarray(np.broadcast_to(ramp, (10, width, 3)).copy()), (left, top))
    draw = ImageDraw.Draw(picture)
    for weight in (0.0, 0.1, 0.5, 1.0):
        write(draw, (left + int(weight**0.5 * (width - 14)), top + 12), f"{weight:g}", None)


def labelled_heads(
    maps: np.ndarray, tokens: Sequence[str], title: str, configured_font: str | None = None
) -> np.ndarray:
    """Draw the heads of one layer side by side, two a row, with the names of the tokens on both axes.

    Args:
        maps: weights [H, T, T]; rows are queries.
        tokens: T names as a person reads them.
        title: written above.
        configured_font: a font file to be looked at first.

    Returns:
        Picture [height, width, 3], bytes.
    """
    cell = LABEL + 2
    labels = [token_label(token, configured_font) for token in tokens]
    room = max(label.width for label in labels) + 6
    side = cell * len(tokens)
    columns = min(2, len(maps))
    step_x, step_y = room + side + 3 * GAP, room + side + MARGIN + 2 * GAP
    size = (columns * step_x + GAP, -(-len(maps) // columns) * step_y + MARGIN + GAP)
    picture = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), f"{title}: rows look at columns", configured_font)
    for head, weights in enumerate(maps):
        left, top = GAP + head % columns * step_x + room, MARGIN + head // columns * step_y + room + MARGIN
        write(draw, (left, top - room - MARGIN + 2), f"head {head}", configured_font)
        picture.paste(Image.fromarray(_scaled(weights, cell)), (left, top))
        for place, label in enumerate(labels):
            picture.paste(label, (left - label.width - 4, top + place * cell))
            picture.paste(label.rotate(90, expand=True), (left + place * cell, top - label.width - 4))
    return np.asarray(picture)


def labelled_pooling(
    weights: np.ndarray, tokens: Sequence[str], title: str, configured_font: str | None = None
) -> np.ndarray:
    """Draw what a pooling gives to each token: a line for each, with its name, a bar and the weight.

    Args:
        weights: [T]; the longest bar is the largest of them.
        tokens: T names as a person reads them.
        title: written above.
        configured_font: a font file to be looked at first.

    Returns:
        Picture [height, width, 3], bytes.
    """
    labels = [token_label(token, configured_font) for token in tokens]
    room, line = max(label.width for label in labels) + 2 * GAP, LABEL + 4
    picture = Image.new("RGB", (max(420, room + TILE + 80), MARGIN + line * len(tokens) + GAP), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), title, configured_font)
    colours, longest = colored(weights), max(float(weights.max()), 1e-12)
    for place, (label, weight) in enumerate(zip(labels, weights.tolist(), strict=True)):
        top, end = MARGIN + place * line, room + round(TILE * weight / longest)
        picture.paste(label, (room - label.width - GAP, top))
        draw.rectangle((room, top + 2, end, top + LABEL), fill=tuple(colours[place].tolist()))
        write(draw, (end + GAP, top), f"{weight:.3f}", None)
    return np.asarray(picture)


def token_label(token: str, configured_font: str | None = None, longest: int = 24) -> Image.Image:
    """Draw a token's name, cut to `longest` characters, on white."""
    shown = token if len(token) <= longest else token[: longest - 1] + "…"
    font, text = font_for(shown, LABEL, configured_font)
    width = max(1, round(font.getlength(text)))
    label = Image.new("RGB", (width, LABEL + 2), BACKGROUND)
    ImageDraw.Draw(label).text((0, (LABEL + 2) // 2), text, fill=INK, font=font, anchor="lm")
    return label


def write(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, configured_font: str | None) -> None:
    """Write a caption with its upper left corner at `place`."""
    font, shown = font_for(text, LABEL, configured_font)
    draw.text(place, shown, fill=INK, font=font)
