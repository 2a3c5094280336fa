"""Pictures for TensorBoard by array work, 3 to 35 times as fast as a plotting library: maps, confusion, reliability.

Weights are coloured by their square root on a fixed scale from 0 to 1, the same for every head, text and step: linear
colours would leave a head that spreads over 50 tokens (weights near 0.02) black, and a scale of each map's own would
make maps incomparable. The colours are viridis, whose lightness grows evenly. Every picture is [height, width, 3],
bytes; `font` is a font file that is looked at first. Shape letters: L layers, H heads, T tokens, M bins, N texts.

No single font has the characters of all tokens. After `font` come the fonts of this machine, those first that are known
to hold Japanese and Chinese, and last the one that Pillow brings, which has Latin letters alone. What no font has is
shown by its code, such as <U+9B31>; installing fonts-noto-cjk (Debian, Ubuntu) or google-noto-sans-cjk-fonts (Fedora)
mends it.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from cmap import Colormap
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw, ImageFont
from tensorboard.compat.proto.summary_pb2 import Summary

from headscope.tab.summaries import add_summary

# In pixels: a map's least side, the gap between maps, room for captions, height of letters, height of a pooling's row.
TILE, GAP, MARGIN, LABEL, STRIP = 144, 6, 22, 13, 18
BACKGROUND, INK = (255, 255, 255), (40, 40, 40)
CONFUSION_CELL = 52

BINS = 15
# In pixels: a bin's width, the side of the square, the height of the counts, room for the numbers on the left.
CELL, SIDE, COUNTS, LEFT = 26, 26 * BINS, 96, 40
TOP = 2 * MARGIN  # room for two lines
BOTH, DIFFERENCE, TEXTS, DIAGONAL = (
    (66, 106, 160),
    (240, 160, 150),
    (150, 160, 170),
    (120, 120, 120),
)

PREFERRED = (
    *(
        "NotoSansCJK-Regular",
        "SourceHanSans-Regular",
        "ipag",
        "TakaoGothic",
        "wqy-microhei",
        "wqy-zenhei",
    ),
    *(
        "ヒラギノ角ゴシック W3",
        "Hiragino Sans",
        "PingFang",
        "YuGothR",
        "msgothic",
        "msyh",
        "simsun",
    ),
    *("DejaVuSans", "NotoSans-Regular"),
)
PLACES = {
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": (os.environ.get("WINDIR", "C:/Windows") + "/Fonts",),
    "linux": ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
}

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


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
    maps: Sequence[np.ndarray], font: str | None = None, pooling: np.ndarray | None = None
) -> np.ndarray:
    """Draw all heads of a text: a row for each layer's maps [H, T, T], a column for each head, and the scale below.

    The weights [T] of a pooling that attends are drawn as one more row.
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
        write(draw, (6, below - STRIP - GAP + 1), "pooling", font)
    for row in range(len(maps)):
        write(draw, (6, MARGIN + row * step + side // 2 - 8), f"layer {row}", font)
    for column in range(heads):
        write(draw, (3 * MARGIN + column * step, 3), f"head {column}", font)
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
    maps: np.ndarray, tokens: Sequence[str], title: str, font: str | None = None
) -> np.ndarray:
    """Draw the heads [H, T, T] of one layer, two a row, a row for each query, with the tokens' names on both axes."""
    cell = LABEL + 2
    labels = [token_label(token, font) for token in tokens]
    room = max(label.width for label in labels) + 6
    side = cell * len(tokens)
    columns = min(2, len(maps))
    step_x, step_y = room + side + 3 * GAP, room + side + MARGIN + 2 * GAP
    size = (columns * step_x + GAP, -(-len(maps) // columns) * step_y + MARGIN + GAP)
    picture = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), f"{title}: rows look at columns", font)
    for head, weights in enumerate(maps):
        left, top = (
            GAP + head % columns * step_x + room,
            MARGIN + head // columns * step_y + room + MARGIN,
        )
        write(draw, (left, top - room - MARGIN + 2), f"head {head}", font)
        picture.paste(Image.fromarray(_scaled(weights, cell)), (left, top))
        for place, label in enumerate(labels):
            picture.paste(label, (left - label.width - 4, top + place * cell))
            picture.paste(
                label.rotate(90, expand=True), (left + place * cell, top - label.width - 4)
            )
    return np.asarray(picture)


def labelled_pooling(
    weights: np.ndarray, tokens: Sequence[str], title: str, font: str | None = None
) -> np.ndarray:
    """Draw the weight [T] that a pooling gives to each token: a line for each, with its name, a bar and the weight."""
    labels = [token_label(token, font) for token in tokens]
    room, line = max(label.width for label in labels) + 2 * GAP, LABEL + 4
    picture = Image.new(
        "RGB", (max(420, room + TILE + 80), MARGIN + line * len(tokens) + GAP), BACKGROUND
    )
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), title, font)
    colours, longest = colored(weights), max(float(weights.max()), 1e-12)
    for place, (label, weight) in enumerate(zip(labels, weights.tolist(), strict=True)):
        top, end = MARGIN + place * line, room + round(TILE * weight / longest)
        picture.paste(label, (room - label.width - GAP, top))
        draw.rectangle((room, top + 2, end, top + LABEL), fill=tuple(colours[place].tolist()))
        write(draw, (end + GAP, top), f"{weight:.3f}", None)
    return np.asarray(picture)


