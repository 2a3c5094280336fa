"""What a text's labels are, one class or several: the loss, probabilities and predicted classes.

Shape letters: B texts, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Logits = Float[Tensor, "*B C"]
Probabilities = Float[Tensor, "*B C"]
Classes = Bool[Tensor, "B C"]  # True where a text has, or is predicted to have, a class
OneClass = Int[Tensor, " B"]
AnyClasses = Int[Tensor, "B C"]  # 1 at the classes that a text has
PerText = Float[Tensor, " B"]
PerClass = Float[Tensor, " C"]
Answer = str | list[str]  # what a text is predicted to have: the name of a class, or names


def as_labels(answer: Answer) -> list[str]:
    """Return the classes of a text as a list."""
    return [answer] if isinstance(answer, str) else answer


class SingleLabel:
    """A text has one of C classes, labels [B]: softmax, and cross-entropy in nats."""

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return softmax(z), which sums to 1 over the classes."""
        return logits.softmax(dim=-1)

    def loss(
        self, logits: Logits, labels: OneClass, weights: PerClass | None = None
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy over texts, weighted by their class."""
        return F.cross_entropy(logits, labels, weights)

    def losses(self, logits: Logits, labels: OneClass) -> PerText:
        """Return the cross-entropy of each text."""
        return F.cross_entropy(logits, labels, reduction="none")

    def correct(self, logits: Logits, labels: OneClass) -> Bool[Tensor, " B"]:
        """Return which texts are predicted to have their label."""
        return logits.argmax(dim=-1) == labels

    def predicted(self, probabilities: Probabilities) -> Classes:
        """Return the predicted class of each text: the likeliest one."""
        return self.has(probabilities.argmax(dim=-1), probabilities.shape[-1])

    def has(self, labels: OneClass, num_classes: int) -> Classes:
        """Return which class each text has."""
        return F.one_hot(labels, num_classes).bool()

    def names(self, classes: Classes, labels: Sequence[str]) -> list[Answer]:
        """Return the name of each text's class."""
        return [labels[number] for number in classes.int().argmax(dim=-1).tolist()]

    def balanced_weights(self, counts: PerClass, num_texts: int) -> PerClass:
        """Return n / (C n_c), where n_c of n texts have class c (King and Zeng 2001)."""
        return num_texts / (len(counts) * counts.clamp(min=1))


class MultiLabel:
    """A text has any number of C classes, labels [B, C]: sigmoids, binary cross-entropy.

    A text is predicted to have each class whose probability reaches its threshold, 0.5 by default.
    """

    def __init__(self, thresholds: PerClass | None = None) -> None:
        self.thresholds = thresholds

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return sigmoid(z), each class by itself."""
        return logits.sigmoid()

    def loss(
        self, logits: Logits, labels: AnyClasses, weights: PerClass | None = None
    ) -> Float[Tensor, ""]:
        """Return the mean binary cross-entropy over texts and classes, in nats.

        `weights`, from `balanced_weights`, are those of the texts that have a class, against those
        that do not.
        """
        # bfloat16 would round the targets.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        targets = labels.to(logits.dtype)
        of_pairs = None if weights is None else torch.where(labels.bool(), weights, 1.0)  # [B, C]
        return F.binary_cross_entropy_with_logits(logits, targets, of_pairs)

    def losses(self, logits: Logits, labels: AnyClasses) -> PerText:
        """Return the binary cross-entropy of each text, the mean over classes."""
        targets = labels.to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return losses.mean(dim=-1)

    def correct(self, logits: Logits, labels: AnyClasses) -> Bool[Tensor, " B"]:
        """Return which texts are predicted to have all of their classes and no other."""
        return (self.predicted(self.probabilities(logits)) == labels.bool()).all(dim=-1)

    def predicted(self, probabilities: Probabilities) -> Classes:
        """Return the predicted classes: those whose probability reaches the threshold."""
        if self.thresholds is None:
            return probabilities >= 0.5
        return probabilities >= self.thresholds.to(probabilities)

    def has(self, labels: AnyClasses, num_classes: int) -> Classes:
        """Return which classes each text has."""
        return labels.bool()

    def names(self, classes: Classes, labels: Sequence[str]) -> list[Answer]:
        """Return the names of each text's classes."""
        return [
            [label for label, has in zip(labels, row, strict=True) if has]
            for row in classes.tolist()
        ]

    def balanced_weights(self, counts: PerClass, num_texts: int) -> PerClass:
        """Return (n - n_c) / n_c: the n_c texts with class c weigh as much as all others."""
        return (num_texts - counts).clamp(min=1) / counts.clamp(min=1)


Objective = SingleLabel | MultiLabel
ONE_CLASS = SingleLabel()


@dataclass(frozen=True)
class Reading:
    """What a model's logits z mean: p = objective.probabilities(z / temperature).

    Attributes:
        classes: their names, in the order of the logits.
        objective: whether a text has one of them, or any number.
        temperature: what divides the logits.
    """

    classes: Sequence[str]
    objective: Objective = ONE_CLASS
    temperature: float = 1.0

    def scaled(self, logits: Logits) -> Logits:
        """Return z / temperature, whose differences are the log-odds of the probabilities."""
        return logits / self.temperature

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return the probability of each class."""
        return self.objective.probabilities(self.scaled(logits))


def thresholds_of(objective: Objective) -> list[float] | None:
    """Return the thresholds of the classes; None where there are none."""
    if isinstance(objective, SingleLabel) or objective.thresholds is None:
        return None
    values: list[float] = objective.thresholds.tolist()
    return values
