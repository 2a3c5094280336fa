"""A bag of n-grams beside the encoder: what single words and runs of letters say about the class, without attention."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

NgramInputs = tuple[Int[Tensor, " M"], Float[Tensor, " M"], Int[Tensor, " B"]]


class NgramBag(nn.Module):
    """z_c = sum_i v_i r_ic w_ic, a linear classifier over the n-grams of a text.

    Each known n-gram i has a weight for every class c, w_ic, and in each text a value, v_i (`headscope.data.ngrams`).
    r_ic says how much more often texts of the class have it than others (`log_count_ratios`): what tells classes apart
    learns fast, what does not hardly at all (Wang and Manning 2012, Baselines and Bigrams, section 2.3: naive Bayes'
    numbers as the features of another classifier). Its logits are added to the encoder's, and both are trained
    together: the wide part of a wide and deep network (Cheng et al. 2016, Wide & Deep Learning for Recommender Systems,
    section 3). All weights begin at zero, so that the encoder begins as it would alone.

    Args:
        num_ngrams: how many n-grams are known.
        num_classes: C.

    Attributes:
        weight: w, learned.
        ratio: r, counted once and kept beside w; 1 until it is set.
    """

    ratio: Tensor

    def __init__(self, num_ngrams: int, num_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_ngrams, num_classes))
        self.register_buffer("ratio", torch.ones(num_ngrams, num_classes))

    def forward(self, ngrams: NgramInputs) -> Float[Tensor, "B C"]:
        """Return the logits of B texts from the numbers of their M n-grams, their values, and where each text begins.

        A text without a known n-gram has the logits 0.
        """
        ids, values, starts = ngrams
        return F.embedding_bag(ids, self.weight * self.ratio, starts, mode="sum", per_sample_weights=values)

    def weights_of(self, ids: Int[Tensor, " M"]) -> Float[Tensor, "M C"]:
        """Return r_ic w_ic of some n-grams: by how much each raises the logits where its value is 1."""
        return self.weight[ids] * self.ratio[ids]


def log_count_ratios(
    with_class: Float[Tensor, "n C"], of_all: Float[Tensor, " n"], smoothing: float = 1.0
) -> Float[Tensor, "n C"]:
    """Return r_ic = ln((p_ic / sum_j p_jc) / (q_ic / sum_j q_jc)), naive Bayes' log-count ratios.

    p_ic is the number of training texts of class c that have n-gram i, and q_ic that of all others, both with
    `smoothing` added (Wang and Manning 2012, section 2.1; each class against the rest, where there are more than two).

    Args:
        with_class: texts of each class that have each of n n-grams.
        of_all: texts of any class, or of none, that have it.
        smoothing: alpha; 1 as in the paper.
    """
    inside, outside = with_class + smoothing, of_all[:, None] - with_class + smoothing
    return (inside / inside.sum(dim=0)).log() - (outside / outside.sum(dim=0)).log()


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
