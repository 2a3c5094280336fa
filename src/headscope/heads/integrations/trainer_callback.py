"""A callback for transformers.Trainer that records every head while a classifier is fine-tuned.

Imported only when it is asked for, since transformers is an optional dependency.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.config import InspectionConfig
from headscope.heads.capture import eval_mode, logits_of
from headscope.heads.integrations.lightning_callback import HeadStatsHook, ProbeSet, record_probes
from headscope.heads.integrations.sequence_classifier import (
    FIRST_SAMPLE,
    SequenceClassifier,
    TextOrPair,
    study_texts,
)
from headscope.heads.report import JOIN, new_recorder, record_study
from headscope.heads.study import Study
from headscope.record.writer import HeadRecorder
from headscope.tab.summaries import write_marker

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "HeadsCallback needs transformers: pip install 'transformers[torch]'"
    ) from error


class HeadsCallback(TrainerCallback):
    """Record every head while transformers.Trainer trains, for TensorBoard's Heads tab.

        callback = headscope.HeadsCallback(tokenizer, ["a film that knows"], texts, labels)
        trainer = Trainer(model, args, train_dataset=..., callbacks=[callback])
        trainer.train()

    The maps of the shown texts, and the numbers of every head, are recorded at step 0, at every
    evaluation and at the end. Then, if you give labelled texts, every head is ablated in turn, so
    that the tab opens with the heads that matter; with `load_best_model_at_end` those of the best
    model. That takes a forward pass over the labelled texts for each head. The training is the
    same, to the last digit, as without the callback.

    Not for weights that are spread over processes (DeepSpeed's stage 3, FSDP): a forward pass of
    one alone would hang.

    Args:
        tokenizer: the model's own.
        shown: texts, or pairs (text, text_pair), whose maps are recorded; a few.
        texts: labelled texts, on which heads are ablated; 400 are enough for a first answer. The
            other numbers are of the first 100. If None: those of the shown texts, and no effects.
        labels: the class of each of them, a name or a number.
        folder: of the record. If None: the Trainer's output_dir.
        max_tokens: longer texts are cut.

    Attributes:
        recorder: writes the record; made when training begins, in the first process alone.
        study: what depends on each head, known when training has ended; None without labelled
            texts.
    """

    def __init__(
        self,
        tokenizer: Any,
        shown: Sequence[TextOrPair],
        texts: Sequence[TextOrPair] | None = None,
        labels: Sequence[Any] | None = None,
        folder: str | Path | None = None,
        max_tokens: int = 128,
    ) -> None:
        if isinstance(shown, str) or not shown:
            raise ValueError("shown: expected a list of texts, at least one")
        if (texts is None) != (labels is None):
            raise ValueError("texts, labels: expected both or neither, got one")
        self.tokenizer = tokenizer
        self.shown = list(shown)
        self.texts = list(shown if texts is None else texts)
        self.labels = list(labels or [])
        self.folder = folder
        self.max_tokens = max_tokens
        self.recorder: HeadRecorder
        self.study: Study | None = None
        self._is_recording = False

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any
    ) -> None:
        """Encode the texts, and record step 0, which a resumed training has already."""
        self._is_recording = bool(state.is_world_process_zero)
        if not self._is_recording:
            return
        classifier = SequenceClassifier(model, self.tokenizer, self.max_tokens)
        classifier.batches(self.texts, self.labels)  # raises its errors now
        self._classifier = classifier
        self._batches = classifier.batches(self.texts[:FIRST_SAMPLE])
        probes = [classifier.probe(text) for text in self.shown]
        names = classifier.labels
        objective = classifier.objective
        self._subjects = ProbeSet(probes, names, classifier.special, self._text_of, objective)
        folder = Path(self.folder or args.output_dir)
        count = min(FIRST_SAMPLE, len(self.texts))
        which = "of the labelled" if self.labels else "shown"
        notes = {"dropout": "off", "numbers": f"over {count} {which} texts"}
        config = InspectionConfig(max_tokens=self.max_tokens)
        self.recorder = new_recorder(folder, probes, names, config, notes)
        write_marker(folder)
        self._hook: HeadStatsHook | None = None
        self._last_step = state.global_step
        if state.global_step == 0:
            self._record(0)

    def on_evaluate(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Record the heads as they were evaluated, once for each step."""
        if self._is_recording and state.global_step != self._last_step:
            self._record(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Record the last step, and what depends on each head."""
        if not self._is_recording:
            return
        self._is_recording = False  # evaluations that follow are of no new step
        best_step = state.global_step
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            best_step = int(Path(state.best_model_checkpoint).name.rpartition("-")[2])
        if state.global_step != self._last_step and best_step == state.global_step:
            self._record(state.global_step)
        if self.labels:
            model = self._classifier
            self.study = study_texts(model, self.texts, self.labels)
            probes = self._subjects.probes
            record_study(self.recorder, best_step, self.study, model, probes, model.objective)

    def _record(self, step: int) -> None:
        """Measure the texts, as the model is now, and record maps and numbers."""
        self._last_step = step
        before = None if self._hook is None else self._hook.examples
        self._hook = HeadStatsHook(self._classifier, self._subjects.special, None, before)
        try:
            with torch.no_grad(), eval_mode(self._classifier):
                for batch in self._batches:
                    self._hook.set_batch(batch)
                    logits_of(self._classifier, batch)
        finally:
            self._hook.close()
        record_probes(self.recorder, step, self._classifier, self._subjects, self._hook)

    def _text_of(self, row: int) -> str:
        text = self.texts[row]
        return text if isinstance(text, str) else JOIN.join(text)
