"""What each token says about the classes, counted and then learned: it enters with the token, and heads choose."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.attention.functional import Dropout

EvidenceInputs = tuple[
    Int[Tensor, " M"], Int[Tensor, " M"], Int[Tensor, " B"]
]  # as in headscope.data.evidence.Evidence


class TokenEvidence(nn.Module):
    """e_jc = sum_g w_gc r_gc over the n-grams g of token j: what they say about class c.

    r is naive Bayes' log-count ratio, counted in the training texts and scaled by how rare the n-gram is
    (`headscope.data.evidence`); w, how much the n-gram is to be believed, is learned from 1 on. Two classes share it:
    what speaks for one speaks against the other. What says nothing, r near 0, hardly learns (Wang and Manning 2012,
    Baselines and Bigrams, section 2.3: naive Bayes' numbers as the features of another classifier).

    In training a text is told what other folds of the texts say; elsewhere what all say.

    Args:
        num_ngrams: n, how many n-grams are known.
        num_classes: C.
        dropout: share of a batch's n-grams that are left out in training, so that a token does not rest on one.

    Attributes:
        weight: w, [n, C], or [n, 1] for two classes.
        ratio: r counted in all training texts, [n, C], kept beside w; 0 until it is set.
        fold_ratios: r without the texts of each fold, [K, n, C]; in training alone, and not kept.
    """

    ratio: Tensor

    def __init__(self, num_ngrams: int, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_ngrams, num_classes if num_classes > 2 else 1))
        self.register_buffer("ratio", torch.zeros(num_ngrams, num_classes))
        self.fold_ratios: Tensor | None = None  # no buffer: it is large, and an average of weights would average it too
        self.dropout = Dropout(dropout)

    def set_ratios(self, ratios: Float[Tensor, "folds_and_all n C"]) -> None:
        """Take the ratios: those without each fold, and last those of all training texts."""
        self.fold_ratios = ratios[:-1].contiguous()
        self.ratio.copy_(ratios[-1])

    def forward(self, evidence: EvidenceInputs, length: int) -> Float[Tensor, "B T C"]:
        """Return what each token of B texts of `length` positions says about each class; 0 at special tokens."""
        ids, places, folds = evidence
        said = F.embedding(ids, self.weight) * self._ratios(ids, places, folds, length)  # [M, C]
        said = said * self.dropout(said.new_ones(len(ids), 1))  # an n-gram is left out whole
        tokens: Tensor = said.new_zeros(len(folds) * length, said.shape[1]).index_add_(0, places, said)
        return tokens.view(len(folds), length, -1)  # [B * T, C] -> [B, T, C]

    def _ratios(self, ids: Tensor, places: Tensor, folds: Tensor, length: int) -> Float[Tensor, "M C"]:
        if not self.training or self.fold_ratios is None:
            return F.embedding(ids, self.ratio)
        self.fold_ratios = self.fold_ratios.to(ids.device)
        fold = folds[torch.div(places, length, rounding_mode="floor")]  # [M]
        return F.embedding(fold * len(self.ratio) + ids, self.fold_ratios.flatten(0, 1))
