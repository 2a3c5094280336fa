"""Lightning callbacks of a run: averaged weights, checkpoints, the ends of training, and what the screen shows."""

import math
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
)
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from headscope.config import METRICS
from headscope.errors import TrainingError, UserWarningMessage
from headscope.files import read_json, replacing
from headscope.run import VALIDATIONS, save_json
from headscope.signals import Stopped, take_signals
from headscope.training.distributed import all_reduce_max
from headscope.training.resume import LAST, PREVIOUS

# Reading the loss makes a GPU wait: so often it is checked there, and shown.
STEPS_BETWEEN_CHECKS, STEPS_BETWEEN_LOSSES = 50, 20


class AveragedWeights(EMAWeightAveraging):
    """Keep an exponential moving average of the weights, which validation uses and the run keeps.

    (Polyak and Juditsky 1992; the exponential form as in Tarvainen and Valpola 2017, Mean Teachers.) Lightning puts the
    average in the place of the weights for each validation. `decay` is the share of it that a step leaves as it was.
    """

    @contextmanager
    def in_place(self, pl_module: LightningModule) -> Iterator[None]:
        """Put the average in the place of the weights until the block is left."""
        if self._average_model is None:  # nothing has been trained yet
            yield
            return
        self._swap_models(pl_module)
        try:
            yield
        finally:
            self._swap_models(pl_module)


class RunCheckpoint(ModelCheckpoint):
    """Keep checkpoints/best.ckpt, by validation macro-F1, and of equals the one with the lower validation loss.

    On few texts many steps have one macro-F1, and the first of them has learned least. Lightning writes down absolute
    paths, and forgets the best checkpoint when the folder is renamed; here only the files' names are read.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder / "checkpoints",
            "best",
            monitor="validation/macro_f1",
            mode="max",
            enable_version_counter=False,
            save_on_train_epoch_end=False,  # at the validation's end, before SaveLast
        )
        self.kept_loss = math.inf

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Tell whether this validation is the best so far, and remember its loss if it is."""
        loss = float(trainer.callback_metrics.get("validation/loss", math.inf))
        is_equal = current is not None and bool(current == self.best_model_score)
        is_best = bool(super().check_monitor_top_k(trainer, current)) or (
            is_equal and loss < self.kept_loss
        )
        if is_best:
            self.kept_loss = loss
        return is_best

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint knows, and the loss of the best."""
        return {**super().state_dict(), "kept_loss": self.kept_loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what a checkpoint knows, with its paths below the folder of this run."""
        moved = dict(state_dict, dirpath=self.dirpath)
        for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
            moved[key] = self._here(state_dict[key])
        moved["best_k_models"] = {
            self._here(path): score for path, score in state_dict["best_k_models"].items()
        }
        self.kept_loss = moved.pop("kept_loss", math.inf)
        super().load_state_dict(moved)

    def _here(self, path: str) -> str:
        return str(Path(str(self.dirpath)) / Path(path).name) if path else ""


class ResumeCheckpoint(Checkpoint):
    """Write a checkpoint to go on from at every validation, and at the step after which a signal asks to stop.

    ModelCheckpoint's save_last does so only at a better validation. It stands behind RunCheckpoint in the list of
    callbacks (Lightning moves both to its end), so that it knows which checkpoint is best.

    A stop is no validation: it would be one more to choose the best weights by, and to count for patience, and the
    resumed run would not end as an unbroken one.

    Attributes:
        received: the signal that asked to stop; None without one.
        has_stopped: whether what it asked for is done: the checkpoint is that of the last step.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.has_stopped = path, False
        self.received: int | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a first signal, and end at once by a Ctrl-C after it; a closed terminal may well send SIGHUP twice."""
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            raise Stopped(number)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Count an epoch that is over in the batches that it would have now, or Lightning would go on with it.

        They may be of another size than they were, or shared by other processes.
        """
        done = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        if done["is_last_batch"]:
            more = len(trainer.datamodule.sampler("train")) - done["current"]["ready"]  # type: ignore[attr-defined]
            done["current"] = {name: count + more for name, count in done["current"].items()}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals again: Lightning has just taken SIGTERM, by which it would end with exit code 0."""
        take_signals(self.on_signal)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop between two steps: gradients that are not used yet would be lost. At an epoch's end validation comes."""
        is_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if (
            is_step
            and not trainer.is_last_batch
            and not trainer.should_stop
            and self.is_asked_to_stop()
        ):
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the checkpoint, whole or not at all (`AtomicCheckpointIO` sees to that)."""
        if not trainer.sanity_checking:
            self._save(trainer)

    def is_asked_to_stop(self) -> bool:
        """Tell whether a signal has come, to whichever process."""
        self.received = all_reduce_max(self.received or 0) or None
        return self.received is not None

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.path)
        if self.is_asked_to_stop():
            self.has_stopped = True
            raise Stopped(int(self.received or 0))


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints whole or not at all, and keep the one before.

    Lightning's own way is through $TMPDIR: a kill cuts a checkpoint short where that is another file system.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write beside the target, and then put it in place."""
        path = Path(path)
        with replacing(path) as temporary:
            torch.save(checkpoint, temporary)
            if path.name == LAST.name and path.is_file():
                path.replace(path.with_name(PREVIOUS.name))


