"""Lightning callbacks of a run: checkpoints with the best weights, early stopping, progress."""

import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor

from headscope.ground.errors import ConfigError, TrainingError, first_line
from headscope.ground.files import write_atomic
from headscope.ground.signals import Stopped, take_signals
from headscope.ground.terminal import Bar, show_line
from headscope.results.scores import TEMPERED
from headscope.runs.setup import Setup
from headscope.training.distributed import all_reduce_max

CHOSEN_BY = f"validation/{TEMPERED}"  # the best weights, and when patience is over
STEPS_BETWEEN_CHECKS = 50  # of a GPU's loss: reading it makes the GPU wait
STEPS_BETWEEN_LOSSES = 20  # on the progress bar


class Best(TypedDict):
    """The weights of the lowest tempered validation loss until now; of equals the first.

    The loss is a proper score, and on a thousand texts far less noisy than macro-F1, whose standard
    error there is 1.3 points. Before the first validation they are the last weights, without a
    loss.
    """

    loss: float | None
    step: int
    epoch: int  # counted from 1
    weights: dict[str, Tensor]


class RunCheckpoint(Checkpoint):
    """Save checkpoints/last.ckpt at every validation, and at the step where a signal stops the run.

    It holds the best weights too, and all that they depend on: a kill never comes between two
    files. A stop does not validate: one more validation would count for best weights and patience,
    so that the resumed run would not end as an unbroken one.

    Attributes:
        best: the best weights; None before the first save.
        received: the signal that asked to stop; None without one.
        has_stopped: whether the checkpoint of the last step is saved.
    """

    def __init__(self, path: Path, setup: Setup) -> None:
        self.path = path
        self.run_setup = setup
        self.best: Best | None = None
        self.has_stopped = False
        self.received: int | None = None
        self._loss: float | None = None  # of the validation that has just ended
        self._kept = {"metadata": setup.metadata(), "tensors": setup.tensors()}

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a first signal; stop at once at a Ctrl-C after it (a terminal may repeat SIGHUP)."""
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            raise Stopped(number)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the best weights; ConfigError for another number of processes."""
        self.best = checkpoint["best"]
        num_processes = len(checkpoint["random_state"])
        if num_processes != trainer.world_size:
            raise ConfigError(
                f"torchrun --nproc-per-node: expected {num_processes} processes in all, as the "
                f"resumed run had, got {trainer.world_size}"
            )

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take these weights as the best if their loss is lower; add the best to the checkpoint."""
        best = None if self.best is None else self.best["loss"]
        if best is None or (self._loss is not None and self._loss < best):
            weights = checkpoint["state_dict"].items()
            self.best = {
                "loss": self._loss,
                "step": checkpoint["global_step"],
                "epoch": checkpoint["epoch"] + 1,
                "weights": {name: weight.to("cpu", copy=True) for name, weight in weights},
            }
        checkpoint["best"] = self.best
        checkpoint["setup"] = self._kept

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals again: Lightning has taken SIGTERM, and would end with exit code 0."""
        take_signals(self.on_signal)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop between two steps, where no gradients are lost; an epoch ends with a validation."""
        is_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        has_more = is_step and not (trainer.is_last_batch or trainer.should_stop)
        if has_more and self.is_asked_to_stop():
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the checkpoint."""
        self._loss = float(trainer.callback_metrics[CHOSEN_BY])
        self._save(trainer)
        self._loss = None

    def is_asked_to_stop(self) -> bool:
        """Tell whether any process has received a signal."""
        self.received = all_reduce_max(self.received or 0) or None
        return self.received is not None

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.path)
        if self.is_asked_to_stop():
            self.has_stopped = True
            raise Stopped(int(self.received or 0))


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write each checkpoint whole or not at all, in the folder of the run.

    Lightning writes through $TMPDIR: a kill truncates it where that is another file system.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a temporary file and rename it."""
        try:
            write_atomic(Path(path), lambda temporary: torch.save(checkpoint, temporary))
        except RuntimeError as error:  # of torch's writer, in C++
            raise OSError(f"{path}: {first_line(error)}; is the disk full?") from error


class StopAtLastStep(Callback):
    """Stop when all steps are done. Lightning's own max_steps would skip the last validation."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps

    def _stop(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Stop after the last step, and before the first where a resumed run has done them all."""
        trainer.should_stop |= trainer.global_step >= self.total_steps

    on_train_start = _stop
    on_train_batch_end = _stop


class Patience(EarlyStopping):
    """Stop after `patience` validations without a lower loss, counted before checkpoints.

    Lightning would count at the epoch's end: not in the checkpoint, and again where a run resumes.
    """

    def __init__(self, patience: int) -> None:
        super().__init__(CHOSEN_BY, mode="min", patience=patience, check_on_train_epoch_end=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score and the count, but not the patience of the checkpoint."""
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take no step where the run's patience is over already."""
        trainer.should_stop |= self.wait_count >= self.patience


class StopAtNonFiniteLoss(Callback):
    """Raise a TrainingError, in all processes, if a loss or a validation logit is NaN or infinite.

    A GPU's loss is checked every 50 steps. Every validation is checked before anything is saved,
    since an epoch's last update may have spoilt the weights.
    """

    def __init__(self, last: Path) -> None:
        self.last = last

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check the loss."""
        loss = outputs["loss"]
        if loss.device.type == "cpu" or trainer.global_step % STEPS_BETWEEN_CHECKS == 0:
            self._check(loss, f"the loss is NaN or infinite at step {trainer.global_step}")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check before anything is saved; the loss is NaN if a logit is NaN or infinite."""
        loss = pl_module.validation_loss.compute()  # type: ignore[operator, union-attr]
        self._check(loss, f"validation loss is NaN or infinite after step {trainer.global_step}")

    def _check(self, loss: Tensor, problem: str) -> None:
        if all_reduce_max(not torch.isfinite(loss)):
            saved = self.last if self.last.exists() else "none yet"
            raise TrainingError(
                f"{problem}. Last good checkpoint: {saved}. Try a lower optimizer.learning_rate, "
                "an optimizer.gradient_clip above 0, or trainer.precision=32-true"
            )


class RunProgress(Callback):
    """A progress bar of the whole run, and a line for each validation."""

    def __init__(self, total_steps: int, console: Console, show_bar: bool) -> None:
        self.console = console
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        self.bar = Bar(console, "training", total_steps, columns, is_hidden=not show_bar)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar: the record of step 0 comes first."""
        self.bar.start()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to count, with the steps of before a resume."""
        self.started = time.perf_counter()
        self.bar.reset(trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar, and now and then read the loss."""
        name = None
        if trainer.global_step % STEPS_BETWEEN_LOSSES == 0:
            name = f"training, loss {float(outputs['loss']):.3f}"
        self.bar.update(trainer.global_step, name=name)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the metrics of this validation."""
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        show_line(  # of 80 columns
            self.console,
            f"epoch {trainer.current_epoch + 1:>2}  step {trainer.global_step:>4} "
            f"{time.perf_counter() - self.started:4.0f} s  "
            f"validation loss {metrics['validation/loss']:.4f} "
            f"accuracy {metrics['validation/accuracy']:.3f} "
            f"macro-F1 {metrics['validation/macro_f1']:.3f}",
        )

    def on_train_end(self, *_: object, **__: object) -> None:
        """Remove the bar; after an error too, so that the message has a line of its own."""
        self.bar.stop()

    on_exception = on_train_end


@contextmanager
def without_needless_warnings() -> Iterator[None]:
    """Silence Lightning's warnings about what is intended here."""
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",  # workers would only copy the batches
            "Checkpoint directory .* exists and is not empty",  # a resumed run has its own
            ".*LeafSpec.*",  # deprecated by torch, called by Lightning
            "The number of training batches",  # too few batches to log
            "Be aware that when using `ckpt_path`",  # a resumed run may have others
            "It is recommended to use `self.log",  # metrics of all processes already
            "Found .* in eval mode at the start of training",  # a frozen encoder stays in it
        ):
            warnings.filterwarnings("ignore", message=message)
        yield
