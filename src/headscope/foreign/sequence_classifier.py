"""A sequence classifier of transformers, called as headscope's own models are.

`headscope.heads` calls a model with token ids, a key padding mask and segment ids, and gets
logits [B, C]. `SequenceClassifier` puts a transformers model behind that call and makes batches
with the model's tokenizer. It imports nothing of transformers: model and tokenizer are handed in.

Shape letters: B texts, T tokens of the longest, C classes, N texts in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headscope.data.batching import Batch, TokenBudgetSampler, moved
from headscope.data.rows import as_list
from headscope.data.tokenizer import unknown_ids
from headscope.data.units import ReadText
from headscope.foreign.pieces import read_pieces
from headscope.foreign.pretrained import PretrainedClassifier, max_tokens_of
from headscope.foreign.transformers_files import plain_tokenizer
from headscope.ground.errors import DataError, first_line, listed, shown, warn
from headscope.heads.capture import NotObservedError, device_of, headed_layers, logits_of
from headscope.heads.measures import SpecialTokens
from headscope.heads.step import Probe, ProbeOutput, run_probe, text_of
from headscope.heads.study import Advance, Study, study, warn_below_chance
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective, Reading
from headscope.model.running import (
    accepts,
    are_probabilities,
    eval_mode,
    lock_of,
    logits_in,
)
from headscope.record.schema import JOIN, Text

TextOrPair = str | tuple[str, str]
TOKENS_PER_BATCH = 2048  # padding included
MOST_UNKNOWN = 0.1  # of a text's tokens; beyond it is said
MOST_APART = 1e-3  # of logits that are to be the model's own
NO_NUMBERS = "parts of the log-odds are no finite numbers"
NO_LOGITS = (
    "expected logits, got rows that sum to 1, as probabilities do; leave out its last softmax, "
    "since contributions are to log-odds"
)
EXPECTED = "expected two classes or more, as BertForSequenceClassification has"
TokenIds = Int[Tensor, "B T"]
Padding = Bool[Tensor, "B T"] | None


class SequenceClassifier(PretrainedClassifier):
    """Call `model` as headscope's models are called.

    The texts are encoded as the tokenizer alone would, cut to what the model can read, and padded
    on the right.

    Args:
        model: such as BertForSequenceClassification, with two classes or more.
        tokenizer: the model's own.
        max_tokens: of a text, at most; fewer where the model reads no more.

    Attributes:
        labels: names of the classes, in the order of the logits.
        objective: what the labels are: one class, or any number of them.
        special: ids of tokens that are no words, such as [CLS] and [SEP].
        max_tokens: as above, at most what the model reads.

    Raises:
        ValueError: if the model has no classes, or only one, or they are not numbered from 0 on.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, max_tokens: int = 128) -> None:
        super().__init__(model)
        self.tokenizer = tokenizer
        if isinstance(model, nn.DataParallel):
            raise ValueError("DataParallel: expected the model inside it; give model.module")
        config: Any = getattr(model, "config", None)
        self.labels = ordered_names(getattr(config, "id2label", None) or {}, "id2label")
        problem = getattr(config, "problem_type", None)
        if len(self.labels) < 2 or problem == "regression":
            raise ValueError(f"{type(model).__name__}: {EXPECTED}, got {len(self.labels)}")
        is_multi_label = problem == "multi_label_classification"
        self.objective: Objective = MultiLabel() if is_multi_label else ONE_CLASS
        empty = tokenizer("")["input_ids"]
        self.special = SpecialTokens(tuple(empty[1:]), tuple(empty))
        self.max_tokens = min(max_tokens, max_tokens_of(model, tokenizer))
        # Some tokenizers know the segments of a pair and pass none to the model, which takes zeros.
        has_types = "token_type_ids" in tokenizer.model_input_names
        self.has_segments = has_types and accepts(model, "token_type_ids")

    def forward(  # type: ignore[override]  # nothing is known before
        self,
        token_ids: TokenIds,
        key_padding_mask: Padding = None,
        segment_ids: TokenIds | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits; the mask is True at padding."""
        logits = logits_in(self.run(token_ids, key_padding_mask, segment_ids))
        shape = tuple(getattr(logits, "shape", ()))
        if shape != (len(token_ids), len(self.labels)):
            C = len(self.labels)
            raise ValueError(
                f"{type(self.model).__name__}: {EXPECTED}, got no logits for {C} classes"
            )
        if are_probabilities(logits):
            raise ValueError(f"{type(self.model).__name__}: {NO_LOGITS}")
        return logits  # type: ignore[no-any-return]

    def probe(self, text: TextOrPair) -> Probe:
        """Return an encoded text or pair, each token as the piece of text that it is made of."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        encoded = self._encode([text], return_special_tokens_mask=True)
        if not encoded["input_ids"][0]:
            given = shown(repr(text))
            raise DataError(f"text: expected one with a token, got {given}, which has none")
        batch = self._batch(encoded, [0], torch.tensor([-1]))
        self._check_call(batch)
        readout = self.position_read(*moved(batch, device_of(self)).inputs)
        known = self._with_places(encoded, texts)
        if known is not None:
            tokenizer, encoding = known
            read = ReadText(encoding, texts)
            return Probe(text_of(read, unknown_ids(tokenizer), readout=readout), batch)
        (mask,) = encoded["special_tokens_mask"]
        types = zip(mask, encoded["token_type_ids"][0], strict=True)
        segments = [None if is_special else kind for is_special, kind in types]
        ids = encoded["input_ids"][0]
        tokens = [str(token) for token in self.tokenizer.convert_ids_to_tokens(ids)]
        pieces, words = read_pieces(tokens, mask)
        found = Text(
            name="text",
            tokens=pieces,
            text=JOIN.join(texts),
            segments=segments if len(texts) == 2 else None,
            special=[place for place, is_special in enumerate(mask) if is_special],
            readout=readout,
            words=[*words],
        )
        return Probe(found, batch)

    def _with_places(
        self, encoded: Any, texts: tuple[str, ...]
    ) -> tuple[Tokenizer, Encoding] | None:
        """Return a tokenizer in Rust and what it makes of a text, whose tokens have places.

        None for a tokenizer in Python, but that of BERT in Japanese with MeCab if the ids are its.
        """
        if encoded.encodings:
            return self.tokenizer.backend_tokenizer, encoded.encodings[0]
        try:
            tokenizer = plain_tokenizer(self.tokenizer)
        except (AttributeError, ImportError, ValueError):
            return None
        side = getattr(self.tokenizer, "truncation_side", "right")
        tokenizer.enable_truncation(self.max_tokens, direction=side)
        encoding = tokenizer.encode(*texts)  # type: ignore[arg-type]
        return (tokenizer, encoding) if encoding.ids == encoded["input_ids"][0] else None

    @property
    def reading(self) -> Reading:
        """What the logits mean."""
        return Reading(self.labels, self.objective)

    def _check_call(self, batch: Batch) -> None:
        try:
            with eval_mode(self), torch.no_grad():
                self(*moved(batch, device_of(self)).inputs)
        except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"{type(self.model).__name__}: expected a sequence classifier, which is called with"
                f" input_ids and attention_mask [1, T]; it raises {first_line(error)}"
            ) from error

    def output(self, probe: Probe) -> ProbeOutput:
        """Return what the model makes of a text, with the probabilities without each head."""
        output = run_probe(self, probe, self.reading, with_ablations=True)
        return named_as_captured(output)

    def notes_on(self, text: TextOrPair, probe: Probe, output: ProbeOutput) -> dict[str, str]:
        """Return what a reader should know: what is cut or unknown, or is not the model's own."""
        notes = {}
        longer = self._encode([text], max_length=self.max_tokens + 1)
        count = len(output.text.tokens)
        if len(longer["input_ids"][0]) > self.max_tokens:
            end = "last" if getattr(self.tokenizer, "truncation_side", "") == "left" else "first"
            notes["shown"] = f"the {end} {count} tokens, which are all that the model was given"
        unknown = unknown_share(self.tokenizer, [probe.batch.token_ids[0].tolist()])
        if unknown > MOST_UNKNOWN:
            notes["unknown"] = f"{unknown:.0%} of the tokens are unknown to the tokenizer"
            warn(f"{notes['unknown']}, so the model has not read these words")
        if output.explanation is not None and not isfinite(output.explanation.miss):
            notes["contributions"] = NO_NUMBERS
            warn(f"contributions: {NO_NUMBERS}")
        if random := randomness(self, probe.batch):
            return notes | {"logits": random}
        apart = self._apart(text, probe)
        if apart > MOST_APART:
            notes["logits"] = f"differ by {apart:.2g} from those that the model gives by itself"
            warn(f"the logits that are explained {notes['logits']}, called with its tokenizer")
        return notes

    def _apart(self, text: TextOrPair, probe: Probe) -> float:
        """Return how far the logits are from one plain call of the tokenizer and the model."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        device = device_of(self)
        with lock_of(self.tokenizer):
            encoded = self.tokenizer(
                *texts, truncation=True, max_length=self.max_tokens, return_tensors="pt"
            )
        with eval_mode(self), torch.no_grad():
            given = {name: ids for name, ids in encoded.items() if accepts(self.model, name)}
            own = logits_in(self.model(**{name: ids.to(device) for name, ids in given.items()}))
            found = self(*moved(probe.batch, device).inputs)
        return float((own.float() - found.float()).abs().max())

    def batches(self, texts: Sequence[Any], labels: Sequence[Any]) -> list[Batch]:
        """Return batches of texts of like length, all of them single texts or all pairs.

        A label is a class, by name or number; where a text may have several, a list of them, or, as
        transformers trains on, C numbers: 1 at the classes that it has and 0 at the others. A
        DataError if the model does not know it, or there are not as many labels as texts.
        """
        N = len(texts)
        if len(labels) != N:
            raise DataError(f"labels: expected one for each of {N} texts, got {len(labels)}")
        encoded = self._encode(texts)
        classes = self._classes(labels)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        # Without an id for padding, or where it would be read, the model takes one text at a time.
        budget = 1 if self.pad_id is None or self.reads_padding else TOKENS_PER_BATCH
        sampler = TokenBudgetSampler(lengths, budget)
        return [self._batch(encoded, rows, classes) for rows in sampler]

    def _batch(self, encoded: Any, rows: list[int], classes: Int[Tensor, "N *C"]) -> Batch:
        def padded(name: str, value: int) -> TokenIds:
            values = [torch.tensor(encoded[name][row]) for row in rows]
            return pad_sequence(values, batch_first=True, padding_value=value)

        # XLNet's have segments in single texts
        has_segments = self.has_segments and any(map(any, encoded["token_type_ids"]))
        token_ids = padded("input_ids", self.pad_id or 0)
        lengths = torch.tensor([len(encoded["input_ids"][row]) for row in rows])
        padding = torch.arange(token_ids.shape[1]) >= lengths[:, None]  # [B, T]
        return Batch(
            token_ids,
            padding if padding.any() else None,
            padded("token_type_ids", 0) if encoded["is_pair"] or has_segments else None,
            classes[rows],
            torch.tensor(rows),
        )

    def _classes(self, labels: Sequence[Any]) -> Int[Tensor, "N *C"]:
        if not isinstance(self.objective, MultiLabel):
            return torch.tensor([self._number(label) for label in labels])
        C = len(self.labels)
        rows = [as_list(names, f"labels[{row}]") for row, names in enumerate(labels)]
        if is_many_hot(rows, C):
            return torch.tensor(rows).long()
        classes = torch.zeros(len(labels), C, dtype=torch.long)
        for row, names in enumerate(rows):
            if len({*names}) < len(names):
                raise DataError(f"labels[{row}]: expected a class once, got {shown(names)}")
            classes[row, [self._number(name) for name in names]] = 1
        return classes

    def _number(self, label: Any) -> int:
        number = label
        if isinstance(label, str):
            number = self.labels.index(label) if label in self.labels else None
        if number not in range(len(self.labels)):
            names = ", ".join(self.labels[:20])
            raise DataError(f"labels: expected {names}, or a number from 0 on, got {label!r}")
        return int(number)

    def _encode(self, texts: Sequence[Any], max_length: int | None = None, **options: bool) -> Any:
        is_pair = not isinstance(texts[0], str)
        for row, text in enumerate(texts):
            parts = [text] if isinstance(text, str) else text
            if not isinstance(parts, tuple | list) or not all(isinstance(it, str) for it in parts):
                raise DataError(f"texts[{row}]: expected a text or a pair, got {shown(text)}")
            if len(parts) != 1 + is_pair:
                raise DataError("texts: expected single texts or pairs, got both")
        columns = zip(*texts, strict=True) if is_pair else [texts]
        with lock_of(self.tokenizer):  # which keeps its truncation
            encoded = self.tokenizer(
                *map(list, columns),
                truncation=True,
                max_length=max_length or self.max_tokens,
                padding=False,
                return_token_type_ids=True,
                **options,
            )
        encoded["is_pair"] = is_pair
        return encoded


def randomness(model: nn.Module, batch: Batch) -> str:
    """Return a note, and warn, if two passes of a model in eval mode differ; else ""."""
    with eval_mode(model), torch.no_grad():
        first, second = (logits_of(model, batch).float() for _ in range(2))
    apart = float((first - second).abs().max()) if first.numel() else 0.0
    if apart <= MOST_APART:
        return ""
    note = (
        f"differ by {apart:.2g} from one pass to the next, in eval mode: something is drawn at "
        "random, such as by F.dropout without training=self.training; this is one pass"
    )
    warn(f"the logits that are explained {note}")
    return note


def unknown_share(tokenizer: Any, texts: Sequence[Sequence[int]]) -> float:
    """Return which share of the tokens of texts is unknown, special ones such as [CLS] left out."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    special = {*(getattr(tokenizer, "all_special_ids", None) or [])} - {unknown}
    ids = [number for text in texts for number in text if number not in special]
    return ids.count(unknown) / len(ids) if ids and unknown is not None else 0.0


