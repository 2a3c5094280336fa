"""What labels are, one of several classes or any number of them: the loss, probabilities, and what a text is given.

Shape letters: B texts, C classes, a star for any number of axes.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Answer = str | list[str]  # what a text is given: the name of a class, or a list of them


class SingleLabel:
    """A text has one of C classes: softmax, and cross-entropy in nats. Labels are [B], the class of each text."""

    def probabilities(self, logits: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return softmax(z), which sums to 1 over the classes."""
        return logits.softmax(dim=-1)

    def log_probabilities(self, logits: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return log softmax(z)."""
        return logits.log_softmax(dim=-1)

    def loss(
        self,
        logits: Float[Tensor, "B C"],
        labels: Int[Tensor, " B"],
        weights: Float[Tensor, " C"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy over the texts, each weighing as its class does.

        sum_i w_(y_i) ((1 - s) l_(i, y_i) + s / C sum_c l_ic) / sum_i w_(y_i), with l = -log
        softmax(z), w the classes' weights from `balanced_weights`, and s the smoothing, the share
        of the target that is spread over all classes (Szegedy et al. 2016, Rethinking the Inception
        Architecture, section 7). torch's own loss with both weighs the smoothed targets by the
        classes that they are spread over, so that a text of a frequent class is pushed to the rare
        ones.
        """
        if weights is None or not smoothing:
            return F.cross_entropy(logits, labels, weights, label_smoothing=smoothing)
        of_texts = weights[labels]  # [B]
        losses = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
        return (of_texts * losses).sum() / of_texts.sum()

    def losses(
        self, logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Return the cross-entropy of each text."""
        return F.cross_entropy(logits, labels, reduction="none")

    def hits(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Tell which texts are given their label."""
        return logits.argmax(dim=-1) == labels

    def given(self, probabilities: Float[Tensor, "B C"]) -> Bool[Tensor, "B C"]:
        """Tell which class each text is given: the likeliest one."""
        return self.has(probabilities.argmax(dim=-1), probabilities.shape[-1])

    def has(self, labels: Int[Tensor, " B"], num_classes: int) -> Bool[Tensor, "B C"]:
        """Tell which class each text has."""
        return F.one_hot(labels, num_classes).bool()

    def names(self, classes: Bool[Tensor, "B C"], labels: Sequence[str]) -> list[Answer]:
        """Return the name of each text's class."""
        return [labels[number] for number in classes.int().argmax(dim=-1).tolist()]

    def balanced_weights(self, counts: Float[Tensor, " C"], num_texts: int) -> Float[Tensor, " C"]:
        """Return n / (C n_c) for each class c, which n_c of n texts have: all weigh the same (King and Zeng 2001)."""
        return num_texts / (len(counts) * counts.clamp(min=1))


class MultiLabel:
    """A text has any number of C classes: for each a sigmoid, and binary cross-entropy in nats, the mean over classes.

    Labels are [B, C], 1 at the classes that a text has and 0 at the others. A text is given each
    class whose probability reaches its threshold, [C]; 0.5 for each by default.
    """

    def __init__(self, thresholds: Float[Tensor, " C"] | None = None) -> None:
        self.thresholds = thresholds

    def probabilities(self, logits: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return sigmoid(z), each class by itself."""
        return logits.sigmoid()

    def log_probabilities(self, logits: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return log sigmoid(z)."""
        return F.logsigmoid(logits)

    def loss(
        self,
        logits: Float[Tensor, "B C"],
        labels: Int[Tensor, "B C"],
        weights: Float[Tensor, " C"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Return the mean binary cross-entropy over texts and classes.

        `weights`, from `balanced_weights`, are those of the texts that have a class, against those
        that do not; `smoothing` is the share of the target that is spread over both answers: 1
        becomes 1 - smoothing / 2.
        """
        logits = logits.to(
            torch.promote_types(logits.dtype, torch.float32)
        )  # bfloat16 would round the targets
        targets = labels.to(logits.dtype) * (1 - smoothing) + smoothing / 2
        # By what a text has, not by its smoothed target: the texts without a rare class would be
        # pushed to it.
        of_pairs = None if weights is None else torch.where(labels.bool(), weights, 1.0)  # [B, C]
        return F.binary_cross_entropy_with_logits(logits, targets, of_pairs)

    def losses(
        self, logits: Float[Tensor, "B C"], labels: Int[Tensor, "B C"]
    ) -> Float[Tensor, " B"]:
        """Return the binary cross-entropy of each text, the mean over classes."""
        return F.binary_cross_entropy_with_logits(
            logits, labels.to(logits.dtype), reduction="none"
        ).mean(dim=-1)

    def hits(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, "B C"]) -> Bool[Tensor, " B"]:
        """Tell which texts are given all of their classes and no other."""
        return (self.given(self.probabilities(logits)) == labels.bool()).all(dim=-1)

    def given(self, probabilities: Float[Tensor, "B C"]) -> Bool[Tensor, "B C"]:
        """Tell which classes each text is given: those whose probability reaches the threshold."""
        return probabilities >= (
            0.5 if self.thresholds is None else self.thresholds.to(probabilities)
        )

    def has(self, labels: Int[Tensor, "B C"], num_classes: int) -> Bool[Tensor, "B C"]:
        """Tell which classes each text has."""
        return labels.bool()

    def names(self, classes: Bool[Tensor, "B C"], labels: Sequence[str]) -> list[Answer]:
        """Return the names of each text's classes, in the order of the classes."""
        return [
            [label for label, is_there in zip(labels, row, strict=True) if is_there]
            for row in classes.tolist()
        ]

    def balanced_weights(self, counts: Float[Tensor, " C"], num_texts: int) -> Float[Tensor, " C"]:
        """Return (n - n_c) / n_c for each class c: the n_c texts that have it weigh as much as all others."""
        return (num_texts - counts).clamp(min=1) / counts.clamp(min=1)


Objective = SingleLabel | MultiLabel
ONE_CLASS = SingleLabel()
