"""The default data's own lengths, for work that is not made up."""

from functools import lru_cache

import numpy as np
from datasets import disable_progress_bars

from headscope.data.config import DataConfig, TokenizerConfig
from headscope.data.datamodule import TextDataModule


@lru_cache(maxsize=2)
def _default_data(max_length: int) -> TextDataModule:
    disable_progress_bars()
    return TextDataModule(DataConfig(max_length=max_length), TokenizerConfig(), seed=0)


def default_lengths(count: int, max_length: int) -> np.ndarray:
    """Return the lengths in tokens of so many of the default data's training texts, drawn by a seed."""
    lengths: np.ndarray = _default_data(max_length).encoded["train"].lengths
    return np.random.default_rng(0).choice(lengths, count, replace=count > len(lengths)).astype(np.int64)
