"""What the labels of a text are, and all that follows from it: the loss, the probabilities, and what a text is given.

Shape letters: B texts, C classes, a star for any number of axes.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Answer = str | list[str]  # what a text is given: the name of a class, or a list of them


class OneClass:
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
        """Return the mean cross-entropy over the texts.

        Args:
            logits: what the model says.
            labels: the class of each text.
            weights: of the classes, from `balanced_weights`.
            smoothing: share of the target that is spread over all classes.
        """
        return F.cross_entropy(logits, labels, weights, label_smoothing=smoothing)

    def losses(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
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
        """Return n / (C n_c) for each class c, so that every class weighs the same in the loss (King and Zeng 2001).

        Args:
            counts: n_c, how many texts have a class.
            num_texts: n.
        """
        return num_texts / (len(counts) * counts.clamp(min=1))


Objective = OneClass
ONE_CLASS = OneClass()


def shown(answer: Answer) -> str:
    """Return what a text is given, or its labels, in one piece for a person."""
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"
