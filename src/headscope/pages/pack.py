"""A run's network, tokenizer and n-grams as one dict of JSON, which classifier.js computes with.

Weights are one bundle of arrays in base64, gzipped but in 8 bits, where that saves a twentieth
and costs a reader half a second. What JavaScript cannot compute is rejected
by name: LivePageError.
"""

import base64
import gzip
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.ground.errors import LivePageError
from headscope.heads.linear import gauss_legendre
from headscope.model.architecture import Architecture
from headscope.model.classifier import Ensemble
from headscope.model.families import architecture_of, why_not_opened
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.pages.stored import Storage, stored_arrays
from headscope.pages.tokenizer import page_tokenizer
from headscope.record.reader import pack

if TYPE_CHECKING:
    from headscope.runs.run import Run

MB = 1_000_000
SHRUNK = 0.9  # of weights, about, once they are gzipped
MOST_AT_ONCE = 3e9  # multiplications from all heads to the words: half a second; else on request
# Of an architecture, what network.js reads; norms and biases are there, or they are not.
READ = (
    "d_model",
    "num_heads",
    "num_kv_heads",
    "feedforward_size",
    "norm",
    "norm_eps",
    "activation",
    "is_gated",
    "causal",
    "pooling",
    "token_width",
)
ATTENTION = ("multi_head",)
POOLING = ("first", "mean")
TOKENIZERS = ("words", "bpe")


def live_content(run: "Run", storage: Storage, max_mb: float | None = None) -> dict[str, Any]:
    """Return what the page needs to compute what the run computes; see `check_supported`.

    Raises:
        LivePageError: for a part of the tokenizer that the page has no code for; or if the weights
            alone are larger than `max_mb`, before they are packed.
    """
    architecture = _architecture(run)
    tokenizer = page_tokenizer(run.tokenizer, run.config.data.most_tokens, storage.kept)
    arrays = stored_arrays(run, storage, tokenizer["ids"])
    if run.evidence is not None:
        arrays["evidence.keys"] = run.evidence.keys
    size = SHRUNK * sum(array.nbytes for array in arrays.values()) * 4 / 3 / MB
    if max_mb is not None and size > 1.2 * max_mb:
        raise too_large(size, max_mb)
    bundle = pack(arrays)
    is_gzipped = storage.dtype != "int8"
    if is_gzipped:
        bundle = gzip.compress(bundle, 9, mtime=0)
    thresholds = None
    if isinstance(run.objective, MultiLabel):
        thresholds = thresholds_of(run.objective) or [0.5] * len(run.labels)
    return {
        "labels": run.labels,
        "temperature": run.temperature,
        "thresholds": thresholds,
        "architecture": _read(architecture),
        "members": len(run.model.members) if isinstance(run.model, Ensemble) else None,
        "frozen": _frozen(run),
        "points": gauss_legendre(len(architecture.layers)),
        "points_with_ends": gauss_lobatto(len(architecture.layers)),
        "most_at_once": MOST_AT_ONCE,
        "tokenizer": {name: it for name, it in tokenizer.items() if name != "ids"},
        "is_gzipped": is_gzipped,
        "blob": base64.b64encode(bundle).decode("ascii"),
    }


def gauss_lobatto(num_layers: int) -> list[tuple[float, float]]:
    """Return points and weights on 0 to 1, both ends among them: exact up to degree L - 1.

    At 0 the heads add nothing and at 1 all: what the page knows there costs nothing again.
    """
    count = num_layers // 2 + 2
    last = np.polynomial.legendre.Legendre.basis(count - 1)
    points = np.array([-1.0, *last.deriv().roots(), 1.0])
    weights = 2 / (count * (count - 1) * last(points) ** 2)
    return [*zip(((points + 1) / 2).tolist(), (weights / 2).tolist(), strict=True)]


def too_large(size: float, max_mb: float) -> LivePageError:
    """Return what is raised of a page of `size` MB."""
    return LivePageError(
        f"its network takes {size:.1f} MB, more than {max_mb:g}; "
        f"headscope page max_mb={math.ceil(size)} writes it"
    )


def _architecture(run: "Run") -> Architecture:
    """Return that of the network, or of each member."""
    model: Any = run.model.members[0] if isinstance(run.model, Ensemble) else run.model
    architecture: Architecture = model.architecture
    return architecture


def _read(architecture: Architecture) -> dict[str, Any]:
    pooler = architecture.pooler
    return {
        **{name: getattr(architecture, name) for name in READ},
        "layers": [layer._asdict() for layer in architecture.layers],
        "pooler": None if pooler is None else pooler._asdict(),
    }


def _frozen(run: "Run") -> dict[str, Any] | None:
    """Return the architecture of the frozen layers below the network, and those that are read."""
    model: Any = run.model
    if model.features is None:
        return None
    assert run.setup.encoder is not None
    architecture = architecture_of(run.setup.encoder)
    layers = [*model.features.layers]
    lower = replace(architecture, layers=architecture.layers[: max(layers)])
    return {**_read(lower), "layers_read": layers}


def check_supported(run: "Run") -> None:
    """Raise LivePageError for the first setting that the page has no code for."""
    if run.setup.is_foreign:
        raise LivePageError(
            "model.path: expected a checkpoint that opens into headscope's own network: "
            + why_not_opened(run.setup.encoder or {})
        )
    model = run.config.model
    asked: list[tuple[str, str, tuple[str, ...]]] = []
    if run.setup.encoder is None:
        asked.append(("tokenizer.kind", run.config.tokenizer.kind, TOKENIZERS))
    if model.path is None:
        asked.append(("model.attention", model.attention, ATTENTION))
        asked.append(("model.pooling", model.pooling, POOLING))
    for key, value, known in asked:
        if value not in known:
            raise LivePageError(f"{key}: expected {' or '.join(known)}, got {value}")