class StopAtLastStep(Callback):
    """End when all steps are done. Lightning's own max_steps would leave out the last validation."""

    def __init__(self, total_steps: int) -> None:
        self.total_steps = total_steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take no step where a resumed run has done them all."""
        trainer.should_stop |= trainer.global_step >= self.total_steps

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End after this step if it is the last."""
        trainer.should_stop |= trainer.global_step >= self.total_steps


class Patience(EarlyStopping):
    """End when macro-F1 has not risen for `patience` validations; a resumed run takes its own, not the checkpoint's.

    Each validation is counted before its checkpoint is written, which thus knows of it. Lightning would count at the
    epoch's end: not in the checkpoint, and again, without numbers, where a resumed run begins.
    """

    def __init__(self, patience: int) -> None:
        super().__init__(
            "validation/macro_f1", mode="max", patience=patience, check_on_train_epoch_end=False
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what was best and how long ago, but not the patience of the checkpoint."""
        super().load_state_dict(state_dict | {"patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take no step where the run has ended by its patience already, and say so."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            warnings.warn(
                UserWarningMessage(
                    f"trainer.patience={self.patience}: macro-F1 has not risen for {self.wait_count} validations, so "
                    "training is over; to go on, raise it"
                ),
                stacklevel=2,
            )


class StopAtNonFiniteLoss(Callback):
    """Raise a TrainingError that names the step and the last good checkpoint if a loss is NaN or infinite.

    The step is noted on the device, so that it is exact though a GPU's loss is read only now and then. Every
    validation checks loss and logits, since an epoch's last update may have spoilt the weights: such are never saved.
    All processes stop where one has found such a loss.
    """

    def __init__(self, last: Path) -> None:
        self.last = last
        self._first: Tensor | None = None
        self._is_validation_spoilt = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the first step whose loss is NaN or infinite."""
        loss = outputs["loss"].detach()
        if self._first is None:
            self._first = torch.full_like(loss, -1)
        is_first_fault = (self._first < 0) & ~torch.isfinite(loss)
        self._first = torch.where(
            is_first_fault, torch.full_like(loss, trainer.global_step), self._first
        )
        if loss.device.type == "cpu" or trainer.global_step % STEPS_BETWEEN_CHECKS == 0:
            self._check(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look before anything is saved."""
        self._check(trainer)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *_: int,
    ) -> None:
        """Look at the logits."""
        self._is_validation_spoilt |= not torch.isfinite(outputs).all()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop before anything is saved. Not batch by batch: the processes may have different numbers of them."""
        if all_reduce_max(self._is_validation_spoilt):
            raise self._error(
                f"validation gave NaN or infinite logits after step {trainer.global_step}"
            )

    def _check(self, trainer: Trainer) -> None:
        first = all_reduce_max(-1 if self._first is None else int(self._first))
        if first >= 0:
            raise self._error(f"the loss is NaN or infinite at step {first}")

    def _error(self, what: str) -> TrainingError:
        saved = self.last if self.last.exists() else "none yet"
        return TrainingError(
            f"{what}. Last good checkpoint: {saved}. "
            f"Try a lower optimizer.learning_rate, an optimizer.gradient_clip above 0, or trainer.precision=32-true"
        )


class ValidationLog(Callback):
    """Write the scores of every validation so far to validations.json, for those who watch a run from outside."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / VALIDATIONS

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add this validation; a resumed run drops those that it repeats."""
        found = {name: float(trainer.callback_metrics[f"validation/{name}"]) for name in METRICS}
        kept = read_json(self.path, list) if self.path.exists() else []
        before = [entry for entry in kept if entry["step"] < trainer.global_step]
        save_json(
            self.path,
            [*before, {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **found}],
        )


class RunProgress(Callback):
    """A bar for the whole run, with the time left, if `show_bar` and on a terminal, and a line for each validation."""

    def __init__(self, total_steps: int, console: Console, show_bar: bool) -> None:
        self.total_steps, self.console = total_steps, console
        self.bar = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(),
            TextColumn("left  {task.description}"),
            console=console,
            disable=not (show_bar and console.is_terminal),
        )
        self.task = self.bar.add_task("", total=total_steps)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the bar, full up to where a resumed run goes on; the stage's time begins now."""
        self.started = time.perf_counter()
        self.bar.reset(self.task, completed=trainer.global_step)
        self.bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar, and now and then read the loss."""
        self.bar.update(self.task, completed=trainer.global_step)
        if trainer.global_step % STEPS_BETWEEN_LOSSES == 0:
            self.bar.update(self.task, description=f"loss {float(outputs['loss']):.3f}")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write a line with the numbers of this validation."""
        if trainer.sanity_checking:
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.console.print(
            f"epoch {trainer.current_epoch + 1:>2}  step {trainer.global_step:>6}  "
            f"{time.perf_counter() - self.started:6.0f} s  validation loss {metrics['validation/loss']:.4f}  "
            f"accuracy {metrics['validation/accuracy']:.4f}  macro-F1 {metrics['validation/macro_f1']:.4f}",
            highlight=False,
            soft_wrap=True,
        )

    def on_train_end(self, *_: object, **__: object) -> None:
        """Take the bar away; after an error too, so that the message stands on a line of its own."""
        self.bar.stop()

    on_exception = on_train_end
