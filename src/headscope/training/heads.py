"""The Lightning callback that writes every head's maps and numbers to TensorBoard while the model trains."""

import time
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from headscope.attention.heads import HeadedAttention
from headscope.attention.observed import Seen
from headscope.attention.scored import ScoredAttention
from headscope.inspection.capture import observe
from headscope.inspection.config import InspectionConfig
from headscope.inspection.measures import POOLING_MEASURES, HeadStatistics
from headscope.inspection.recorder import HeadRecorder
from headscope.tensorboard.images import head_grid
from headscope.tensorboard.marker import marker_summary
from headscope.tensorboard.text import probe_markdown
from headscope.training.averaging import AveragedWeights
from headscope.training.probes import Probe, Reading, read_probe
from headscope.training.recording import Summary, keep_readings

NUMBERS_AT_ONCE = 2**22  # 16 MiB: a batch of long texts under many heads must not fill the memory


class HeadLogger(Callback):
    """Record at step 0 and at every validation; the validation's own forward passes give the numbers.

    Stands before weight averaging in the list of callbacks, so that it reads the averaged weights, as the scores do.

    Args:
        probes: the texts whose maps are shown.
        labels: names of the classes.
        config: what to record.
        recorder: where the maps are kept.

    Attributes:
        seconds: time spent on recording, the cost of inspection.
        summary: the latest numbers, layer -> measure -> (means, standard errors), one of each per head.
    """

    def __init__(
        self, probes: list[Probe], labels: list[str], config: InspectionConfig, recorder: HeadRecorder
    ) -> None:
        self.probes, self.labels, self.config, self.recorder = probes, labels, config, recorder
        self.seconds = 0.0
        self._last_step = -1
        self.summary: Summary = {}
        self._statistics, self._pooling, self._stack = HeadStatistics(), HeadStatistics(POOLING_MEASURES), ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell TensorBoard that this run has a record, which the Heads tab shows."""
        writer: SummaryWriter = trainer.logger.experiment  # type: ignore[union-attr]
        writer._get_file_writer().add_summary(marker_summary(), 0)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch the attention layers."""
        self._statistics, self._pooling = HeadStatistics(), HeadStatistics(POOLING_MEASURES)
        if self.config.numbers:
            self._stack.enter_context(observe(pl_module, self._count, HeadedAttention))
            self._stack.enter_context(observe(pl_module, self._count_pooling, ScoredAttention))

    def _count(self, layer: str, seen: Seen) -> None:
        start, padding = _now(seen.like.device), seen.key_padding_mask
        B, H, Q, K = seen.shape
        # A few texts at a time, so that memory does not depend on the batch.
        texts = max(1, NUMBERS_AT_ONCE // (H * Q * K))
        for start_row in range(0, B, texts):
            rows = slice(start_row, start_row + texts)
            self._statistics.update(layer, seen.weights(rows), None if padding is None else padding[rows])
        self.seconds += _now(seen.like.device) - start

    def _count_pooling(self, layer: str, seen: Seen) -> None:
        start = _now(seen.like.device)
        self._pooling.update(layer, seen.weights())
        self.seconds += _now(seen.like.device) - start

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what was seen."""
        start = _now(pl_module.device)
        self._stack.close()
        model: nn.Module = pl_module.model  # type: ignore[assignment]
        writer: SummaryWriter = trainer.logger.experiment  # type: ignore[union-attr]
        self.summary = self._statistics.summary()
        write_numbers(writer, self.summary, trainer.global_step)
        for measures in self._pooling.summary().values():
            for name, ((mean,), _) in measures.items():
                writer.add_scalar(f"pooling/{name}", mean, trainer.global_step)
        readings = self._record(trainer.global_step, model, pl_module.device, self.summary)
        for number, (probe, reading) in enumerate(zip(self.probes, readings, strict=True)):
            write_reading(writer, f"probe_{number}", probe, reading, trainer.global_step, self.config.font)
        self.seconds += _now(pl_module.device) - start

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record maps between validations, of the averaged weights, if the configuration asks for it."""
        every, step = self.config.every, trainer.global_step
        if every is None or step % every or step == self._last_step:
            return
        start = _now(pl_module.device)
        averages = [callback for callback in trainer.callbacks if isinstance(callback, AveragedWeights)]  # type: ignore[attr-defined]
        with averages[0].in_place(pl_module) if averages else nullcontext():
            self._record(step, pl_module.model, pl_module.device)  # type: ignore[arg-type]
        self.seconds += _now(pl_module.device) - start

    def _record(
        self, step: int, model: nn.Module, device: torch.device, summary: Summary | None = None
    ) -> list[Reading]:
        """Keep the probes' maps, and the numbers if there are any."""
        self._last_step = step
        readings = [read_probe(model, probe, self.labels, device) for probe in self.probes]
        if readings:
            keep_readings(self.recorder, step, readings, summary)
        return readings

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let go of the layers."""
        self._stack.close()

    def state_dict(self) -> dict[str, Any]:
        """Keep the time spent across a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the time up again."""
        self.seconds = state_dict["seconds"]


def write_numbers(writer: SummaryWriter, summary: Summary, step: int) -> None:
    """Write each number as a scalar, heads/layer_0/head_3/entropy."""
    for number, measures in enumerate(summary.values()):
        for name, (means, _) in measures.items():
            for head, mean in enumerate(means):
                writer.add_scalar(f"heads/layer_{number}/head_{head}/{name}", mean, step)


def write_reading(
    writer: SummaryWriter, name: str, probe: Probe, reading: Reading, step: int, font: str | None = None
) -> None:
    """Write a probe's grid of maps and its text."""
    picture = head_grid(list(reading.maps.values()), font, reading.pooling)
    writer.add_image(f"attention/{name}", picture, step, dataformats="HWC")
    text = probe_markdown(probe.text, probe.tokens, probe.label, reading.prediction, reading.probabilities)
    writer.add_text(name, text, step)


def _now(device: torch.device) -> float:
    """Return the time once the device is done, so that its work is counted where it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
