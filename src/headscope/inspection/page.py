"""One HTML file that shows every attention head of a text, or of several, with nothing fetched from elsewhere.

The page is ``static/page.html`` with the style sheet, the scripts and the report put inside it. Text and
tokens are untrusted: they travel as JSON without any character that HTML reads as markup, the scripts write them
with ``textContent`` alone, and a Content-Security-Policy lets the browser run this one script and fetch nothing.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from cmap import Colormap
from numpy.typing import NDArray

from headscope.files import write_whole
from headscope.inspection.pairs import check_segments, quadrants
from headscope.inspection.record import encodable, levels_of

STATIC = Path(__file__).with_name("static")
STYLES = ("shared/map.css", "shared/pairs.css", "page.css")
SCRIPTS = (
    "report.js",
    "shared/direction.js",
    "shared/axes.js",
    "shared/pairs.js",
    "selection.js",
    "color.js",
    "header.js",
    "grid.js",
    "head.js",
    "tokens.js",
    "text.js",
    "pooling.js",
    "numbers.js",
    "chooser.js",
    "main.js",
)


@dataclass(frozen=True, eq=False)
class HeadReport:
    """One head: its map [query, key], rows summing to 1, and numbers; if cut, the whole's quadrants; what it put."""

    weights: NDArray[np.floating[Any]]
    numbers: dict[str, float]
    quadrants: NDArray[np.floating[Any]] | None = None
    spoken: str | None = None


@dataclass(frozen=True)
class LayerReport:
    """One layer: the name that the page prints, and its heads."""

    name: str
    heads: list[HeadReport]


@dataclass(frozen=True, eq=False)
class Report:
    """What one page shows: a text, its tokens in their shown form, every head, and what the model predicted.

    ``probabilities`` goes from class name to probability, ``label`` is the true class where it is known, and
    ``notes`` says where all this comes from: the run, the model's size, and so on. ``pooling`` [tokens], where
    the model has one, says how much each token counts in the text's vector; it sums to 1. ``prediction`` is what
    the text is given, where that is not the likeliest class but any number of them, written as ``label`` is. Of a
    pair of texts, ``segments`` says which of them each token is of: 0, 1, or None for special tokens.
    """

    title: str
    text: str
    tokens: list[str]
    layers: list[LayerReport]
    probabilities: dict[str, float]
    label: str | None
    notes: dict[str, str]
    pooling: NDArray[np.floating[Any]] | None = None
    prediction: str | None = None
    segments: list[int | None] | None = None


def page(report: Report) -> str:
    """Return the whole page as one string of HTML, to be stored as UTF-8."""
    check(report)
    return filled(report.title, encode_report(report))


def page_of_texts(title: str, reports: Sequence[Report]) -> str:
    """Return a page with a list of texts, of which one at a time is shown as `page` shows it.

    Raises:
        ValueError: if there is no text, or one that `check` refuses.
    """
    if not reports:
        raise ValueError("a page of texts needs at least one")
    for report in reports:
        check(report)
    return filled(title, {"title": title, "reports": list(map(encode_report, reports))})


def filled(title: str, data: dict[str, Any]) -> str:
    """Return the template with the style sheet, the scripts and what they show put in."""
    style = "".join((STATIC / name).read_text("utf-8") for name in STYLES)
    script = join_scripts()
    template = Template((STATIC / "page.html").read_text("utf-8"))
    return template.substitute(
        policy=content_security_policy(script, style),
        title=html.escape(encodable(title)),
        style=style,
        data=inert_json(data),
        script=script,
    )


def write_page(path: Path, report: Report) -> None:
    """Write the page to ``path`` whole or not at all, so that a failure leaves an older page as it was."""
    write_content(path, page(report))


def write_page_of_texts(path: Path, title: str, reports: Sequence[Report]) -> None:
    """Write the page of several texts to ``path``, whole or not at all too."""
    write_content(path, page_of_texts(title, reports))


def write_content(path: Path, content: str) -> None:
    """Write a page as UTF-8, whole or not at all."""
    encoded = content.encode("utf-8")
    write_whole(path, lambda temporary: temporary.write_bytes(encoded))


