"""Steps of a record, put together by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def random_maps(seed: int, layers: int, heads: int, tokens: int) -> np.ndarray:
    """Return maps [layer, head, query, key], all of them different."""
    scores = np.exp(
        2 * np.random.default_rng(seed).standard_normal((layers, heads, tokens, tokens))
    )
    return np.asarray(scores / scores.sum(axis=-1, keepdims=True), np.float32)


def step_arrays(
    maps: Sequence[Sequence[np.ndarray]],
    numbers: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    **of_texts: Sequence[Any],
) -> dict[str, np.ndarray]:
    """Return a step from the maps of each text, each measure's mean and error, and more of texts.

    `of_texts` are such as probabilities=[of the first text, of the second]; None is left out.
    """
    arrays = dict(extra or {})
    for measure, both in (numbers or {}).items():
        for kind, values in zip(("mean", "error"), both, strict=True):
            arrays[f"numbers/{measure}/{kind}"] = values
    for text, layers in enumerate(maps):
        for layer, weights in enumerate(layers):
            arrays[f"text_{text}/layer_{layer}/weights"] = weights
    for name, each in of_texts.items():
        for text, value in enumerate(each):
            if value is not None:
                arrays[f"text_{text}/{name}"] = np.asarray(value, np.float32)
    return arrays
