"""From token ids to vectors: what a token is, plus where it stands."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.attention.functional import Dropout

EVIDENCE_STD = 0.2  # ten times a token's own 0.02: evidence says something from the start


def sinusoidal_positions(max_length: int, d_model: int) -> Float[Tensor, "T D"]:
    """Return PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) = cos of the same (Vaswani et al. 2017, section 3.5)."""
    position = torch.arange(max_length)[:, None]  # [T, 1]
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))  # [D/2]
    table = torch.empty(max_length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class TokenEmbedding(nn.Module):
    """Sum the vectors of token, position, what it says about the classes and, for pairs, the text that it belongs to.

    Args:
        vocab_size: number of token ids; id 0 is padding and stays zero.
        d_model: D, width of a vector.
        max_length: most tokens of a text.
        positions: learned (a trained table), sinusoidal (a fixed one) or rotary (nothing here: the attention
            layer turns queries and keys instead).
        num_segments: 2 for pairs of texts, else 1.
        dropout: share of numbers dropped in training.
        num_classes: C, where tokens carry evidence about so many classes; else 0.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        max_length: int,
        positions: str,
        num_segments: int,
        dropout: float,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab_size, d_model, padding_idx=0)
        self.segment = nn.Embedding(num_segments, d_model) if num_segments > 1 else None
        self.evidence = nn.Linear(num_classes, d_model, bias=False) if num_classes else None
        self.position: Tensor | None
        if positions == "learned":
            self.position = nn.Parameter(torch.empty(max_length, d_model))
            nn.init.normal_(self.position, std=0.02)
        elif positions == "sinusoidal":
            # Scaled down to the size of the token vectors, or it would drown them at the start.
            self.register_buffer("position", 0.02 * sinusoidal_positions(max_length, d_model), persistent=False)
        else:
            self.position = None
        self.dropout = Dropout(dropout)
        self._draw()

    def _draw(self) -> None:
        nn.init.normal_(self.token.weight, std=0.02)
        with torch.no_grad():
            self.token.weight[0].zero_()
        if self.segment is not None:
            nn.init.normal_(self.segment.weight, std=0.02)
        if self.evidence is not None:
            nn.init.normal_(self.evidence.weight, std=EVIDENCE_STD)

    def forward(
        self,
        token_ids: Int[Tensor, "B T"],
        segment_ids: Int[Tensor, "B T"] | None = None,
        evidence: Float[Tensor, "B T C"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return one vector for each token; that of [CLS] is the same in every text."""
        vectors = self.token(token_ids)
        if self.position is not None:
            vectors = vectors + self.position[: token_ids.shape[1]]
        if self.segment is not None and segment_ids is not None:
            vectors = vectors + self.segment(segment_ids)
        if self.evidence is not None and evidence is not None:
            vectors = vectors + self.evidence(evidence)
        return self.dropout(vectors)  # type: ignore[no-any-return]
