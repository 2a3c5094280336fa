"""What each n-gram says about each class before anything is learned, counted in the training split."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.datamodule import TextDataModule
from headscope.data.encoded_ngrams import texts_with
from headscope.model.ngrams import log_count_ratios
from headscope.model.objective import Objective


def ratios_of(data: TextDataModule, objective: Objective) -> Float[Tensor, "n C"]:
    """Return the log-count ratios of the n known n-grams for the C classes.

    Args:
        data: whose training split is counted; n-grams are known to it.
        objective: what the labels are.
    """
    rows, ngrams = data.encoded["train"].ngrams, data.ngrams
    if rows is None or ngrams is None:
        raise ValueError("no n-grams are known")
    classes = objective.has(torch.from_numpy(data.labels("train")), len(data.corpus.labels)).numpy()
    everything = np.ones((len(classes), 1), dtype=bool)
    counts = torch.from_numpy(texts_with(rows, np.hstack([classes, everything]), len(ngrams)))
    return log_count_ratios(counts[:, :-1], counts[:, -1]).float()
