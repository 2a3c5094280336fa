"""A sequence classifier of Hugging Face's transformers, called as headscope's own models are.

Everything in this folder calls a model with token ids, a mask of the padding and segment ids, and gets logits [B, C].
`SequenceClassifier` puts a transformers model behind that call and makes batches of texts with the model's tokenizer.
It imports nothing of transformers: the model and the tokenizer are handed in.

Shape letters: B texts, T tokens of the longest, C classes.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.data.batching import Batch
from headscope.data.tokenizer import shown_tokens
from headscope.errors import DataError
from headscope.heads.interventions import eval_mode
from headscope.heads.report import Probe
from headscope.heads.study import SpecialTokens
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective

Given = str | tuple[str, str]  # a text, or a pair of texts
NO_LIMIT = 10**6  # tokens; a tokenizer that knows of no limit says a huge number


class SequenceClassifier(nn.Module):
    """Call `model` as headscope's models are called.

    The texts are encoded as the tokenizer alone would, cut to what the model can read, and padded on the right.

    Args:
        model: such as BertForSequenceClassification, with two classes or more.
        tokenizer: the model's own.
        max_tokens: texts are cut to so many tokens, or to fewer where the model reads no more.

    Attributes:
        labels: the names of the classes, in the order of the logits.
        objective: what the labels are: one class, or any number of them.
        special: ids of tokens that are no words, such as [CLS] and [SEP].
        max_tokens: as above, at most what the model reads.

    Raises:
        ValueError: if the model has no classes, or only one.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, max_tokens: int = 128) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        config: Any = getattr(model, "config", None)
        names: Mapping[int, str] | None = getattr(config, "id2label", None)
        if not names or len(names) < 2 or getattr(config, "problem_type", None) == "regression":
            raise ValueError(f"{type(model).__name__} tells no classes apart: {TAKES}")
        self.labels = [str(names[number]) for number in sorted(names)]
        is_several = config.problem_type == "multi_label_classification"
        self.objective: Objective = MultiLabel() if is_several else ONE_CLASS
        empty = tokenizer("")["input_ids"]
        self.special = SpecialTokens(tuple(empty[1:]), tuple(empty))
        self.max_tokens = min(max_tokens, _most_tokens(model, tokenizer))
        takes = inspect.signature(model.forward).parameters
        # Some tokenizers know the segments of a pair and hand none to the model, which then takes them for zeros.
        self._takes_segments = (
            "token_type_ids" in takes and "token_type_ids" in tokenizer.model_input_names
        )

    def forward(
        self,
        token_ids: Int[Tensor, "B T"],
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits; the mask is True at padding."""
        mask = (
            torch.ones_like(token_ids) if key_padding_mask is None else (~key_padding_mask).long()
        )
        segments = (
            {}
            if segment_ids is None or not self._takes_segments
            else {"token_type_ids": segment_ids}
        )
        output: Any = self.model(input_ids=token_ids, attention_mask=mask, **segments)
        logits: Tensor | None = getattr(output, "logits", None)
        if logits is None or logits.shape != (len(token_ids), len(self.labels)):
            raise ValueError(
                f"{type(self.model).__name__} gives no logits for {len(self.labels)} classes: {TAKES}"
            )
        return logits

    def probe(self, text: Given, label: str | None = None) -> Probe:
        """Return a text or a pair, encoded; its tokens are shown as the piece of the text that each is made of."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        found = self._encoded([text], None, return_special_tokens_mask=True)
        (ids,), (mask,) = found["input_ids"], found["special_tokens_mask"]
        if found.encodings:  # of a tokenizer in Rust
            segments = list(found.encodings[0].sequence_ids)
            tokens = shown_tokens(self.tokenizer.backend_tokenizer, found.encodings[0], texts)
        else:
            tokens = [str(token) for token in self.tokenizer.convert_ids_to_tokens(ids)]
            types = found["token_type_ids"][0]
            segments = [
                None if special else kind for special, kind in zip(mask, types, strict=True)
            ]
        is_pair = len(texts) == 2
        types_given = torch.tensor(found["token_type_ids"]) if is_pair else None
        probe = Probe(
            texts, tokens, torch.tensor([ids]), types_given, label, segments if is_pair else None
        )
        return replace(probe, special=[place for place, special in enumerate(mask) if special],
                       readout=self.readout(probe))  # fmt: skip

    def is_cut(self, text: Given) -> bool:
        """Tell whether the text has more tokens than are read."""
        more = self._encoded([text], max_length=self.max_tokens + 1)
        return len(more["input_ids"][0]) > self.max_tokens

    def readout(self, probe: Probe) -> int | None:
        """Return the place that the answer is read from, where it is one: 0 for [CLS], the last of a GPT.

        That is the one place of the last hidden state which the logits have a gradient for.
        """
        with eval_mode(self), torch.inference_mode(False), torch.enable_grad():
            try:
                inputs = [
                    None if part is None else part.to(self.device)
                    for part in (probe.token_ids, probe.segment_ids)
                ]
                segments = (
                    {}
                    if inputs[1] is None or not self._takes_segments
                    else {"token_type_ids": inputs[1]}
                )
                output = self.model(input_ids=inputs[0], output_hidden_states=True, **segments)
                last = output.hidden_states[-1]
                (gradient,) = torch.autograd.grad(
                    output.logits.double().sum(), last, allow_unused=True
                )
            except (
                AttributeError,
                RuntimeError,
                TypeError,
            ):  # a model that does not show its hidden states
                return None
        places = [] if gradient is None else (gradient[0] != 0).any(dim=-1).nonzero()[:, 0].tolist()
        return places[0] if len(places) == 1 else None

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    def batches(
        self, texts: Sequence[Given], labels: Sequence[Any] = (), tokens_per_batch: int = 2048
    ) -> list[Batch]:
        """Return batches of texts of like length; at most `tokens_per_batch` positions each, padding included.

        Args:
            texts: all of them single texts, or all pairs.
            labels: of each text its class, a name or a number; where a text may have several classes, a list of them.
                None if they are not known.
            tokens_per_batch: see above.

        Raises:
            DataError: for a label that the model does not know, or another number of labels than of texts.
        """
        if labels and len(labels) != len(texts):
            raise DataError(
                f"labels: there are {len(labels)}, and {len(texts)} texts; each text takes its own"
            )
        found = self._encoded(texts)
        classes = self._classes(labels) if labels else torch.full((len(texts),), -1)
        lengths = [len(ids) for ids in found["input_ids"]]
        batches, rows = [], list[int]()
        for row in sorted(range(len(texts)), key=lambda row: lengths[row]):
            if rows and (self._pad is None or (len(rows) + 1) * lengths[row] > tokens_per_batch):
                batches.append(self._batch(found, rows, classes))
                rows = []
            rows.append(row)
        return [*batches, self._batch(found, rows, classes)] if rows else []

    @property
    def _pad(self) -> int | None:
        """The id at padding; None if the model knows none, so that it takes one text at a time."""
        pad: int | None = getattr(self.model.config, "pad_token_id", None)
        return pad

    def _batch(self, found: Any, rows: list[int], classes: Int[Tensor, "N *C"]) -> Batch:
        T = max(len(found["input_ids"][row]) for row in rows)
        ids = torch.full((len(rows), T), 0 if self._pad is None else self._pad)
        padding, types = (
            torch.ones(len(rows), T, dtype=torch.bool),
            torch.zeros(len(rows), T, dtype=torch.long),
        )
        for place, row in enumerate(rows):
            length = len(found["input_ids"][row])
            ids[place, :length] = torch.tensor(found["input_ids"][row])
            types[place, :length] = torch.tensor(found["token_type_ids"][row])
            padding[place, :length] = False
        is_pair = found["is_pair"]
        mask = padding if bool(padding.any()) else None
        return Batch(ids, mask, types if is_pair else None, classes[rows], torch.tensor(rows))

    def _classes(self, labels: Sequence[Any]) -> Int[Tensor, "N *C"]:
        if not isinstance(self.objective, MultiLabel):
            return torch.tensor([self._number(label) for label in labels])
        classes = torch.zeros(len(labels), len(self.labels), dtype=torch.long)
        for row, several in enumerate(labels):
            classes[row, [self._number(label) for label in several]] = 1
        return classes

    def _number(self, label: Any) -> int:
        if isinstance(label, str) and label in self.labels:
            return self.labels.index(label)
        try:
            number = int(label)
        except (TypeError, ValueError):
            number = -1
        if isinstance(label, float) or not 0 <= number < len(self.labels):
            names = ", ".join(self.labels[:20])
            raise DataError(
                f"labels: the model knows no class {label!r}; takes {names}, or a number from 0 on"
            )
        return number

    def _encoded(
        self, texts: Sequence[Given], max_length: int | None = None, **options: Any
    ) -> Any:
        is_pair = bool(texts) and not isinstance(texts[0], str)
        if any(isinstance(text, str) == is_pair for text in texts):
            raise DataError("texts: some are single texts and some are pairs; takes one kind")
        first = [text[0] for text in texts] if is_pair else list(texts)
        second = [text[1] for text in texts] if is_pair else None
        found = self.tokenizer(
            first, second, truncation=True, max_length=max_length or self.max_tokens, padding=False,
            return_token_type_ids=True, **options,
        )  # fmt: skip
        found["is_pair"] = is_pair
        return found


TAKES = "takes a classifier of two classes or more, such as BertForSequenceClassification"


def _most_tokens(model: nn.Module, tokenizer: Any) -> int:
    """Return how many tokens the model can read: as many as it has places for, and as its tokenizer allows."""
    most = min(getattr(tokenizer, "model_max_length", NO_LIMIT), NO_LIMIT)
    for name, table in model.named_modules():
        if isinstance(table, nn.Embedding) and name.endswith(
            ("position_embeddings", "embed_positions", "wpe")
        ):
            # RoBERTa's places begin behind that of padding.
            most = min(
                most,
                table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1),
            )
    return most
