"""What a page holds, read back from its file."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.record.reader import unpack
from headscope.record.schema import weights_from


@dataclass
class Shown:
    """A text of a page: what the index says of it, its arrays, and measure -> [layer][head]."""

    text: dict[str, Any]
    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    classes: list[str]

    def weights(self, layer: int) -> np.ndarray:
        """Return the maps [head, query, key]."""
        own = {
            name: self.arrays.get(f"layer_{layer}/{name}")
            for name in ("weights", "levels", "scales")
        }
        if own["weights"] is not None:
            return own["weights"]
        assert own["levels"] is not None
        assert own["scales"] is not None
        return weights_from(own["levels"], own["scales"])

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
