"""The Lightning callback that writes every head's maps and numbers to TensorBoard while the model trains."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from headscope.data.batching import Batch
from headscope.inspection.config import InspectionConfig
from headscope.inspection.measures import Summary
from headscope.inspection.recorder import HeadRecorder
from headscope.tensorboard.images import head_grid
from headscope.tensorboard.marker import marker_summary
from headscope.tensorboard.text import probe_markdown
from headscope.training.averaging import AveragedWeights
from headscope.training.probes import Probe, Reading, read_probe, shortened
from headscope.training.recording import examples_of, keep_readings
from headscope.training.study import SpecialTokens
from headscope.training.watching import HeadWatch, now


@dataclass(frozen=True)
class Subjects:
    """What is looked at.

    Attributes:
        probes: the texts whose maps are shown.
        labels: names of the classes.
        special: ids of the tokens that are no words.
        text_of: the text of a row of the validation split.
    """

    probes: list[Probe]
    labels: list[str]
    special: SpecialTokens
    text_of: Callable[[int], str]


class HeadLogger(Callback):
    """Record at step 0 and at every validation; the validation's own forward passes give the numbers.

    Stands before weight averaging in the list of callbacks, so that it reads the averaged weights, as the scores do.

    Args:
        subjects: texts, classes and tokens.
        config: what to record.
        recorder: where the maps are kept.

    Attributes:
        seconds: time spent on recording, the cost of inspection.
    """

    def __init__(self, subjects: Subjects, config: InspectionConfig, recorder: HeadRecorder) -> None:
        self.subjects, self.config, self.recorder = subjects, config, recorder
        self.seconds = 0.0
        self._last_step = -1
        self._watch: HeadWatch | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell TensorBoard that this run has a record, which the Heads tab shows."""
        _writer(trainer)._get_file_writer().add_summary(marker_summary(), 0)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch the attention layers."""
        if self.config.numbers:
            before = None if self._watch is None else self._watch.examples
            self._watch = HeadWatch(pl_module, self.subjects.special, before)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Know which texts are looked at."""
        if self._watch is not None:
            self._watch.look_at(batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what was seen."""
        start = now(pl_module.device)
        writer, step, model = _writer(trainer), trainer.global_step, pl_module.model
        summary: Summary = {}
        if self._watch is not None:
            self._watch.close()
            summary = self._watch.statistics.summary()
            write_numbers(writer, summary, step)
            write_pooling(writer, self._watch.pooling.summary(), step)
            self.seconds += self._watch.seconds
        readings = self._record(step, model, pl_module.device, summary)  # type: ignore[arg-type]
        for number, (probe, reading) in enumerate(zip(self.subjects.probes, readings, strict=True)):
            shown = shortened(probe, reading, self.config.max_tokens)
            write_reading(writer, f"probe_{number}", *shown, step, self.config.font)
        self.seconds += now(pl_module.device) - start

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record maps between validations, of the averaged weights, if the configuration asks for it."""
        every, step = self.config.every, trainer.global_step
        if every is None or step % every or step == self._last_step:
            return
        start = now(pl_module.device)
        averages = [found for found in trainer.callbacks if isinstance(found, AveragedWeights)]  # type: ignore[attr-defined]
        with averages[0].in_place(pl_module) if averages else nullcontext():
            self._record(step, pl_module.model, pl_module.device)  # type: ignore[arg-type]
        self.seconds += now(pl_module.device) - start

    def _record(
        self, step: int, model: nn.Module, device: torch.device, summary: Summary | None = None
    ) -> list[Reading]:
        """Keep the probes' maps, and the numbers and examples if there are any."""
        self._last_step = step
        readings = [read_probe(model, probe, self.subjects.labels, device) for probe in self.subjects.probes]
        if readings:
            extra = examples_of(self._watch.examples, self.subjects.text_of) if summary and self._watch else {}
            keep_readings(self.recorder, step, readings, summary, extra)
        return readings

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let go of the layers."""
        if self._watch is not None:
            self._watch.close()

    def state_dict(self) -> dict[str, Any]:
        """Keep the time spent across a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the time up again."""
        self.seconds = state_dict["seconds"]


def _writer(trainer: Trainer) -> SummaryWriter:
    return trainer.logger.experiment  # type: ignore[union-attr,no-any-return]


def write_numbers(writer: SummaryWriter, summary: Summary, step: int) -> None:
    """Write each number as a scalar, heads/layer_0/head_3/entropy."""
    for number, measures in enumerate(summary.values()):
        for name, (means, _) in measures.items():
            for head, mean in enumerate(means):
                writer.add_scalar(f"heads/layer_{number}/head_{head}/{name}", mean, step)


def write_pooling(writer: SummaryWriter, summary: Summary, step: int) -> None:
    """Write the numbers of a pooling that attends as scalars, pooling/entropy."""
    for measures in summary.values():
        for name, ((mean,), _) in measures.items():
            writer.add_scalar(f"pooling/{name}", mean, step)


def write_reading(
    writer: SummaryWriter, name: str, probe: Probe, reading: Reading, step: int, font: str | None = None
) -> None:
    """Write a probe's grid of maps and its text."""
    picture = head_grid(list(reading.maps.values()), font, reading.pooling)
    writer.add_image(f"attention/{name}", picture, step, dataformats="HWC")
    text = probe_markdown(probe.text, probe.tokens, probe.label, reading.prediction, reading.probabilities)
    writer.add_text(name, text, step)