def token_label(token: str, font: str | None = None, longest: int = 24) -> Image.Image:
    """Draw a token's name, cut to `longest` characters, on white."""
    shown = token if len(token) <= longest else token[: longest - 1] + "…"
    drawn, text = font_for(shown, LABEL, font)
    width = max(1, round(drawn.getlength(text)))
    label = Image.new("RGB", (width, LABEL + 2), BACKGROUND)
    ImageDraw.Draw(label).text((0, (LABEL + 2) // 2), text, fill=INK, font=drawn, anchor="lm")
    return label


def write(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, font: str | None = None
) -> None:
    """Write a caption with its upper left corner at `place`."""
    drawn, shown = font_for(text, LABEL, font)
    draw.text(place, shown, fill=INK, font=drawn)


def confusion_picture(
    counts: Sequence[Sequence[int]], names: Sequence[str], font: str | None = None
) -> np.ndarray:
    """Draw counts [label, prediction], each cell coloured by its share of the label's texts."""
    table = np.asarray(counts)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    labels = [token_label(name, font) for name in names]
    room = max(label.width for label in labels) + 10
    side, half = room + CONFUSION_CELL * len(names) + GAP, CONFUSION_CELL // 2
    picture = Image.new("RGB", (side, side + MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    write(draw, (GAP, 3), "rows: label, columns: prediction", font)
    for row, label in enumerate(labels):
        top = MARGIN + room + row * CONFUSION_CELL
        picture.paste(label, (room - label.width - 5, top + half - label.height // 2))
        turned, middle = label.rotate(90, expand=True), room + row * CONFUSION_CELL + half
        picture.paste(turned, (middle - turned.width // 2, MARGIN + room - turned.height - 5))
        for column, share in enumerate(shares[row]):
            left, far, color = (
                room + column * CONFUSION_CELL,
                CONFUSION_CELL - 2,
                colors()[round(float(share) * 255)],
            )
            draw.rectangle((left, top, left + far, top + far), fill=tuple(color.tolist()))
            # Viridis is dark below and light above: the number takes the other end.
            ink, place = (20, 20, 20) if share > 0.6 else (255, 255, 255), (left + half, top + half)
            draw.text(place, str(int(table[row, column])), fill=ink, anchor="mm")
    return np.asarray(picture)


@dataclass(frozen=True)
class Reliability:
    """Texts in bins of confidence; 0 where there is no text."""

    counts: Int[np.ndarray, " M"]  # how many texts are in each bin
    confidence: Float[np.ndarray, " M"]  # mean probability of the prediction in each
    accuracy: Float[np.ndarray, " M"]  # share of them that is right


def reliability(
    confidence: Float[np.ndarray, " N"], is_right: Bool[np.ndarray, " N"]
) -> Reliability:
    """Put texts into 15 bins of confidence: bin m holds those in ((m - 1) / 15, m / 15] (Guo et al. 2017, section 2).

    The confidence is the probability of a text's prediction, which is right if it is the text's label.
    """
    places = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    means = (
        np.bincount(places, values, BINS) / np.maximum(counts, 1)
        for values in (confidence, is_right)
    )
    return Reliability(counts, *means)


def reliability_picture(panels: Mapping[str, Reliability]) -> np.ndarray:
    """Draw accuracy by confidence, a panel for each title, and below the texts of a bin (Guo et al. 2017, figure 1).

    The black line on a bar is the bin's accuracy, red goes from there up or down to its mean confidence, and on the
    diagonal both would be equal. Counts have one scale for all panels.
    """
    width = LEFT + SIDE + 4 * GAP
    picture = Image.new("RGB", (width * len(panels), place_of_counts() + MARGIN + GAP), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    most = max(int(panel.counts.max()) for panel in panels.values())  # of any bin
    for number, (title, panel) in enumerate(panels.items()):
        left = number * width + LEFT
        write(draw, (left, 3), title, None)
        write(
            draw,
            (left, MARGIN),
            "black line: accuracy; red: from there to the mean confidence",
            None,
        )
        for place in range(BINS):
            if panel.counts[place]:
                _draw_bin(draw, left + place * CELL, panel, place, most)
        _draw_axes(draw, left)
    return np.asarray(picture)


def add_picture(writer: Any, tag: str, picture: np.ndarray, step: int) -> None:
    """Write a picture [height, width, 3] of bytes. SummaryWriter.add_image takes four times as long to save a tenth."""
    file, (height, width, _) = BytesIO(), picture.shape
    Image.fromarray(picture).save(file, format="PNG", compress_level=1)
    image = Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=file.getvalue()
    )
    value = Summary.Value(tag=tag, image=image)
    add_summary(writer, Summary(value=[value]), step)


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


def _draw_bin(
    draw: ImageDraw.ImageDraw, left: int, panel: Reliability, place: int, most: int
) -> None:
    accuracy, confidence = float(panel.accuracy[place]), float(panel.confidence[place])
    count, right, base = int(panel.counts[place]), left + CELL - 2, place_of_counts()
    draw.rectangle((left, height_of(accuracy), right, height_of(0.0)), fill=BOTH)
    draw.rectangle((left, height_of(max(accuracy, confidence)), right, height_of(min(accuracy, confidence))),
                   fill=DIFFERENCE)  # fmt: skip
    draw.line((left, height_of(accuracy), right, height_of(accuracy)), fill=INK, width=2)
    top = base - max(1, round(count / most * COUNTS))
    draw.rectangle((left, top, right, base - 1), fill=TEXTS)
    _number(
        draw, (left + CELL // 2 - 1, top - 7), str(count) if count < 10_000 else f"{count // 1000}k"
    )


def _number(draw: ImageDraw.ImageDraw, place: tuple[int, int], number: str) -> None:
    font, shown = font_for(number, 10)
    draw.text(place, shown, fill=INK, font=font, anchor="mm")


def font_for(text: str, size: int, configured: str | None = None) -> tuple[Font, str]:
    """Return a font for this text, and the text with what that font lacks replaced by its code; `size` in pixels."""
    needed = {character for character in text if not character.isspace()}
    if all(character.isascii() for character in needed):
        return _default(size), text
    for path in ([configured] if configured else []) + list(font_files()):
        font = _open(path, size)
        if font is not None and all(_has(path, character) for character in needed):
            return font, text
    codes = (
        character if character.isascii() else f"<U+{ord(character):04X}>" for character in text
    )
    return _default(size), "".join(codes)


@cache
def font_files() -> tuple[str, ...]:
    """Return the font files of this machine, the preferred ones first."""
    places = [Path(place).expanduser() for place in PLACES.get(sys.platform, PLACES["linux"])]
    found = [
        path
        for place in places
        for path in sorted(place.rglob("*"))
        if path.suffix in (".ttf", ".ttc", ".otf")
    ]
    rank = {name: number for number, name in enumerate(PREFERRED)}
    # Bold and italic faces come last: they are there for emphasis.
    found.sort(
        key=lambda path: (
            rank.get(path.stem, len(rank)),
            "Bold" in path.stem or "Italic" in path.stem,
        )
    )
    return tuple(map(str, found))


@cache
def _open(path: str, size: int) -> Font | None:
    try:
        return ImageFont.truetype(path, size)
    except OSError:  # a broken file, or a form that FreeType cannot read
        return None


@cache
def _has(path: str, character: str) -> bool:
    """Tell whether the font draws the character otherwise than one that no font has."""
    font = _open(path, 16)
    if font is None:
        return False
    drawn, missing = font.getmask(character), font.getmask("\U0010fffe")
    return drawn.size != missing.size or bytes(drawn) != bytes(missing)


@cache
def _default(size: int) -> Font:
    return ImageFont.load_default(size)
