"""What a finished run predicts and explains: `headscope.load("outputs/first")`.

Free of lightning, so that predicting starts fast.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from tokenizers import Tokenizer
from torch import Tensor

from headscope.data.batching import Batch, EncodedTexts, TextBatches, by_length, encode_texts, moved
from headscope.data.evidence import KnownNgrams
from headscope.data.rows import as_list
from headscope.data.tokenizer import shown_tokens, word_units
from headscope.data.units import ReadText, Word, read_texts
from headscope.ground.errors import RunError, listed
from headscope.ground.files import home
from headscope.ground.plain_rows import as_text
from headscope.heads.capture import capture, device_of, eval_mode, is_observed
from headscope.heads.contributions import explain
from headscope.model.objective import Objective, Reading, as_labels
from headscope.model.running import lock_of
from headscope.record.explanation import Explanation
from headscope.record.schema import label_text
from headscope.runs.abstaining import unknown_share
from headscope.runs.folder import load_model
from headscope.runs.prediction import split_logits
from headscope.runs.setup import Chosen, Classifier, Setup
from headscope.settings.config import TrainConfig

if hasattr(os, "register_at_fork"):  # not on Windows
    # A forked child lacks the threads of torch's pool, and would wait for them for ever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
# On a CPU a hidden layer of 8192 positions no longer fits the cache.
TOKENS_PER_BATCH = {"cpu": 2048}
TextOrPair = str | tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """The classes of a text; with data.multi_label those that reach their thresholds.

    Attributes:
        labels: the predicted classes, by name: one, or with data.multi_label any number.
        probabilities: of each class, by name.
        is_unfamiliar: whether it has more unknown tokens than texts of training.
    """

    labels: list[str]
    probabilities: dict[str, float]
    is_unfamiliar: bool = False

    @property
    def label(self) -> str:
        """The class; with data.multi_label the classes, joined by commas, or "none"."""
        return label_text(self.labels)


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be used.

    The model reads more than token ids; `predict` and `explain` give it all of its inputs. Several
    threads may use a run: one of them computes at a time.

    Attributes:
        folder: where it was loaded from.
        setup: what the weights depend on.
        model: in eval mode, on the CPU; `run.model.to("cuda")` moves it.
        chosen: what the validation texts have chosen.
    """

    folder: Path
    setup: Setup
    model: Classifier
    chosen: Chosen

    @property
    def config(self) -> TrainConfig:
        """Every setting."""
        return self.setup.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's token ids."""
        return self.setup.tokenizer

    @property
    def labels(self) -> list[str]:
        """The classes, in the order of the logits."""
        return self.setup.labels

    @property
    def evidence(self) -> KnownNgrams | None:
        """The known n-grams."""
        return self.setup.evidence

    @property
    def temperature(self) -> float:
        """What divides the logits before they become probabilities."""
        return self.chosen.temperature

    @cached_property
    def objective(self) -> Objective:
        """Single-label, or multi-label with a threshold for each class."""
        return self.chosen.objective(self.config)

    @property
    def reading(self) -> Reading:
        """What the logits mean."""
        return Reading(self.labels, self.objective, self.temperature)

    def __repr__(self) -> str:
        """Return where it was loaded from and its classes; a tokenizer may have no printed form."""
        return f"Run({str(self.folder)!r}, classes: {listed(self.labels)})"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(self.model)

    def predict(
        self, texts: Sequence[TextOrPair], tokens_per_batch: int | None = None
    ) -> list[Prediction]:
        """Return the prediction for each text, as `headscope predict` writes it.

        A run on pairs takes pairs (text, text_pair). A missing text (None, NaN) is read as an
        empty one. A batch has at most `tokens_per_batch`
        positions, padding included; by default 2048 on a CPU, else 65536.

        Raises:
            ValueError: for a text where a pair is expected, or a pair where a text is; or within
                `headscope.capture` of the model, whose maps would be those of the last batch.
        """
        parts = self._parts(texts)
        return self.label(self.encode(parts), tokens_per_batch) if parts else []

    def encode(self, parts: Sequence[tuple[str, ...]]) -> EncodedTexts:
        """Return the token ids and n-grams of texts or pairs."""
        return encode_texts(self.tokenizer, parts, self.evidence)

    def unfamiliar(self, texts: EncodedTexts) -> Bool[np.ndarray, " N"]:
        """Return which texts have more unknown tokens than texts of training."""
        return unknown_share(self.tokenizer, texts) > self.chosen.most_unknown

    def label(self, texts: EncodedTexts, tokens_per_batch: int | None = None) -> list[Prediction]:
        """Return the prediction for each encoded text; arguments and errors as in `predict`."""
        with lock_of(self.model):
            if is_observed(self.model):
                raise ValueError(
                    "predict: expected no capture of run.model around it: texts run in batches by "
                    "length, so a map would belong to another text; call run.maps(texts)"
                )
            budget = tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, 65536)
            batches = TextBatches(texts)
            by_rows = (batches[rows] for rows in by_length(texts.lengths, budget))
            logits, _ = split_logits(self.model, by_rows, self.device)
        return self.answers(logits, texts)

    def answers(self, logits: Float[Tensor, "N C"], texts: EncodedTexts) -> list[Prediction]:
        """Return the prediction for each encoded text, from the model's logits."""
        # In float64, so that no text changes its label.
        shares = self.reading.probabilities(logits.double())  # [N, C]
        if not shares.isfinite().all():
            raise RunError(f"run={self.folder}: its weights are damaged: probabilities are NaN")
        answers = self.objective.names(self.objective.predicted(shares), self.labels)
        predictions = []
        is_unfamiliar = self.unfamiliar(texts).tolist()
        for answer, row, is_odd in zip(answers, shares.tolist(), is_unfamiliar, strict=True):
            by_name = dict(zip(self.labels, row, strict=True))
            predictions.append(Prediction(as_labels(answer), by_name, is_odd))
        return predictions

    def maps(self, texts: Sequence[TextOrPair]) -> list[dict[str, Float[Tensor, "H Q K"]]]:
        """Return the attention weights of each text, in order: layer name -> [head, query, key].

        Each text runs alone, so there is no padding. Texts, pairs and errors are as in `predict`.
        """
        maps = []
        for part in self._parts(texts):
            with torch.no_grad(), eval_mode(self.model), capture(self.model) as layers:
                self.model(*self._batch(part).inputs)
            maps.append({name: weights[0].cpu() for name, weights in layers.items()})
        return maps

    def explain(self, text: TextOrPair, label: str | None = None) -> Explanation:
        """Return the log-odds of a text's class as a sum over its words, and over heads.

            explanation = run.explain("a film that knows what it wants")
            explanation.words  # of each token; with explanation.biases they sum to the log-odds
            explanation.heads  # of each token the share of each head of each layer

        By default of the likeliest class against the runner-up; `label` names another class.

        Raises:
            ValueError: as in `predict`; or for a class that the run does not know.
        """
        (parts,) = self._parts([text])
        if label is not None and label not in self.labels:
            raise ValueError(f"label: expected one of {listed(self.labels)}, got {label!r}")
        tokens = shown_tokens(self.read(parts))
        explanation = explain(self.model, self._batch(parts), tokens, self.reading, label)
        with torch.no_grad(), eval_mode(self.model):
            of_empty = self.model(*self._batch(("",) * len(parts)).inputs)[0]  # [C]
        pair = [self.labels.index(explanation.label)]
        if explanation.against is not None:
            pair.append(self.labels.index(explanation.against))
        first, *rest = self.reading.scaled(of_empty[pair]).tolist()
        return replace(explanation, empty=first - sum(rest), spans=self.words_of(parts))

    def words_of(self, parts: tuple[str, ...]) -> list[Word]:
        """Return the words of a text or pair, and the rest of a text that is cut if it counts."""
        return word_units().words_of(self.read(parts))

    def read(self, parts: tuple[str, ...]) -> ReadText:
        """Return a text or pair as the network reads it."""
        return read_texts(self.tokenizer, [parts], counts_rest=self.evidence is not None)[0]

    def inputs(self, text: TextOrPair) -> tuple[Any, ...]:
        """Return what the model is called with for a text, such as for `headscope.ablate`."""
        (parts,) = self._parts([text])
        return self._batch(parts).inputs

    def _batch(self, parts: tuple[str, ...]) -> Batch:
        """Return a text as a batch of its own."""
        return moved(TextBatches(self.encode([parts]))[[0]], self.device)

    def _parts(self, texts: Sequence[TextOrPair]) -> list[tuple[str, ...]]:
        count = 2 if self.config.data.text_pair_column else 1
        parts = []
        for number, text in enumerate(as_list(texts, "texts")):
            given = text if isinstance(text, tuple | list) else (text,)
            part = tuple(content for one in given if (content := as_text(one)) is not None)
            if not len(part) == len(given) == count:
                expected = "a pair (text, text_pair)" if count == 2 else "a text"
                raise ValueError(
                    f"texts[{number}]: expected {expected}, as {self.folder} was trained on, "
                    f"got {text!r}"
                )
            parts.append(part)
        return parts


def load_run(folder: str | Path) -> Run:
    """Load a run folder's model, for a command; errors as of `headscope.load`."""
    folder = home(folder)
    return Run(folder, *load_model(folder))
