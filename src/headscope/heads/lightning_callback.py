"""Lightning callbacks that record every head while a model trains.

`RecordHeads` is for any LightningModule and records maps alone. `HeadLogger` is for headscope's own
runs.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from headscope.data.batching import Batch
from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import warn
from headscope.ground.files import home
from headscope.heads.capture import NotObservedError, capture, eval_mode, now
from headscope.heads.measures import SpecialTokens
from headscope.heads.step import Probe, run_probe, step_arrays
from headscope.heads.study import draw_samples, measure_attention
from headscope.model.classifier import TextClassifier
from headscope.model.objective import Objective, Reading
from headscope.record.schema import Text
from headscope.record.writer import HeadRecorder
from headscope.settings.config import InspectionConfig
from headscope.tab.summaries import add_summary, marker_summary, write_marker

BETWEEN = 18  # steps that are recorded between validations, spaced by their logarithm
MOST_SHARE = 0.05  # of the time of training, and
MOST_BYTES = 10_000_000  # that these take
CURVES = ("entropy_share", "mean_distance")  # a card each: how sharp heads are, how far they look


class AtValidation(Callback):
    """Record at step 0, at every validation but the sanity check, and every n steps if asked."""

    def __init__(self, every_n_steps: int | None = None) -> None:
        self.every_n_steps = every_n_steps
        self._last_step = -1

    def record(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the model as it is now."""
        raise NotImplementedError

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be recorded that is not validated."""
        return bool(self.every_n_steps) and step % (self.every_n_steps or 1) == 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record step 0, which a resumed run has already."""
        if trainer.global_step == 0:
            self.record(trainer, pl_module)
        self._last_step = trainer.global_step

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the model that was validated."""
        if not trainer.sanity_checking:
            self.record(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Record between validations, if it is due."""
        step = trainer.global_step
        if step != self._last_step and self.is_due(step):
            self.record(trainer, pl_module)
        self._last_step = step


