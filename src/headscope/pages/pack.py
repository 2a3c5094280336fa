"""A run's network, tokenizer and n-grams as one dict of JSON, which classifier.js computes with.

Weights are one bundle of arrays, gzipped, in base64. What JavaScript cannot compute is rejected
by name: LivePageError.
"""

import base64
import gzip
import json
import re
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tokenizers import Tokenizer, normalizers

from headscope.data.tokenizer import units
from headscope.data.units import (
    CHARACTERS,
    KATAKANA,
    LANGUAGES,
    LETTER,
    UNIT,
    UNSPACED,
    is_hidden,
)
from headscope.ground.errors import LivePageError
from headscope.model.objective import MultiLabel, thresholds_of
from headscope.record.reader import pack
from headscope.settings.checks import flatten
from headscope.settings.config import TokenizerConfig

if TYPE_CHECKING:
    from headscope.runs.run import Run

TABLE = "embedding.token.weight"  # one of the two large ones, which alone are in float16
SUPPORTED = {
    "model.path": None,
    "model.features": None,
    "model.attention": "multi_head",
    "model.pooling": "first",
    "model.causal": False,
    "tokenizer.kind": "words",
}
# Code points that may be letters: in no other plane has Unicode any. Surrogates are none.
CODES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]


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
        "tokenizer": tokenizer_content(
            run.tokenizer, run.config.tokenizer, run.config.data.most_tokens
        ),
        "blob": base64.b64encode(gzip.compress(pack(arrays), 9, mtime=0)).decode("ascii"),
    }


def check_supported(run: "Run") -> None:
    """Raise LivePageError for the first setting that the page has no code for."""
    settings = flatten(asdict(run.config))
    for key, expected in SUPPORTED.items():
        if settings[key] != expected:
            shown = "null" if expected is None else expected
            raise LivePageError(f"{key}: expected {shown}, got {settings[key]}")


@cache
def _lower_cases() -> list[str]:
    """Return each code point that has a lower case, followed by it: no browser's Unicode counts."""
    normalizer = normalizers.Lowercase()
    characters = map(chr, CODES)
    lowered = ((character, normalizer.normalize_str(character)) for character in characters)
    return [character + lower for character, lower in lowered if lower != character]


def tokenizer_content(
    tokenizer: Tokenizer, config: TokenizerConfig, max_length: int
) -> dict[str, Any]:
    """Return what the page needs to cut a text into the same tokens."""
    start, end = tokenizer.encode("").ids
    model = json.loads(tokenizer.to_str())["model"]
    ids = tokenizer.get_vocab()
    return {
        "special": {
            "unknown": tokenizer.token_to_id(model["unk_token"]),
            "start": start,
            "end": end,
        },
        "vocabulary": sorted(ids, key=ids.__getitem__),
        "lowercase": config.lowercase,
        "lower": _lower_cases(),
        "max_length": max_length,
        "characters": CHARACTERS,
        "katakana": KATAKANA,
        "letters": letters_of(tokenizer.to_str()),
        "hidden": _hidden(),
        "decomposed": _decomposed(),
        "units": _units(),
    }


@cache
def _units() -> dict[str, Any]:
    """Return what the page needs to join tokens into the same words.

    The models are those of BudouX (Google, Apache License 2.0). A run of Thai is one token here.
    """
    is_letter = re.compile(LETTER).fullmatch
    return {
        "unit": UNIT.replace(LETTER, "LETTER"),
        "letters": _ranges([code for code in CODES if is_letter(chr(code))]),
        "unspaced": UNSPACED,
        "languages": [(LANGUAGES[it], units().phrases[it].model) for it in ("ja", "zh-hans")],
        "license": "BudouX: Copyright 2021 Google LLC, https://apache.org/licenses/LICENSE-2.0",
    }


@cache
def letters_of(content: str) -> list[int]:
    """Return the code points that a tokenizer does not cut from a letter before them.

    They are first, last, first, last, ...
    """
    pre_tokenizer = Tokenizer.from_str(content).pre_tokenizer
    letters = []
    for code in CODES:
        text = f"a{chr(code)}"
        if [span for _, span in pre_tokenizer.pre_tokenize_str(text)] == [(0, len(text))]:
            letters.append(code)
    return _ranges(letters)


@cache
def _hidden() -> list[int]:
    """Return the code points that are shown by number: no browser's Unicode counts."""
    return _ranges([code for code in CODES if is_hidden(chr(code))])


@cache
def _decomposed() -> list[int]:
    """Return the code points that the tokenizer's NFKD changes: a browser's may be newer."""
    normalizer = normalizers.NFKD()
    return _ranges([code for code in CODES if normalizer.normalize_str(chr(code)) != chr(code)])


def _ranges(codes: list[int]) -> list[int]:
    ranges: list[int] = []
    for code in codes:
        if ranges and code == ranges[-1] + 1:
            ranges[-1] = code
        else:
            ranges += [code, code]
    return ranges
