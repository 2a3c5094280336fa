"""The numbers of every head over validation texts, taken from forward passes that somebody else asks for."""

import time
from contextlib import ExitStack

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headscope.attention.functional import Seen
from headscope.attention.multi_head import HeadedAttention
from headscope.attention.variants import ScoredAttention
from headscope.data.batching import Batch
from headscope.inspection.capture import observe
from headscope.inspection.measures import POOLING_MEASURES, Examples, HeadStatistics
from headscope.training.study import SpecialTokens

NUMBERS_AT_ONCE = 2**22  # 16 MiB: a batch of long texts under many heads must not fill the memory


class HeadWatch:
    """Watch a model's attention from when it is made until it is closed.

    Args:
        model: whose attention layers are watched.
        special: ids of the tokens that are no words.
        texts: rows of the validation split whose numbers are taken; of other texts nothing is computed. None for all.
        before: the examples of the record before, against which change is measured.

    Attributes:
        statistics: numbers of the heads.
        pooling: numbers of a pooling that attends.
        examples: the texts that stand out.
        seconds: time spent.
    """

    def __init__(
        self,
        model: nn.Module,
        special: SpecialTokens,
        texts: Int[Tensor, " N"] | None = None,
        before: Examples | None = None,
    ) -> None:
        self.special, self.texts, self.seconds = special, texts, 0.0
        self.statistics, self.pooling = HeadStatistics(), HeadStatistics(POOLING_MEASURES)
        self.examples = Examples(before=before)
        self._stack = ExitStack()
        self._stack.enter_context(observe(model, self._count, HeadedAttention))
        self._stack.enter_context(observe(model, self._count_pooling, ScoredAttention))

    def look_at(self, batch: Batch) -> None:
        """Know which texts the next forward pass is of."""
        self._rows = batch.rows.cpu()
        self._tokens = self.special.tokens_of(batch.token_ids, batch.segment_ids is not None)
        is_wanted = torch.ones_like(self._rows) if self.texts is None else torch.isin(self._rows, self.texts)
        self._wanted: list[int] = is_wanted.nonzero()[:, 0].tolist()

    def close(self) -> None:
        """Let go of the layers."""
        self._stack.close()

    def _count(self, layer: str, seen: Seen) -> None:
        start, padding = now(seen.like.device), seen.key_padding_mask
        B, H, Q, K = seen.shape
        lengths = torch.full((B,), K) if padding is None else (~padding).sum(dim=-1).cpu()
        # A few texts at a time, so that memory does not depend on the batch.
        texts = max(1, NUMBERS_AT_ONCE // (H * Q * K))
        for first in range(0, len(self._wanted), texts):
            rows = self._wanted[first : first + texts]
            hidden = None if padding is None else padding[rows]
            values = self.statistics.update(layer, seen.weights(rows), hidden, self._tokens.rows(rows))
            self.examples.update(layer, self._rows[rows], values, lengths[rows])
        self.seconds += now(seen.like.device) - start

    def _count_pooling(self, layer: str, seen: Seen) -> None:
        start = now(seen.like.device)
        if self._wanted:
            self.pooling.update(layer, seen.weights(self._wanted))
        self.seconds += now(seen.like.device) - start


def now(device: torch.device) -> float:
    """Return the time once the device is done, so that its work is counted where it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
