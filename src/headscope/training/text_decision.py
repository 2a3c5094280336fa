"""What spoke for the class of one text: encoder or n-grams, and which n-grams, by name."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.data.batching import moved
from headscope.data.named_ngrams import names
from headscope.data.ngram_rows import as_one
from headscope.data.ngrams import NgramVocabulary
from headscope.model.ngrams import NgramBag
from headscope.training.probes import Probe, Reading

SHOWN = 6  # n-grams of each kind


@dataclass(frozen=True)
class TextDecision:
    """What spoke for the class that one text is given most, in nats of its logit above another class or above the mean.

    Attributes:
        label: the likeliest class.
        against: the class that it is held against; None for the mean of all.
        lifts: part -> nats. "n-grams" and "encoder" are what this text adds, "any text" is what the encoder says of an
            average one: its bias, which is none of the text's doing. Their sum is the whole model's.
        ngrams: kind -> name -> nats; the sum over all is that of "n-grams". The largest size comes first.
    """

    label: str
    against: str | None
    lifts: dict[str, float]
    ngrams: dict[str, dict[str, float]]

    def notes(self) -> dict[str, str]:
        """Return this in words: heading -> text."""
        heading = f"speaks for {self.label}" + ("" if self.against is None else f", not {self.against}")
        parts = ", ".join(f"{part} {lift:+.2f}" for part, lift in self.lifts.items())
        return {heading: f"{parts} (nats)"} | {kind: _listed(found) for kind, found in self.ngrams.items()}


def _listed(found: Mapping[str, float]) -> str:
    """Return the first n-grams with their nats, and how many others there are, with their sum."""
    shown, others = list(found.items())[:SHOWN], list(found.values())[SHOWN:]
    words = [f"{name} {lift:+.2f}" for name, lift in shown]
    rest = [f"{len(others)} more {sum(others):+.2f}"] if others else []
    return ", ".join([*words, *rest]) or "none is known"


def text_decision(
    bag: NgramBag,
    vocabulary: NgramVocabulary,
    probe: Probe,
    reading: Reading,
    encoder_means: Mapping[str, float],
    against: str | None = None,
) -> TextDecision:
    """Return who decided about one text, and by which n-grams.

    Args:
        bag: of the model.
        vocabulary: the n-grams that it knows.
        probe: the text, whose n-grams are counted.
        reading: what the model made of it.
        encoder_means: class -> the encoder's logit of an average text; a class that is missing counts as 0. Empty where
            they are not known, as of a run that was stopped: "any text" is then missing, and part of "encoder".
        against: a class to hold the likeliest one against; None for the mean of all.
    """
    labels = list(reading.probabilities)
    label = int(reading.logits.argmax())

    def lift(logits: Float[Tensor, "*M C"]) -> Float[Tensor, "*M"]:
        return logits[..., label] - (logits.mean(-1) if against is None else logits[..., labels.index(against)])

    of_bag, weights = _of_bag(bag, probe)
    usual = float(lift(torch.tensor([encoder_means.get(name, 0.0) for name in labels])))
    counted = float(lift(of_bag))
    encoder = float(lift(reading.logits)) - counted - usual
    lifts = {"n-grams": counted, "encoder": encoder} | ({"any text": usual} if encoder_means else {})
    return TextDecision(labels[label], against, lifts, _named(vocabulary, probe, lift(weights)))


def _of_bag(bag: NgramBag, probe: Probe) -> tuple[Float[Tensor, " C"], Float[Tensor, "M C"]]:
    """Return the bag's logits, and what each n-gram adds to them."""
    if probe.ngrams is None:
        raise ValueError("the text's n-grams were not counted")
    ids, values, _ = ngrams = moved(probe.ngrams, bag.weight.device)
    with torch.inference_mode():
        return bag(ngrams).float().cpu()[0], (bag.weights_of(ids) * values[:, None]).float().cpu()


def _named(vocabulary: NgramVocabulary, probe: Probe, lifts: Float[Tensor, " M"]) -> dict[str, dict[str, float]]:
    """Return kind -> name -> lift; what has one name, as a hash shared by two, has one number."""
    assert probe.ngrams is not None  # the lifts are theirs
    called, first_of_letters = names(vocabulary, as_one(probe.texts)), len(vocabulary.hashes["words"])
    found: dict[str, dict[str, float]] = {"words": {}, "letters": {}}
    for number, lift in zip(probe.ngrams.ids.tolist(), lifts.tolist(), strict=True):
        found["words" if number < first_of_letters else "letters"][called[number]] = lift
    return {kind: dict(sorted(lifts.items(), key=lambda entry: -abs(entry[1]))) for kind, lifts in found.items()}