def check(report: Report) -> None:
    """Raise ValueError unless there is a head, maps [tokens, tokens] and pooling [tokens] are weights, segments fit."""
    count = len(report.tokens)
    if count == 0 or not any(layer.heads for layer in report.layers):
        raise ValueError("a page needs at least one token and one head")
    for layer in report.layers:
        for index, head in enumerate(layer.heads):
            check_weights(f"{layer.name}, head {index}", "map", head.weights, (count, count))
    if report.pooling is not None:
        check_weights("pooling", "vector", report.pooling, (count,))
    if report.segments is not None:
        check_segments(report.segments, count, "page")


def check_weights(where: str, kind: str, weights: NDArray[np.floating[Any]], shape: tuple[int, ...]) -> None:
    """Raise ValueError, which says ``where``, unless ``weights`` has this shape and is finite and >= 0."""
    if weights.shape != shape:
        raise ValueError(f"{where}: {kind} of shape {weights.shape} for {shape[-1]} tokens")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"{where}: a weight is negative or not finite")


def encode_report(report: Report) -> dict[str, Any]:
    """Return the report as the plain values that ``report.js`` reads.

    Pairs stand for dictionaries, since an object in JavaScript moves a class that is called "7" to its front.
    """
    heads = [head for layer in report.layers for head in layer.heads]
    columns = list(dict.fromkeys(name for head in heads for name in head.numbers))
    layers = [
        {"name": layer.name, "heads": [encode_head(head, columns, report.segments) for head in layer.heads]}
        for layer in report.layers
    ]
    return {
        "title": report.title,
        "text": report.text,
        "tokens": report.tokens,
        "columns": columns,
        "layers": layers,
        "probabilities": [[name, finite(value)] for name, value in report.probabilities.items()],
        "label": report.label,
        "prediction": report.prediction,
        "notes": list(report.notes.items()),
        "pooling": None if report.pooling is None else encode_map(report.pooling[None]),  # a map of one row
        "segments": report.segments,
        "colors": to_base64(color_table()),
    }


def encode_head(head: HeadReport, columns: list[str], segments: list[int | None] | None) -> dict[str, Any]:
    """Return one head's encoded map, its numbers in the order of ``columns``, and of a pair A->A, A->B, B->A, B->B."""
    numbers = [finite(head.numbers.get(name, math.nan)) for name in columns]
    encoded = {**encode_map(head.weights), "numbers": numbers, "spoken": head.spoken, "quadrants": None}
    if segments is None:
        return encoded
    shares = quadrants(head.weights, segments) if head.quadrants is None else head.quadrants
    return {**encoded, "quadrants": list(map(finite, shares.ravel().tolist()))}


def encode_map(weights: NDArray[np.floating[Any]]) -> dict[str, str]:
    """Return the levels and the scales of weights [query, key] as base64."""
    levels, scales = levels_of(weights)
    return {"levels": to_base64(levels), "scales": to_base64(scales.astype("<f4"))}


def color_table() -> NDArray[np.uint8]:
    """Return viridis as bytes [256, rgb]; in it equal steps of weight look like equal steps of colour."""
    colors: NDArray[np.float64] = np.asarray(Colormap("viridis").lut(256)[:, :3])
    return np.rint(colors * 255).astype(np.uint8)


def to_base64(values: NDArray[Any]) -> str:
    """Return the array's bytes, row after row, as base64."""
    return base64.b64encode(values.tobytes()).decode("ascii")


def finite(value: float) -> float | None:
    """Return ``value``, or None where it is not a number that JSON knows."""
    return float(value) if math.isfinite(value) else None


def inert_json(value: object) -> str:
    r"""Return ``value`` as ASCII JSON in which ``<``, ``>`` and ``&`` are written as \u escapes.

    HTML then finds no tag, comment or entity in it, whatever the text holds; JSON.parse gives the text back.
    """
    data = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return data.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})


def join_scripts() -> str:
    """Return the scripts as one, inside a function that keeps their names out of the page's global scope.

    Those in shared/ are modules of the Heads tab as well; here all names are in one scope, so nothing is imported.
    """
    sources = "\n".join((STATIC / name).read_text("utf-8") for name in SCRIPTS)
    plain = re.sub(r"^(import .*;\n+|export )", "", sources, flags=re.MULTILINE)
    return f'"use strict";\n(() => {{\n{plain}}})();\n'


def content_security_policy(script: str, style: str) -> str:
    """Return a policy that permits this script and this style sheet, by their hashes, and nothing else."""
    return (
        f"default-src 'none'; script-src '{content_hash(script)}'; style-src '{content_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def content_hash(content: str) -> str:
    """Return the hash of an inline element's content as a policy writes it."""
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
