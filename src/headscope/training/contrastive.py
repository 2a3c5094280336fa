"""Learning from few texts: vectors of a class are drawn together, then classes are read off them.

Shape letters: B texts of a batch, N texts, D width, C classes.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

TEMPERATURE = 0.1  # of Khosla et al.


def contrastive_loss(
    vectors: Float[Tensor, "B D"], labels: Int[Tensor, " B"], temperature: float = TEMPERATURE
) -> Float[Tensor, ""]:
    """Return the mean over i of -1/|P(i)| sum_{p in P(i)} log softmax_{a != i}(v_i . v_a / t).

    v are the vectors at length 1, P(i) the other texts of the class of i; a text without another of
    its class counts 0 (Khosla et al. 2020, Supervised Contrastive Learning, equation 2).
    """
    unit = F.normalize(vectors.float(), dim=-1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    similar = (unit @ unit.T / temperature).masked_fill(itself, torch.finfo(unit.dtype).min)
    positive = (labels[:, None] == labels) & ~itself  # [B, B]
    of_pairs = similar.log_softmax(dim=-1) * positive
    return -(of_pairs.sum(dim=-1) / positive.sum(dim=-1).clamp(min=1)).mean()


@torch.no_grad()
def fit_head(head: nn.Linear, vectors: Float[Tensor, "N D"], labels: Int[Tensor, " N"]) -> None:
    """Set W and b of logits = W v + b by logistic regression on vectors whose mean length is 1."""
    scale = vectors.norm(dim=-1).mean()
    inputs = (vectors / scale).double().cpu().numpy()
    found = LogisticRegression(max_iter=1000).fit(inputs, labels.cpu().numpy())
    weight = found.coef_
    bias = found.intercept_
    if len(found.classes_) == 2:  # one row: the log-odds of the second class
        weight = np.concatenate([-weight, weight]) / 2
        bias = np.concatenate([-bias, bias]) / 2
    head.weight.copy_(torch.from_numpy(weight) / scale)
    head.bias.copy_(torch.from_numpy(bias))
