"""Who decided, the encoder or the bag of n-grams beside it, so that attention is not credited for counting words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.batching import Batch, moved
from headscope.data.named_ngrams import names
from headscope.data.ngram_rows import as_one
from headscope.data.ngrams import NgramVocabulary
from headscope.model.ngrams import NgramBag, share_of_bag
from headscope.training.probes import Probe, Reading


def decision(bag: NgramBag, batches: Iterable[Batch], logits: Float[Tensor, "N C"]) -> dict[str, float]:
    """Return the shares of the n-grams, and of the encoder with its heads, in the decisions about a split's texts.

    Args:
        bag: of the model.
        batches: of the split, with n-grams.
        logits: of the whole model, in the split's order.
    """
    parts, rows = [], []
    with torch.inference_mode():
        for batch in batches:
            parts.append(bag(moved(batch, bag.weight.device).ngrams).float().cpu())
            rows.append(batch.rows)
    share = round(share_of_bag(logits, torch.cat(parts)[torch.cat(rows).argsort()]), 4)
    return {"n-grams": share, "encoder": round(1 - share, 4)}


@dataclass(frozen=True)
class TextDecision:
    """What spoke for the class that one text was given most.

    Attributes:
        label: the likeliest class.
        lifts: part -> by how much its logit of that class is above its mean of all classes, in nats; the parts' sum
            is the whole model's.
        ngrams: name -> what each known n-gram adds to the lift of the n-grams; those of the largest size first.
    """

    label: str
    lifts: dict[str, float]
    ngrams: dict[str, float]

    def notes(self, count: int = 10) -> dict[str, str]:
        """Return this in words, with so many n-grams: heading -> text."""
        parts = ", ".join(f"{part} {lift:+.2f}" for part, lift in self.lifts.items())
        largest = ", ".join(f"{name} {lift:+.3f}" for name, lift in list(self.ngrams.items())[:count])
        left = len(self.ngrams) - count
        named = f"{largest or 'none is known'}{f', and {left} more' if left > 0 else ''}"
        return {f"speaks for {self.label}": f"{parts} (nats above the mean of the classes)", "n-grams": named}


def text_decision(
    bag: NgramBag, vocabulary: NgramVocabulary, probe: Probe, reading: Reading, labels: Sequence[str]
) -> TextDecision:
    """Return who decided about one text, and by which n-grams.

    Args:
        bag: of the model.
        vocabulary: the n-grams that it knows.
        probe: the text.
        reading: what the model made of it.
        labels: the classes.
    """
    if probe.ngrams is None:
        raise ValueError("the text's n-grams were not counted")
    ids, values, _ = probe.ngrams
    with torch.inference_mode():
        of_bag = bag(moved(probe.ngrams, bag.weight.device)).float().cpu()[0]  # [C]
        weights = bag.weights_of(ids.to(bag.weight.device)).float().cpu()  # [M, C]
    label = int(reading.logits.argmax())
    each = values * (weights[:, label] - weights.mean(dim=1))  # [M]
    whole, counted = (float(part[label] - part.mean()) for part in (reading.logits, of_bag))
    called = names(vocabulary, as_one(probe.texts))
    by_name: dict[str, float] = {}
    for number, lift in zip(ids.tolist(), each.tolist(), strict=True):
        name = called[number]  # a word of one letter is a run of letters too
        by_name[name] = by_name.get(name, 0.0) + lift
    largest = dict(sorted(by_name.items(), key=lambda entry: -abs(entry[1])))
    return TextDecision(labels[label], {"encoder": whole - counted, "n-grams": counted}, largest)
