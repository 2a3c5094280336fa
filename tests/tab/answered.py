"""A record that has everything a finished run's has, made up: effects, roles, contributions.

L layers, H heads, T tokens, C classes, and a text of each class.
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
L, T, C = 2, 12, 2
WORDS = ["[CLS]", *(f"word{place}" for place in range(1, T - 1)), "[SEP]"]
ANSWER = (
    "On 128 other texts layer 1 head 1 alone keeps 93.2 of 95.2 % (−3.9 to −0.2 points), without"
    " heads 50.0 %. Replacing attention by plain averages costs 3.4 points (1.4 to 5.6)."
)


def answered_run(
    folder: Path, heads: int = 4, steps: Sequence[int] = (0, 100, 200, 300), kept: int = 200
) -> HeadRecorder:
    """Write a run whose best step is `kept`. Head 1 of its last layer matters most.

    Head 0 there has no effect; of all others the odd ones matter less, the even ones are
    inconclusive.
    """
    random, shape = np.random.default_rng(0), (L, heads)
    texts = [
        Text(f"probe_{number}", WORDS, " ".join(WORDS[1:-1]), label, None, [0, T - 1], 0)
        for number, label in enumerate(CLASSES)
    ]
    recorder = HeadRecorder(folder, texts, CLASSES, notes={"precision": "32-true"})
    for step in steps:
        logits = random.normal(size=(C, *shape, T, T)) * (1 + step / 100)
        maps = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        maps[:, 0, 0] = np.eye(T)[0]  # a sink: all weight to [CLS]
        error = np.full(shape, 0.01)
        numbers = {name: (random.uniform(size=shape), error) for name in ("entropy_share", "first")}
        extra: dict[str, Any] = {"roles": np.full(shape, "no clear pattern")}
        extra["roles"][0, 0] = "first-token sink"
        extra["roles/score"] = random.uniform(size=shape).astype(np.float32)
        if step == kept:
            mean = np.full(shape, 0.004)
            mean[:, 1::2] = 0.1 + 0.01 * np.arange(L * heads // 2).reshape(L, -1)
            mean[-1, :2] = (0.0001, 0.41)
            error = np.full(shape, 0.01)
            error[-1, :2] = (0.0005, 0.03)
            states = np.full(shape, -1)
            states[:, 1::2] = 1
            states[-1, 0] = 0
            numbers["loss_zeroed"] = (mean, error)
            extra |= {"answer": np.array(ANSWER), "effects": states.astype(np.int32)}
            extra |= {
                name: array for text in range(C) for name, array in of_text(text, random, heads)
            }
        likely = [random.dirichlet([2, 1]) for _ in range(C)]
        arrays = step_arrays(maps, numbers, extra, probabilities=likely, check=[1e-7] * C)
        recorder.write(step, arrays)
    recorder.index.best = kept
    recorder.amend(kept, {})
    write_marker(folder)
    return recorder


def of_text(text: int, random: np.random.Generator, heads: int) -> list[tuple[str, np.ndarray]]:
    """Return the contributions to a text's logits, and what it would be given without heads."""
    shares = random.normal(size=(L, heads, T, C)) / (5 * T)
    shares[-1, 1, 2, text] += 2.5
    biases = np.full((L, heads, C), 0.01)
    words = shares.sum(axis=(0, 1))
    values = {
        "contributions/classes": np.arange(C),
        "contributions/shown": np.array([text, 1 - text]),
        "contributions/words": words,
        "contributions/heads": shares,
        "contributions/head_biases": biases,
        "contributions/past": np.zeros((T, C)),
        "contributions/past_biases": np.zeros(C),
        "contributions/biases": biases.sum(axis=(0, 1)),
        "contributions/through": shares.sum(axis=2),
        "contributions/log_odds": words.sum(axis=0) + biases.sum(axis=(0, 1)),
        "without/heads": random.dirichlet([1] * C, size=(L, heads)),
    }
    kinds = {"i": np.int32, "f": np.float32}
    return [(f"text_{text}/{name}", it.astype(kinds[it.dtype.kind])) for name, it in values.items()]
