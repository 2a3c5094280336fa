"""A run's network, tokenizer and n-grams as one dict of JSON, which classifier.js computes with.

Weights are one bundle of arrays, gzipped, in base64. What JavaScript cannot compute is rejected
by name: LivePageError.
"""

import base64
import gzip
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headscope.ground.errors import LivePageError
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.pages.tokenizer import page_tokenizer
from headscope.record.reader import pack
from headscope.settings.checks import flatten

if TYPE_CHECKING:
    from headscope.runs.run import Run

TABLE = "embedding.token.weight"  # one of the two large ones, which alone are in float16
SUPPORTED = {
    "model.path": None,
    "model.features": None,
    "model.attention": "multi_head",
    "model.pooling": "first",
    "model.causal": False,
}


def live_content(run: "Run", dtype: Literal["float32", "float16"] = "float32") -> dict[str, Any]:
    """Return what the page needs to compute what the run computes; see `check_supported`."""
    config = run.config.model
    state = {name: array.cpu().numpy() for name, array in run.model.state_dict().items()}
    arrays: dict[str, np.ndarray] = {}
    for name, array in state.items():
        if name not in ("evidence.weight", "evidence.ratio"):
            arrays[name] = array.astype(dtype if name == TABLE else "float32")
    position = getattr(run.model.embedding, "position", None)
    if position is not None:  # a buffer of fixed positions is in no state dict
        arrays["embedding.position"] = position.detach().cpu().numpy()
    if run.evidence is not None:
        # What an n-gram says is its weight times its ratio: one number for each class.
        ratios = state["evidence.weight"] * state["evidence.ratio"]
        arrays["evidence.ratio"] = ratios.astype(dtype)
        arrays["evidence.keys"] = run.evidence.keys
    thresholds = None
    if isinstance(run.objective, MultiLabel):
        thresholds = thresholds_of(run.objective) or [0.5] * len(run.labels)
    return {
        "labels": run.labels,
        "temperature": run.temperature,
        "thresholds": thresholds,
        "width": config.d_model,
        "layers": config.num_layers,
        "heads": config.num_heads,
        "key_heads": config.num_kv_heads or config.num_heads,
        "rotary": config.positions == "rotary",
        "window": config.window,
        "tokenizer": page_tokenizer(run.tokenizer, run.config.data.most_tokens),
        "blob": base64.b64encode(gzip.compress(pack(arrays), 9, mtime=0)).decode("ascii"),
    }


def check_supported(run: "Run") -> None:
    """Raise LivePageError for the first setting that the page has no code for."""
    settings = flatten(asdict(run.config))
    for key, expected in SUPPORTED.items():
        if settings[key] != expected:
            shown = "null" if expected is None else expected
            raise LivePageError(f"{key}: expected {shown}, got {settings[key]}")
