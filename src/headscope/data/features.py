"""Hidden states of a frozen encoder, beside each token id: computed once, and kept in the cache.

They are kept in float16, one file for each split, which is mapped into memory. Shape letters: N
texts, F width of the hidden states.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from headscope.data.batching import EncodedTexts, TextBatches, TokenBudgetSampler, moved
from headscope.ground.errors import ConfigError
from headscope.ground.files import write_atomic

TEXTS_AT_ONCE = 1_000  # written together, so that memory does not grow with the data
TOKENS_PER_BATCH = 2_048
MOST_GIB = 8  # of a split
RECIPE = 1  # raise it when the code below computes something else, so that no old file is read
Advance = Callable[[int, int], object]  # called with the texts that are done, and all


def hidden_states(
    encoder: nn.Module,
    settings: str,
    texts: EncodedTexts,
    cache: Path,
    device: torch.device,
    advance: Advance,
) -> Float[np.ndarray, "tokens F"] | None:
    """Return the hidden state at each token id, from the cache if it was computed before.

    None where they need more than 8 GiB: the network then computes them for each batch.

    Args:
        encoder: returns hidden states [B, T, F], and knows its `width`.
        settings: what they depend on beside the texts, such as a digest of the weights.
        texts: token ids.
        cache: where files are kept, named by all that they depend on.
        device: where to compute.
        advance: is told how many texts are done.
    """
    shape = (len(texts.ids), int(encoder.width))  # type: ignore[arg-type]
    if 2 * shape[0] * shape[1] > MOST_GIB * 2**30:
        return None
    key = hashlib.blake2b(f"{RECIPE} {torch.__version__} {settings}".encode(), digest_size=16)
    for array in (texts.ids, texts.starts, texts.segments):
        key.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    path = cache / "features" / f"{key.hexdigest()}.f16"
    if not path.exists():
        encoder.to(device).eval()
        write_atomic(path, lambda file: _write(encoder, texts, file, device, advance))
    return np.memmap(path, np.float16, "r", shape=shape)


def _write(
    encoder: nn.Module, texts: EncodedTexts, path: Path, device: torch.device, advance: Advance
) -> None:
    batches = TextBatches(texts)
    count = len(texts.lengths)
    width = int(encoder.width)  # type: ignore[arg-type]
    with path.open("wb") as file, torch.inference_mode():
        for start in range(0, count, TEXTS_AT_ONCE):
            stop = min(start + TEXTS_AT_ONCE, count)
            first = texts.starts[start]
            table = np.empty((texts.starts[stop] - first, width), np.float16)
            for rows in TokenBudgetSampler(texts.lengths[start:stop], TOKENS_PER_BATCH):
                batch = moved(batches[[start + row for row in rows]], device)
                states = encoder(*batch.inputs[:3]).half().cpu().numpy()  # [B, T, F]
                for row, of_text in zip(batch.rows.tolist(), states, strict=True):
                    begin = texts.starts[row] - first
                    end = texts.starts[row + 1] - first
                    table[begin:end] = of_text[: end - begin]
            if not np.isfinite(table).all():
                raise ConfigError(
                    "model.features_layer: expected a layer whose hidden states fit into float16, "
                    "got infinities; choose another layer"
                )
            file.write(table.tobytes())
            advance(stop, count)