class RecordHeads(AtValidation):
    """Record every head's maps of the same texts while any LightningModule trains.

        texts = [Text("cat", ["the", "cat", "sat"], "the cat sat")]
        trainer = Trainer(callbacks=[RecordHeads(texts, [token_ids])])

    TensorBoard's Heads tab shows them. The module may hold attention layers of headscope, torch or
    transformers, as `capture` finds them. It is called as `module(*inputs)`, in eval mode, at step
    0 and at every validation but the sanity check.

    Args:
        texts: the texts whose maps are recorded, with their tokens. Of a batch's row the first
            tokens are the text's; the rest is padding and left out.
        inputs: the module's arguments: tensors, or tuples of them, whose first axis is the texts'.
        every_n_steps: also record every n steps; None for no such records.
        folder: of the record; by default that of the trainer's logger, where TensorBoard finds it.

    Attributes:
        recorder: holds the maps; made when training begins, in the first process alone.
    """

    def __init__(
        self,
        texts: Sequence[Text],
        inputs: Sequence[Any],
        every_n_steps: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(every_n_steps)
        self.texts = list(texts)
        self.inputs = tuple(inputs)
        self.folder = None if folder is None else home(folder)
        self.recorder: HeadRecorder

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the record, and mark the run as one that has a record, for TensorBoard."""
        # All processes ask for log_dir, which is broadcast.
        folder = self.folder or trainer.log_dir or trainer.default_root_dir
        if trainer.is_global_zero:
            self.recorder = HeadRecorder(folder, self.texts)
            write_marker(folder)

    def record(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the texts' maps."""
        if not trainer.is_global_zero:
            return
        with torch.no_grad(), eval_mode(pl_module), capture(pl_module) as maps:
            pl_module(*trainer.strategy.batch_to_device(self.inputs))
        rows = {name: len(weights) for name, weights in maps.items()}
        if {*rows.values()} != {len(self.texts)}:
            num_texts = len(self.texts)
            raise ValueError(
                f"RecordHeads: inputs: expected maps with a row for each of {num_texts} texts,"
                f" got {rows}"
            )
        arrays = {}
        for row, text in enumerate(self.texts):
            T = len(text.tokens)
            for number, weights in enumerate(maps.values()):
                of_text = weights[row, :, :T, :T].cpu().numpy()
                arrays[f"text_{row}/layer_{number}/weights"] = of_text
        self.recorder.write(trainer.global_step, arrays, list(maps))


class Between:
    """Which steps are recorded between validations: spaced evenly by their logarithm.

    The time and the bytes that they may take are handed out evenly too: where they are enough for
    half of the steps, about every second one is recorded.
    """

    def __init__(self, total: int, first: int = 0, recorded: float = 0.0) -> None:
        spaced = {round(total ** (place / BETWEEN)) for place in range(BETWEEN)}
        self.steps = sorted(step for step in spaced if first < step < total)
        self.total = total
        self.first = first
        self.start = time.perf_counter() - recorded  # seconds that records took before
        self.spent = [0.0, 0.0]  # seconds, bytes
        self.last = [0.0, 0.0]  # those of the last one

    def has_room(self, step: int, recording: float) -> bool:
        """Return whether a step is to be recorded; `recording` are the seconds of all records."""
        if step not in self.steps:
            return False
        training = time.perf_counter() - self.start - recording
        whole = training * (self.total - self.first) / (step - self.first)
        share = (self.steps.index(step) + 1) / len(self.steps)
        most = [MOST_SHARE * whole * share, MOST_BYTES * share]
        parts = zip(self.spent, self.last, most, strict=True)
        return all(spent + last <= room for spent, last, room in parts)

    def count(self, seconds: float, size: int) -> None:
        """Count what a recorded step took."""
        self.last = [seconds, float(size)]
        self.spent = [sum(pair) for pair in zip(self.spent, self.last, strict=True)]


class HeadLogger(AtValidation):
    """Record at step 0 and at every validation probe texts and the numbers of every head.

    Between validations maps are recorded every `config.every` steps, by default at up to 18 steps
    that are spaced by their logarithm, as long as these take less than 5 % of the time of training
    and 10 MB. The numbers are of the same `config.texts` validation texts at every record, drawn by
    the run's seed: more would take a noticeable part of training. `seconds` is the time spent on
    recording.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        special: SpecialTokens,
        objective: Objective,
        config: InspectionConfig,
        recorder: HeadRecorder,
    ) -> None:
        super().__init__(config.every)
        self.probes = probes
        self.special = special
        self.reading = Reading(recorder.index.classes, objective)
        self.config = config
        self.recorder = recorder
        self.seconds = 0.0
        self.is_off = False  # its heads cannot be observed
        self._between = Between(0)
        self._sample: list[Batch] = []  # of the texts that are measured

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mark the run as one that has a record, so that TensorBoard shows the Heads tab."""
        add_summary(_writer(trainer), marker_summary(), 0)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw the texts that are measured, and record step 0, which a resumed run has already."""
        data: TextDataModule = trainer.datamodule  # type: ignore[attr-defined]
        texts = data.batches("validation")
        total = len(texts.labels)
        count = min(self.config.texts or total, total)
        drawn = f"all {total} validation texts"
        if count < total:
            drawn = f"{count} of {total} validation texts, drawn at random"
        self.recorder.index.notes["numbers"] = f"over {drawn}"
        (self._sample,) = draw_samples(texts, count, data.config.tokens_per_batch, data.seed)
        model = pl_module.model
        if isinstance(model, TextClassifier) and model.features is None:  # frozen layers have heads
            self._sample = [batch._replace(features=None) for batch in self._sample]
        self.recorder.index.total = pl_module.total_steps  # type: ignore[assignment]
        super().on_train_start(trainer, pl_module)
        own = (pl_module.total_steps, trainer.global_step, self.seconds)
        self._between = Between(*own)  # type: ignore[arg-type]

    def is_due(self, step: int) -> bool:
        """Return whether a step is one of every n, or by default one that there is room for."""
        if self.every_n_steps:
            return super().is_due(step)
        return bool(self.probes) and self._between.has_room(step, self.seconds)

    def record(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the probe texts; at step 0 and at validations the numbers of every head too."""
        start = now(pl_module.device)
        model: nn.Module = pl_module.model  # type: ignore[assignment]
        step = trainer.global_step
        summary = None
        if self.is_off:
            return
        if trainer.validating or step == 0:
            try:
                summary = measure_attention(model, self._sample, self.special)
            except NotObservedError as error:
                warn(f"heads are not recorded: {error}")
                self.is_off = True
                return
            for name in CURVES:  # the Heads tab has all, of each head
                means = [mean for measures in summary.values() for mean in measures[name][0]]
                _writer(trainer).add_scalar(f"heads/{name}", fmean(means), step)
        outputs = [run_probe(model, probe, self.reading) for probe in self.probes]
        if outputs:
            self.recorder.write(step, step_arrays(outputs, summary))
        seconds = now(pl_module.device) - start
        self.seconds += seconds
        if summary is None and outputs:
            file = self.recorder.folder / self.recorder.index.steps[-1].file
            self._between.count(seconds, file.stat().st_size)

    def state_dict(self) -> dict[str, Any]:
        """Keep the time spent across a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the time spent."""
        self.seconds = state_dict["seconds"]


def _writer(trainer: Trainer) -> SummaryWriter:
    return trainer.logger.experiment  # type: ignore[union-attr,no-any-return]