def is_many_hot(rows: Sequence[list[Any]], num_classes: int) -> bool:
    """Tell whether rows hold 0 or 1 for each class, not the numbers of the classes of a text.

    Raises:
        ValueError: for integers such as [1, 0] alone, which could be both classes of two.
    """
    if any(len(row) != num_classes or any(value not in (0, 1) for value in row) for row in rows):
        return False
    if all(sorted(row) == [0, 1] and not isinstance(row[0], bool | float) for row in rows):
        raise ValueError(
            f"labels such as {rows[0]} may be 0 or 1 for each class, or both classes by number; "
            "write [1.0, 0.0] for the first, and names of classes for the second"
        )
    return True


def ordered_names(names: Any, key: str) -> list[str]:
    """Return class names in the order of the logits, given as a list or as a mapping from numbers.

    A mapping's keys may be texts, as JSON has them. A ValueError, which names `key`, unless they
    are the numbers from 0 on and no name comes twice.
    """
    pairs = names if isinstance(names, Mapping) else dict(enumerate(as_list(names, key)))
    names_by_number = {str(number): str(name) for number, name in pairs.items()}
    numbers = list(map(str, range(len(pairs))))
    if {*names_by_number} != {*numbers}:
        raise ValueError(f"{key}: expected numbers from 0 on without gaps, got {listed([*pairs])}")
    ordered = [names_by_number[number] for number in numbers]
    if len({*ordered}) < len(ordered):
        raise ValueError(f"{key}: expected a name of its own for each class, got {listed(ordered)}")
    return ordered


