"""A text whose logits are the sums of made-up contributions, and what a page shows of it."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from heads_server import maps_of

from headscope.record.schema import PageText, Text

CLASSES = ["bad", "good", "mixed"]
WORDS = ["[CLS]", "a", "proprie", "tary", "film", ".", "[SEP]"]  # a word of two tokens
NAMES = ["a", "proprietary", "film", "."]


def explained(
    words: list[str],
    text: str,
    layers: int = 1,
    heads: int = 2,
    several: bool = False,
    seed: int = 0,
    label: str | None = None,
    classes: int = 3,
    names: Sequence[str] = (),
) -> tuple[PageText, dict[str, np.ndarray]]:
    """Return a text whose logits are the sums of its contributions, and these."""
    random = np.random.default_rng(seed)
    T, C = len(words), len(CLASSES[:classes])
    parts = {
        "heads": random.normal(size=(layers, heads, T, C)) / heads,
        "head_biases": random.normal(size=(layers, heads, C)) / 9,
        "past": random.normal(size=(T, C)) / 9,
        "past_biases": random.normal(size=C),
    }
    parts["words"] = parts["heads"].sum((0, 1)) + parts["past"]
    parts["biases"] = parts["head_biases"].sum((0, 1)) + parts["past_biases"]
    parts["through"] = parts["heads"].sum(2)
    parts["log_odds"] = logits = parts["words"].sum(0) + parts["biases"]
    shares = np.exp(logits) / np.exp(logits).sum()
    if several:
        shares = 1 / (1 + np.exp(-logits))
    order = np.argsort(-logits)
    parts = {name: part[..., order] for name, part in parts.items()}
    arrays: dict[str, Any] = {f"contributions/{name}": part for name, part in parts.items()}
    arrays["probabilities"] = shares
    arrays["contributions/maps"] = random.normal(size=(layers, heads, T, T))
    for layer, weights in enumerate(maps_of(0, layers, heads, T)):
        arrays[f"layer_{layer}/weights"] = weights
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    against = -1 if several else order[1]
    arrays["contributions/classes"] = order.astype(np.int32)
    arrays["contributions/shown"] = np.array([order[0], against], np.int32)
    if several:
        arrays["given"] = (shares > 0.5).astype(np.uint8)
    ends = [place for place, word in enumerate(words) if word in ("[CLS]", "[SEP]")]
    if words == WORDS:
        names = NAMES
    read = {"words": spans(words, names), "places": places_of(words, text)}
    shown = Text("text", words, text, label, None, ends, 0, **read)
    return PageText(shown, arrays), parts


def spans(tokens: list[str], names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return words with their tokens; without names each token but the first and last is one."""
    found, start = [], 1
    for name in names or tokens[1:-1]:
        end = start + 1
        while "".join(tokens[start:end]) != name.replace("\u200d", ""):
            end += 1
        found.append((name, start, end))
        start = end
    return found


def places_of(tokens: list[str], text: str) -> list[tuple[int, int]]:
    """Return where tokens stand in the text, as JavaScript counts."""
    places, end = [], 0
    for token in tokens:
        start = text.find(token, end)
        end = end if start < 0 else start + len(token)
        edges = (0, 0) if start < 0 else (start, end)
        first, last = (len(text[:edge].encode("utf-16-le")) // 2 for edge in edges)
        places.append((first, last))
    return places


def numbers(words: str) -> list[float]:
    """Return the numbers with two decimals, to the hundredth."""
    return [float(found.replace("−", "-")) for found in re.findall(r"[+−]?\d+\.\d\d", words)]


def texts_in(tab: Any, selector: str) -> list[str]:
    found: list[str] = tab.locator(selector).all_text_contents()
    return found
