"""A network's weights as a page stores them, and what that changes.

Weights of a checkpoint are 8-bit integers in blocks of 64 of a row, each with a scale, unless they
are asked for in float16 or float32; all that was learned from scratch is in float32 or float16. The
table of tokens may hold those alone that training saw.
"""

import copy
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from headscope.data.batching import encode_rows
from headscope.data.tokenizer import copied, tokenizer_of
from headscope.ground.mecab import write_tokenizer_json
from headscope.record.schema import Arrays

if TYPE_CHECKING:
    from headscope.runs.run import Run

Dtype = Literal["float32", "float16", "int8"]
BLOCK = 64  # numbers that share a scale
MOST = 127  # of an 8-bit integer, either way
MEASURED = 500  # validation texts
NEVER = -1e9  # score of a piece that is left out
TABLE = "embedding.token.weight"
POSITIONS = "embedding.position"
EXACT = ("evidence.", "head.", "segment.")  # small, or what a page must not round
EVIDENCE = ("evidence.weight", "evidence.ratio")  # of a whole network


@dataclass(frozen=True)
class Storage:
    """How a page stores a network.

    Attributes:
        dtype: of a checkpoint's weights; of the large tables of a network from scratch.
        kept: ids of tokens, to which others are added that any text needs; None: all.
        change: what dtype and kept change on validation texts; None: nothing, or not measured.
    """

    dtype: Dtype
    kept: Collection[int] | None = None
    change: "Change | None" = None


@dataclass(frozen=True)
class Change:
    """What storage changes on validation texts.

    Attributes:
        texts: how many were read.
        most: the largest change of a probability.
        labels: texts whose class is another.
    """

    texts: int
    most: float
    labels: int


def default_dtype(run: "Run") -> Dtype:
    """Return int8 for a run on a checkpoint, else float32."""
    return "int8" if run.setup.encoder is not None else "float32"


def stored_arrays(run: "Run", storage: Storage, ids: Sequence[int]) -> Arrays:
    """Return the arrays of a network, its table cut to `ids`; in int8 beside their scales."""
    found: Arrays = {}
    for name, weight in _weights(run):
        array = weight
        if _is_table(name, run):
            array = array[[*ids]]
        if name.endswith(POSITIONS):
            array = array[: run.config.data.most_tokens]
        kind = _dtype(name, array, run, storage.dtype)
        if kind == "int8":
            found[name], found[f"{name}.scale"] = quantized(array)
        else:
            found[name] = array.astype(kind)
    return found


def _weights(run: "Run") -> Iterable[tuple[str, np.ndarray]]:
    """Yield all weights by name, fixed positions too; what an n-gram says is one number a class."""
    state = {name: array.detach().cpu().numpy() for name, array in run.model.state_dict().items()}
    for name, buffer in run.model.named_buffers():  # fixed positions are in no state dict
        if name.endswith(POSITIONS):
            state[name] = buffer.cpu().numpy()
    for name, array in state.items():
        prefix = name.removesuffix("evidence.weight")
        if f"{prefix}evidence.ratio" in state:
            yield f"{prefix}evidence.ratio", array * state[f"{prefix}evidence.ratio"]
        elif not name.endswith("evidence.ratio"):
            yield name, array


def _is_table(name: str, run: "Run") -> bool:
    is_of_states = run.setup.config.model.features is not None and not name.startswith("features.")
    return name.endswith(TABLE) and not is_of_states


def _dtype(name: str, array: np.ndarray, run: "Run", dtype: Dtype) -> str:
    is_ratio = name.endswith("evidence.ratio")
    is_opened = run.config.model.path is not None or name.startswith("features.")
    halves = "float32" if dtype == "float32" else "float16"
    if is_ratio or (_is_table(name, run) and not is_opened):
        return halves
    if not is_opened or array.ndim != 2 or any(part in name for part in EXACT):
        return "float32"
    return halves if name.endswith(POSITIONS) else dtype


