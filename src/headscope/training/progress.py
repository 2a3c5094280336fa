"""What is seen on the screen while training goes on."""

import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

STEPS_BETWEEN_LOSSES = 20  # reading the loss makes a GPU wait


def classified(metrics: dict[str, float]) -> str:
    """Return what a validation of a classifier found, in words."""
    return (
        f"validation loss {metrics['validation/loss']:.4f}  accuracy {metrics['validation/accuracy']:.4f}  "
        f"macro-F1 {metrics['validation/macro_f1']:.4f}"
    )


class RunProgress(Callback):
    """One bar for a whole stage of a run, with the time left, and a line for each validation.

    Args:
        total_steps: optimizer steps of the stage.
        console: where to write; without a terminal there is no bar, only the lines.
        show_bar: False for the lines alone.
        title: of the stage.
        told: what a line says of the numbers of a validation.
    """

    def __init__(
        self,
        total_steps: int,
        console: Console,
        show_bar: bool,
        title: str = "training",
        told: Callable[[dict[str, float]], str] = classified,
    ) -> None:
        self.total_steps, self.console, self.title, self.told = total_steps, console, title, told
        self.bar = Progress(
            TextColumn(f"[bold]{title}"),
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
        stage = "" if self.title == "training" else f"{self.title}: "
        self.console.print(
            f"{stage}epoch {trainer.current_epoch + 1:>2}  step {trainer.global_step:>6}  "
            f"{time.perf_counter() - self.started:6.0f} s  {self.told(metrics)}",
            highlight=False,
            soft_wrap=True,
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the bar away."""
        self.bar.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take the bar away, so that the message stands on a line of its own."""
        self.bar.stop()
