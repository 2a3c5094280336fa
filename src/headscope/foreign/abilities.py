"""What can be done with a model, found by one look at it before anything runs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import nn

from headscope.attention.functional import AttentionCall
from headscope.foreign.sequence_classifier import NO_NUMBERS, SequenceClassifier
from headscope.foreign.transformers_files import why_not_trained
from headscope.ground.errors import UserError, first_line, listed
from headscope.heads.capture import (
    NotObservedError,
    ablate,
    eval_mode,
    headed_layers,
    logits_of,
    observe,
)
from headscope.heads.contributions import explain
from headscope.model.families import NoModelError, why_not_opened
from headscope.record.explanation import MOST_MISSED, Explanation, signed

# What a model that is called in vain raises.
RAISED = (
    *(ArithmeticError, AssertionError, AttributeError),
    *(LookupError, RuntimeError, TypeError, ValueError),
)
EXPORTED = "not promised where transformers computes the network; headscope export tries"


@dataclass(frozen=True)
class Abilities:
    """What can be done with a model: "" where it can, else why not, in a sentence.

    Attributes:
        observed: its attention maps are shown.
        ablated: its heads can be ablated.
        explained: the log-odds of a text are an exact sum of its words and biases.
        trained: `headscope train model.path=` fine-tunes it.
        opened: that run is our own network, read by `model.features` too; else transformers
            computes it.
        exported: `headscope export` writes that run as ONNX.
        missed: what of the log-odds is in no part.
    """

    observed: str = ""
    ablated: str = ""
    explained: str = ""
    trained: str = ""
    opened: str = ""
    exported: str = EXPORTED
    missed: float = 0.0

    def __str__(self) -> str:
        """Return a line for each ability."""
        reasons = {name: why for name, why in asdict(self).items() if isinstance(why, str)}
        cells = {name: f"no, {why}" if why else "yes" for name, why in reasons.items()}
        return "\n".join(f"{name}: {cell}" for name, cell in cells.items())


def abilities(model: nn.Module, tokenizer: Any, text: str = "a text") -> Abilities:
    """Return what can be done with a sequence classifier of transformers.

        print(headscope.abilities(model, tokenizer))

    It runs the model on the text, and leaves it as it was. A model that cannot be called with a
    text has the same reason in all.
    """
    found: dict[str, Any] = {"trained": why_not_trained(model, tokenizer)}
    found["opened"] = found["trained"] or _why_not_opened(model)
    found["exported"] = EXPORTED if found["opened"] else ""
    try:
        classifier = SequenceClassifier(model, tokenizer)
        batch = classifier.probe(text).batch
    except (UserError, ValueError) as error:
        reason = first_line(error)
        trained = found["trained"] or reason
        return Abilities(reason, reason, reason, trained, found["opened"] or reason)
    shapes: dict[str, list[int]] = {}

    def observed() -> str:
        def note(name: str, call: AttentionCall) -> None:
            shapes[name] = [*call.shape]

        with observe(classifier, note), torch.no_grad(), eval_mode(classifier):
            logits_of(classifier, batch)
        T = batch.token_ids.shape[1]
        others = [f"{name} {shape[1:]}" for name, shape in shapes.items() if shape[2:] != [T, T]]
        return f"maps are not of the {T} tokens: {listed(others[:1])}" if others else ""

    def ablated() -> str:
        layers = headed_layers(classifier, batch)
        if not layers:
            return "does not use transformers' AttentionInterface"
        first = (next(iter(layers)), 0)
        with ablate(classifier, {first: "zero"}), torch.no_grad(), eval_mode(classifier):
            logits_of(classifier, batch)
        return ""

    def explained() -> str:
        tokens = ["" for _ in batch.token_ids[0]]
        parts = explain(classifier, batch, tokens, classifier.reading)
        found["missed"] = parts.miss
        return _missed(parts)

    found |= {ability.__name__: _reason(ability) for ability in (observed, ablated, explained)}
    return Abilities(**found)


def _why_not_opened(model: Any) -> str:
    try:
        return why_not_opened(model.config.to_dict())
    except (AttributeError, TypeError, NoModelError) as error:
        return first_line(error)


def _missed(parts: Explanation) -> str:
    if not isfinite(parts.miss):
        return NO_NUMBERS
    if abs(parts.miss) <= 10 * MOST_MISSED:
        return ""
    missed = f"{signed(parts.miss)} of {signed(parts.log_odds)}"
    return f"{missed} is not attributed, by {parts.unknown}"


def _reason(ability: Callable[[], str]) -> str:
    try:
        return ability()
    except NotObservedError as error:
        return first_line(error)
    except RAISED as error:
        return f"{type(error).__name__}: {first_line(error)}"
