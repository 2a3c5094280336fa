"""Hidden states of a frozen encoder, beside each token id: computed once, and kept in the cache.

They are kept in float16, one file for each split that is read while a model trains, mapped into
memory. Shape letters: N texts, F width of the hidden states.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.batching import EncodedTexts, TextBatches, by_length, moved
from headscope.data.ngrams import ranges
from headscope.ground.errors import ConfigError
from headscope.ground.files import cached, digest

TOKENS_PER_BATCH = 2_048
MOST_GIB = 8  # of a split
RECIPE = 2  # raise it when the code below computes something else, so that no old file is read
StatesOf = Callable[..., Float[Tensor, "B T F"]]
Advance = Callable[[int, int], object]  # called with the number of texts done, and of all


def hidden_states(
    encoder: StatesOf,
    width: int,
    settings: str,
    texts: EncodedTexts,
    cache: Path,
    device: torch.device,
    advance: Advance,
) -> Float[np.ndarray, "tokens F"] | None:
    """Return the hidden state at each token id, from the cache if it was computed before.

    None where they need more than 8 GiB: the network then computes them for each batch.

    Args:
        encoder: returns hidden states [B, T, F] on `device`.
        width: F.
        settings: what they depend on beside the texts, such as a digest of the weights.
        texts: token ids.
        cache: where files are kept, named by all that they depend on.
        device: where to compute.
        advance: is told how many texts are done.
    """
    shape = (len(texts.ids), width)
    if 2 * shape[0] * shape[1] > MOST_GIB * 2**30:
        return None
    segments = "" if texts.segments is None else texts.segments
    key = digest([f"{RECIPE} {torch.__version__} {settings}", texts.ids, texts.starts, segments])
    path = cached(
        cache / "features" / f"{key.hex()}.npy",
        lambda file: _write(encoder, texts, file, shape, device, advance),
    )
    states: np.ndarray = np.load(path, mmap_mode="r")
    return states


@torch.inference_mode()
def _write(
    encoder: StatesOf,
    texts: EncodedTexts,
    path: Path,
    shape: tuple[int, int],
    device: torch.device,
    advance: Advance,
) -> None:
    table = np.lib.format.open_memmap(path, "w+", np.float16, shape)
    if hasattr(os, "posix_fallocate"):  # on a full disk an OSError here; a write would be a SIGBUS
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    batches = TextBatches(texts)
    num_done = 0
    for rows in by_length(texts.lengths, TOKENS_PER_BATCH):
        batch = batches[rows]
        states = encoder(*moved(batch, device).inputs[:3]).half().cpu()  # [B, T, F]
        if not states.isfinite().all():
            raise ConfigError(
                "model.features_layer, model.frozen_layers: expected a layer whose hidden states "
                "fit into float16, got infinities; choose another layer"
            )
        is_token = torch.ones_like(batch.token_ids, dtype=torch.bool)
        if batch.key_padding_mask is not None:
            is_token = ~batch.key_padding_mask
        tokens = ranges(texts.starts[rows], texts.lengths[rows])
        table[tokens] = states[is_token].numpy()  # [B, T, F] -> [tokens, F]
        num_done += len(rows)
        advance(num_done, len(texts.lengths))