def quantized(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as 8-bit integers, and the scale of each block of a row: their products."""
    rows, width = array.shape
    blocks = np.pad(array.astype(np.float32), ((0, 0), (0, -width % BLOCK)))
    blocks = blocks.reshape(rows, -1, BLOCK)
    scales = np.abs(blocks).max(axis=2) / MOST
    whole = np.rint(blocks / np.where(scales == 0, 1, scales)[:, :, None]).astype(np.int8)
    return whole.reshape(rows, -1)[:, :width], scales.astype(np.float32)


def restored(array: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """Return the numbers in float32 as the page computes with them."""
    if scales is None:
        return array.astype(np.float32)
    steps: np.ndarray = np.repeat(scales, BLOCK, axis=1)[:, : array.shape[1]]
    numbers: np.ndarray = array * steps
    return numbers


# --- the vocabulary ---


def seen_ids(run: "Run", texts: Iterable[tuple[str, ...]]) -> set[int]:
    """Return the ids of all tokens of texts, also of what is not read of them."""
    whole = copied(run.tokenizer)
    whole.no_truncation()
    rows = [*texts]
    return set(encode_rows(whole, rows).ids.tolist()) if rows else set()


def _cut_tokenizer(tokenizer: Tokenizer, ids: Collection[int]) -> Tokenizer:
    """Return a tokenizer that has these ids alone, with the same numbers."""
    parts = json.loads(write_tokenizer_json(tokenizer))
    model: dict[str, Any] = parts["model"]
    kept = {*ids}
    if isinstance(model["vocab"], list):
        pieces = enumerate(model["vocab"])
        model["vocab"] = [[it, score if at in kept else NEVER] for at, (it, score) in pieces]
    else:
        own = {piece: number for piece, number in model["vocab"].items() if number in kept}
        model["vocab"] = own
        if "merges" in model:
            merges = model["merges"]
            model["merges"] = [[a, b] for a, b in merges if own.keys() >= {a, b, a + b}]
    cut = tokenizer_of(json.dumps(parts))
    if tokenizer.truncation is not None:
        cut.enable_truncation(tokenizer.truncation["max_length"])
    return cut


# --- what it changes ---


def measured(
    run: "Run", storage: Storage, ids: Collection[int], texts: Sequence[tuple[str, ...]]
) -> Change | None:
    """Return what storage changes on texts, of very many on some drawn at random."""
    if not texts or (storage.dtype == "float32" and storage.kept is None):
        return None
    drawn = np.random.default_rng(0).permutation(len(texts))[:MEASURED]
    rows = [texts[row] if len(texts[row]) > 1 else texts[row][0] for row in drawn]
    other = as_stored(run, storage, ids)
    pairs = [*zip(run.predict(rows), other.predict(rows), strict=True)]
    most = max(
        abs(before.probabilities[name] - after.probabilities[name])
        for before, after in pairs
        for name in run.labels
    )
    labels = sum(before.labels != after.labels for before, after in pairs)
    return Change(len(rows), most, labels)


def as_stored(run: "Run", storage: Storage, ids: Collection[int]) -> "Run":
    """Return the run as the page has it."""
    model = copy.deepcopy(run.model)
    whole = stored_arrays(run, replace(storage, kept=None), range(run.tokenizer.get_vocab_size()))
    weights: dict[str, Tensor] = {}
    expected = model.state_dict()
    for name in expected.keys() & whole.keys():
        array = restored(whole[name], whole.get(f"{name}.scale"))
        own = expected[name].clone()
        own[: len(array)] = torch.from_numpy(array)
        weights[name] = own
    for name in [name for name in weights if name.endswith("evidence.ratio")]:
        del weights[name]  # a ratio here is times its weight
    model.load_state_dict(weights, strict=False)
    setup = run.setup
    if storage.kept is not None:
        setup = replace(setup, tokenizer=_cut_tokenizer(run.tokenizer, ids))
    return replace(run, model=model, setup=setup)
