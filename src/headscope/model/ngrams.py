"""A bag of n-grams beside the encoder: what single words and runs of letters say about the class, without attention."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

NgramInputs = tuple[Int[Tensor, " M"], Float[Tensor, " M"], Int[Tensor, " B"]]


class NgramBag(nn.Module):
    """z = sum_i v_i w_i, a linear classifier over the n-grams of a text.

    Each known n-gram i has a weight for every class, w_i, and in each text a value, v_i (`headscope.data.ngrams`).
    Its logits are added to the encoder's, and both are trained together: the wide part of a wide and deep network
    (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems, section 3). All weights begin at zero, so that
    the encoder begins as it would alone.

    Args:
        num_ngrams: how many n-grams are known.
        num_classes: C.
    """

    def __init__(self, num_ngrams: int, num_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_ngrams, num_classes))

    def forward(self, ngrams: NgramInputs) -> Float[Tensor, "B C"]:
        """Return the logits of B texts from the numbers of their M n-grams, their values, and where each text begins.

        A text without a known n-gram has the logits 0.
        """
        ids, values, starts = ngrams
        return F.embedding_bag(ids, self.weight, starts, mode="sum", per_sample_weights=values)


def share_of_bag(logits: Float[Tensor, "N C"], of_bag: Float[Tensor, "N C"]) -> float:
    """Return the mean over N texts of |m_bag| / (|m_bag| + |m_rest|), the bag's share in what their classes win by.

    m is by how much a part's logits lift a text's likeliest class above the classes' mean, less the mean of that over
    all texts: a constant that one part adds and the other takes away decides nothing. The rest is the encoder with its
    heads. A share near 1 says that attention hardly had a say.

    Args:
        logits: of both together.
        of_bag: what the bag gave of them.
    """
    likeliest = logits.argmax(dim=-1, keepdim=True)  # [N, 1]
    bag, rest = (_lift(part).gather(1, likeliest).abs() for part in (of_bag, logits - of_bag))
    return float((bag / (bag + rest).clamp(min=torch.finfo(logits.dtype).tiny)).mean())


def _lift(logits: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    lifts = logits - logits.mean(dim=1, keepdim=True)
    return lifts - lifts.mean(dim=0)
