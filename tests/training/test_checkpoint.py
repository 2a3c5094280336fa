"""Which weights are kept: the best by validation macro-F1, and of equals the ones of the lower validation loss."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from headscope.training.checkpoint import RunCheckpoint
from headscope.training.config import TrainConfig
from headscope.training.run import train


class Validated(Trainer):
    """A trainer after a validation, of whom nothing but its loss is asked."""

    def __init__(self, loss: float) -> None:
        super().__init__(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
        self.loss = loss

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        return {"validation/loss": torch.tensor(self.loss)}


def kept(folder: Path, validations: list[tuple[float, float]], checkpoint: RunCheckpoint | None = None) -> list[int]:
    """Return which validations, of (macro-F1, loss), would have been written."""
    checkpoint, written = checkpoint or RunCheckpoint(folder), []
    for number, (macro_f1, loss) in enumerate(validations):
        score = torch.tensor(macro_f1)
        if checkpoint.check_monitor_top_k(Validated(loss), score):
            written.append(number)
            checkpoint.best_k_models = {f"{number}": score}
            checkpoint.kth_best_model_path, checkpoint.best_model_score = f"{number}", score
    return written


@pytest.mark.parametrize(
    ("validations", "wanted"),
    [
        ([(0.5, 0.1), (0.6, 0.9)], [0, 1]),
        ([(0.6, 0.1), (0.5, 0.0)], [0]),
        ([(1.0, 0.9), (1.0, 0.5), (1.0, 0.7), (1.0, 0.4)], [0, 1, 3]),
        ([(1.0, 0.5), (1.0, 0.5)], [0]),
    ],
)
def test_of_equals_the_lower_loss_is_kept(
    tmp_path: Path, validations: list[tuple[float, float]], wanted: list[int]
) -> None:
    assert kept(tmp_path, validations) == wanted


def test_a_resumed_run_knows_the_loss_of_the_best(tmp_path: Path) -> None:
    before = RunCheckpoint(tmp_path)
    kept(tmp_path, [(1.0, 0.5)], before)
    after = RunCheckpoint(tmp_path)
    after.load_state_dict(before.state_dict())
    after.best_k_models, after.kth_best_model_path = before.best_k_models, before.kth_best_model_path
    assert kept(tmp_path, [(1.0, 0.6), (1.0, 0.4)], after) == [1]


def test_a_run_keeps_what_learned_most_of_equals(small_config: Callable[..., TrainConfig]) -> None:
    report = train(small_config(max_epochs=6))
    events = EventAccumulator(str(report.folder)).Reload()
    found = zip(events.Scalars("validation/macro_f1"), events.Scalars("validation/loss"), strict=True)
    best = max(found, key=lambda pair: (pair[0].value, -pair[1].value))[0]
    assert report.facts_of_training["kept step"] == best.step + 1  # Lightning logs before it counts the step
