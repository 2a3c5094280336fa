"""What an encoder can learn from texts without labels: which token stood where one is hidden."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.model.classifier import TextClassifier


class MaskedTokenModel(nn.Module):
    """Logits of the tokens that stood at hidden places: E LayerNorm(GELU(W h + b)) + c.

    h is the encoder's vector at a hidden place and E the embedding's own table, so that a token is learned as an answer
    where it is learned as a question (Devlin et al. 2019, BERT, section 3.1, task 1; the layer between both, and the
    shared table, as in run_pretraining.py of their code; Press and Wolf 2017, Using the Output Embedding).

    Args:
        classifier: whose embedding and encoder learn. Its pooling, head and bag of n-grams take no part.
    """

    def __init__(self, classifier: TextClassifier) -> None:
        super().__init__()
        self.embedding, self.encoder = classifier.embedding, classifier.encoder
        V, D = self.embedding.token.weight.shape
        self.guess = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D))
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(
        self,
        token_ids: Int[Tensor, "B T"],
        hidden: Bool[Tensor, "B T"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "N V"]:
        """Return the logits of all tokens at the N hidden places, row after row.

        Id 0 is padding, or begins a text, and is never hidden. Its logit is its bias alone: the gradient of more would
        move the vector of padding, which is 0 in an encoder from scratch.

        Args:
            token_ids: as the encoder is shown them, padded.
            hidden: True where a token is to be guessed.
            key_padding_mask: True at padding; None where no text is padded.
            segment_ids: 0 for tokens of the first text of a pair, 1 for the second.
        """
        vectors = self.encoder(self.embedding(token_ids, segment_ids), key_padding_mask)[hidden]  # [N, D]
        table = F.pad(self.embedding.token.weight[1:], (0, 0, 1, 0))  # [V, D]
        return F.linear(self.guess(vectors), table, self.bias)
