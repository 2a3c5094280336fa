"""What a page holds, read back from its file."""

import base64
import json
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.record.reader import ALIGNMENT, TYPES


def unpack(bundle: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a bundle, as JavaScript reads it."""
    (length,) = struct.unpack_from("<I", bundle)
    start = 4 + length + -(4 + length) % ALIGNMENT
    arrays = {}
    for entry in json.loads(bundle[4 : 4 + length]):
        kind, size = TYPES[entry["type"]], math.prod(entry["shape"])
        values = np.frombuffer(bundle, kind, size, start + entry["offset"])
        arrays[entry["name"]] = values.reshape(entry["shape"])
    return arrays


@dataclass
class Shown:
    """A text of a page: what the index says of it, its arrays, and measure -> [layer][head]."""

    text: dict[str, Any]
    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    classes: list[str]

    def weights(self, layer: int) -> np.ndarray:
        """Return the maps [head, query, key]."""
        return self.arrays[f"layer_{layer}/weights"].astype(np.float32)

    @property
    def probabilities(self) -> dict[str, float]:
        return dict(zip(self.classes, self.arrays["probabilities"].tolist(), strict=True))


def texts_of(content: str) -> list[Shown]:
    """Return the texts of a page."""
    match = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', content, re.DOTALL
    )
    assert match
    data = json.loads(match[1])
    return [
        Shown(
            text,
            unpack(base64.b64decode(own["maps"])),
            {name: kinds["mean"] for name, kinds in own["numbers"]["measures"].items()},
            data["index"]["classes"],
        )
        for text, own in zip(data["index"]["texts"], data["texts"], strict=True)
    ]
