"""`headscope.show`: what every head of any model does with one text.

Shape letters: T tokens, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from headscope.data.batching import Batch, moved
from headscope.data.rows import as_list
from headscope.foreign.fixed_gates import given
from headscope.foreign.sequence_classifier import (
    NO_LOGITS,
    SequenceClassifier,
    named_as_captured,
    ordered_names,
    randomness,
    study_texts,
)
from headscope.ground.errors import DataError, listed
from headscope.ground.terminal import Bar, terminal
from headscope.heads.capture import NotObservedError, capture, device_of, eval_mode, logits_of
from headscope.heads.measures import SpecialTokens
from headscope.heads.step import Probe, run_probe
from headscope.heads.study import Study, study
from headscope.model.objective import Reading
from headscope.model.running import are_probabilities, logits_in
from headscope.pages.head_view import HeadView, head_view, with_page
from headscope.record.schema import Text


def show(
    model: nn.Module,
    tokenizer: Any,
    text: Any,
    text_pair: str | None = None,
    texts: Any = None,
    labels: Any = None,
    max_tokens: int = 128,
) -> HeadView:
    """Show what every head of a model does with a text.

        headscope.show(model, tokenizer, "a film that knows what it wants")
        headscope.show(model, tokenizer, text, texts=some_texts, labels=their_classes)
        headscope.show(module, ["a", "film"], token_ids)  # any nn.Module, [1, 2] token ids

    Last in a notebook's cell, it is the page. With labelled texts it says which heads matter, too.
    Nothing is fetched, and the model is left as it was. For a run that headscope trained:
    `run.show(text)`.

    Args:
        model: a sequence classifier of transformers, such as BertForSequenceClassification, with
            two classes or more; or, with tokens, any module with attention of headscope, torch or
            transformers.
        tokenizer: the model's own; or the tokens of the text, one for each row of a map.
        text: what is shown; or, with tokens, what the module is called with: a tensor, a tuple of
            arguments, or a dictionary of named ones. Those with the text begin with 1, a batch of
            one. Where the output, or its `logits`, is [1, C], contributions are shown, too.
        text_pair: the second text, for a model of pairs.
        texts: labelled texts, or pairs (text, text_pair), over which every head is ablated in turn:
            a list, or a column of pandas, numpy or datasets. That takes a forward pass over all of
            them for each head; 300 are enough for a first answer. With tokens: a list of what the
            module is called with, a text each, or a tensor of them.
        labels: the class of each of them, a name or a number; where a text may have several, a list
            of them, or C numbers 0 and 1, as transformers trains on. A column or tensor serves,
            too. With tokens: the number of the class of each; without texts the names of the C
            classes, in the order of the logits.
        max_tokens: a longer text is cut, for the model too, and the page says so. The page grows
            with the square of this: 12 x 12 heads take 6 MB at 128 tokens, 25 at 256.

    Raises:
        ValueError: if the model is no sequence classifier, its heads cannot be ablated over texts,
            texts come without labels, or tokens do not fit the maps.
        DataError: for a label that the model does not know.
    """
    has_tokens = isinstance(tokenizer, list | tuple)
    if not has_tokens and not isinstance(text, str | tuple):
        remedy = "; of a pair, give text_pair=" if isinstance(text, list) else ""
        raise DataError(f"text: expected a text, got {listed([text])}{remedy}")
    if (texts is None) != (labels is None) and not (has_tokens and texts is None):
        raise ValueError("texts, labels: expected both or neither, got one")
    if has_tokens:
        if text_pair is not None:
            raise ValueError("text_pair: expected none with a list of tokens, got one")
        return _show_module(model, list(tokenizer), text, texts, labels)
    classifier = SequenceClassifier(model, tokenizer, max_tokens)
    found = None
    if texts is not None:
        rows = as_list(texts, "texts")
        with Bar(terminal(), f"measuring every head on {len(rows)} texts") as bar:
            found = study_texts(classifier, rows, as_list(labels, "labels"), bar.update)
    shown = text if text_pair is None else (text, text_pair)
    notes = {"model": f"{type(model).__name__} {getattr(model, 'name_or_path', '')}".strip()}
    probe = classifier.probe(shown)
    output = classifier.output(probe)
    notes |= classifier.notes_on(shown, probe, output)
    return with_page(head_view(output, found, notes))


class _Called(nn.Module):
    """Calls a module with what belongs to a text, whose number is its only token id."""

    def __init__(self, model: nn.Module, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.model = model
        self.inputs = [each if isinstance(each, tuple | dict) else (each,) for each in inputs]

    def forward(self, token_ids: Tensor, *_: Any) -> Float[Tensor, "1 C"]:
        """Return the logits; [1, 0] where the module gives none."""
        own = self.inputs[int(token_ids[0, 0])]
        inputs = given(tree_map_only(Tensor, lambda each: each.to(token_ids.device), own))
        output = self.model(**inputs) if isinstance(inputs, dict) else self.model(*inputs)
        logits = logits_in(output)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
            return token_ids.new_zeros(1, 0).float()
        if are_probabilities(logits):
            raise ValueError(f"{type(self.model).__name__}: {NO_LOGITS}")
        return logits


def _show_module(
    model: nn.Module, tokens: list[str], inputs: Any, texts: Any, labels: Any
) -> HeadView:
    """Show what every head of any module does with what it is called with."""
    rows = [] if texts is None else [*(texts.split(1) if isinstance(texts, Tensor) else texts)]
    called = _Called(model, [inputs, *rows])
    batch = moved(_batch(0, len(tokens)), device_of(model))
    with eval_mode(called), torch.no_grad():
        try:
            with capture(called, poolings=False) as maps:
                num_classes = logits_of(called, batch).shape[-1]
        except NotObservedError:
            maps = {}
            num_classes = logits_of(called, batch).shape[-1]
            if num_classes < 2:
                expected = "expected attention layers, or logits [1, C] of two classes or more"
                name = type(model).__name__
                raise NotObservedError(f"{name}: {expected}, got neither") from None
    _check_tokens(maps, len(tokens), inputs)
    classes = [f"class {number}" for number in range(num_classes)]
    found = None
    if texts is not None:
        found = _study_module(called, len(rows), as_list(labels, "labels"), num_classes)
    elif labels is not None:
        classes = ordered_names(labels, "labels")
    if len(classes) != num_classes:
        raise ValueError(f"labels: expected {num_classes} names, got {len(classes)}")
    probe = Probe(Text("text", tokens, " ".join(tokens)), batch)
    reading = Reading(classes) if num_classes >= 2 else None
    output = named_as_captured(run_probe(called, probe, reading, with_ablations=True))
    notes = {"model": type(model).__name__}
    if random := randomness(called, batch):
        notes["logits"] = random
    return with_page(head_view(output, found, notes))


def _check_tokens(maps: Mapping[str, Tensor], num_tokens: int, inputs: Any) -> None:
    """Check that some map, or what the module is called with, has a place for each token."""
    given = [each for each in tree_leaves(inputs) if isinstance(each, Tensor) and each.ndim > 1]
    sizes = [each.shape[1] for each in given]
    has_place = num_tokens in sizes or sum(sizes) == num_tokens
    for name, weights in maps.items():
        shape = weights.shape
        if shape[0] != 1 or (tuple(shape[2:]) != (num_tokens, num_tokens) and not has_place):
            name = name.removeprefix("model.")
            raise ValueError(
                f"tokens, inputs: expected one text of {num_tokens} tokens, got a map "
                f"{tuple(shape)} of {name}; give a batch of one, with a token a place"
            )


def _study_module(called: _Called, N: int, labels: list[Any], num_classes: int) -> Study:
    """Ablate every head over labelled texts, one text after another."""
    if N < 2 or len(labels) != N or any(label not in range(num_classes) for label in labels):
        raise DataError(
            f"labels: expected a number from 0 to {num_classes - 1} for each of 2 texts or more, "
            f"got {listed(labels)}"
        )
    batches = [_batch(number + 1, 1, label) for number, label in enumerate(labels)]
    halves = np.array_split(np.random.default_rng(0).permutation(N), 2)
    chooses, others = [[batches[row] for row in rows] for rows in halves]
    with Bar(terminal(), f"measuring every head on {N} texts") as bar:
        return study(called, chooses, others, SpecialTokens((), ()), advance=bar.update)


def _batch(number: int, num_tokens: int, label: int = -1) -> Batch:
    """Return the batch with which `_Called` calls the module for one text."""
    numbers = torch.full((1, num_tokens), number)
    return Batch(numbers, None, None, torch.tensor([label]), torch.tensor([number]))