def named_as_captured(output: ProbeOutput) -> ProbeOutput:
    """Name the layers as `headscope.capture(model)` does of the model inside a wrapper."""
    return replace(output, layers=[name.removeprefix("model.") for name in output.layers])


def study_texts(
    classifier: SequenceClassifier,
    texts: Sequence[Any],
    labels: Sequence[Any],
    advance: Advance | None = None,
) -> Study:
    """Return which heads matter over labelled texts: measures, ablation effects, sets of heads.

    A random half of the texts, always the same, chooses the order of the heads; every head takes a
    forward pass over all of them. Accuracy below chance is a warning.
    """
    if len(texts) < 2:
        raise DataError(f"texts: expected 2 or more, got {len(texts)}")
    batches = classifier.batches(texts, labels)  # raises its errors before anything is measured
    if not headed_layers(classifier, batches[0]):
        raise NotObservedError(
            f"texts: the heads of {type(classifier.model).__name__} cannot be ablated, since it "
            "does not use transformers' AttentionInterface; leave texts and labels out to see its "
            "maps"
        )
    order = np.random.default_rng(0).permutation(len(texts))
    chooses, others = [
        classifier.batches([texts[row] for row in rows], [labels[row] for row in rows])
        for rows in np.array_split(order, 2)
    ]
    objective = classifier.objective
    found = study(classifier, chooses, others, classifier.special, objective, advance)
    if not isinstance(objective, MultiLabel):
        warn_below_chance(found.right, found.texts, classifier.labels)
    return found
