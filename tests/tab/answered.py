"""A record that has everything a finished run's has, made up: effects, roles.

L layers, H heads, T tokens, C classes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.tab.summaries import write_marker
from records import step_arrays

CLASSES = ["bad", "good"]
ANSWER = (
    "On 128 other texts layer 1 head 1 alone keeps 93.2 of 95.2 % (−3.9 to −0.2 points), without"
    " heads 50.0 %. Replacing attention by plain averages costs 3.4 points (1.4 to 5.6)."
)


def answered_run(
    folder: Path,
    layers: int = 2,
    heads: int = 4,
    tokens: int = 12,
    steps: tuple[int, ...] = (0, 100, 200, 300),
    kept: int = 200,
    seed: int = 0,
    texts: int = 2,
    classes: Sequence[str] = CLASSES,
    sentences: str = ANSWER,
) -> HeadRecorder:
    """Write a run whose best step is `kept`. Head 1 of its last layer matters most.

    Head 0 there has no effect; of all others the odd ones matter less, the even ones are
    inconclusive.
    """  # fmt: skip
    random = np.random.default_rng(seed)
    words = ["[CLS]", *(f"word{place}" for place in range(1, tokens - 1)), "[SEP]"]
    sentence = " ".join(words[1:-1])
    ends = [0, tokens - 1]
    shown = [
        Text(f"probe_{number}", words, sentence, classes[number % 2], None, ends, 0)
        for number in range(texts)
    ]
    recorder = HeadRecorder(
        folder, shown, classes, notes={"precision": "32-true", "dropout": "off"}
    )
    shape = (layers, heads)
    for step in steps:
        logits = random.normal(size=(texts, layers, heads, tokens, tokens)) * (1 + step / 100)
        maps = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        maps[:, 0, 0] = np.eye(tokens)[0]  # a sink: all weight to [CLS]
        error = np.full(shape, 0.01)
        numbers = {name: (random.uniform(size=shape), error) for name in ("entropy_share", "first")}
        roles = np.full(shape, "no clear pattern")
        extra: dict[str, Any] = {"roles": roles, "roles/score": random.uniform(size=shape)}
        extra["roles"][0, 0] = "first-token sink"
        if step == kept:
            numbers |= {"loss_zeroed": effects(layers, heads)}
            extra |= {"answer": sentences}
            extra |= answer(layers, heads)
            extra |= of_texts(random, layers, heads, tokens, texts, len(classes))
        likely = [random.dirichlet([2, *[1] * (len(classes) - 1)]) for _ in range(texts)]
        checks = [1e-7] * texts
        arrays = step_arrays(maps, numbers, as_stored(extra), probabilities=likely, check=checks)
        recorder.write(step, arrays)
    recorder.index.best = kept
    recorder.amend(kept, {})
    write_marker(folder)
    return recorder


def effects(layers: int, heads: int) -> tuple[np.ndarray, np.ndarray]:
    mean, error = np.full((layers, heads), 0.004), np.full((layers, heads), 0.01)
    mean[:, 1::2] = 0.1 + 0.01 * np.arange(layers * len(range(1, heads, 2))).reshape(layers, -1)
    mean[-1, :2], error[-1, :2] = (0.0001, 0.41), (0.0005, 0.03)
    return mean, error


def answer(layers: int, heads: int) -> dict[str, Any]:
    states = np.full((layers, heads), -1)
    states[:, 1::2] = 1
    states[-1, 0] = 0
    return {"effects": states}


def contribution_arrays(
    words: np.ndarray, heads: np.ndarray, biases: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the parts [T, K], [L, H, T, K], [L + 1, K] of logits, as a record has them."""
    log_odds = words.sum(axis=0) + biases.sum(axis=0)
    above = np.cumsum(biases[::-1], axis=0)[::-1][1:]  # [L, K]
    return {
        "contributions/words": words,
        "contributions/heads": heads,
        "contributions/biases": biases,
        "contributions/log_odds": log_odds,
        "contributions/past": log_odds - np.nansum(heads, axis=(1, 2)) - above,
    }


def of_texts(
    random: np.random.Generator, layers: int, heads: int, tokens: int, texts: int, classes: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in range(texts):
        by_token = random.normal(size=(layers, heads, tokens, classes)) / (5 * tokens)
        by_token[-1, 1, min(2, tokens - 1), text % 2] += 2.5
        values = {
            "contributions/classes": np.arange(classes),
            "contributions/shown": [text % 2, 1 - text % 2],
            **contribution_arrays(
                by_token[-1].sum(axis=0), by_token, np.full((layers + 1, classes), 0.1)
            ),
            "without/heads": random.dirichlet([1] * classes, size=(layers, heads)),
        }
        found |= {f"text_{text}/{name}": value for name, value in values.items()}
    return found


def as_stored(values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return arrays with integers and floats of 32 bits."""
    kinds = {"i": np.int32, "f": np.float32}
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return {
        name: array.astype(kinds.get(array.dtype.kind, array.dtype))
        for name, array in arrays.items()
    }
