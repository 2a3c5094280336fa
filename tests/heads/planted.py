"""A network of which some heads alone give the class of a text, and texts for it."""

import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.data.batching import Batch

N, T, VOCABULARY = 240, 7, 12


class Planted(nn.Module):
    """Heads of two numbers each, of which those in `votes` give the class of a text.

    Token 1 or 2, somewhere in the text, is the class; a head that looks finds it by its key, one
    that averages takes the mean of all values.
    """

    def __init__(self, votes: dict[int, float], heads: int, looks: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 2 * heads)
        self.attention = MultiHeadAttention(2 * heads, heads, batch_first=True)
        self.head = nn.Linear(2 * heads, 2)
        D = 2 * heads
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.embedding.weight[1, 0], self.embedding.weight[2, 0] = 1.0, -1.0
            if looks:  # a decoy votes as well, but no head that looks sees it
                self.embedding.weight[3:7, 0], self.embedding.weight[7:, 0] = 1.0, -1.0
            self.embedding.weight[1:3, 1] = 1.0
            weight = self.attention.in_proj_weight
            for head in votes:
                weight[2 * D + 2 * head, 0] = 1.0
                if looks:
                    self.attention.in_proj_bias[2 * head] = 20.0
                    weight[D + 2 * head, 1] = 1.0
            self.attention.out_proj.weight.copy_(torch.eye(D))
            for head, vote in votes.items():
                self.head.weight[0, 2 * head], self.head.weight[1, 2 * head] = vote, -vote
        self.eval()

    def forward(
        self, token_ids: torch.Tensor, padding: torch.Tensor | None = None, _: None = None
    ) -> torch.Tensor:
        tokens = self.embedding(token_ids)
        given = self.attention(tokens, tokens, tokens, padding, need_weights=False)[0]
        return self.head(given[:, 0])


def texts() -> list[list[Batch]]:
    """Return the halves of some texts."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % 2
    ids = torch.randint(3, VOCABULARY, (N, T), generator=random)
    ids[torch.arange(N), torch.randint(1, T, (N,), generator=random)] = 1 + labels
    halves = torch.randperm(N, generator=random).chunk(2)
    return [[Batch(ids[half], None, None, labels[half], half)] for half in halves]
