"""The best and the last checkpoint, in a folder that may be moved."""

import math
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from torch import Tensor


class SaveLast(Checkpoint):
    """Write a checkpoint to go on from at every validation.

    ModelCheckpoint's save_last writes one only where the best one gets better. This one stands behind RunCheckpoint in
    the list of callbacks (Lightning moves both to its end), so that it knows which checkpoint is best.

    Args:
        path: where to write it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the checkpoint, whole or not at all (Lightning sees to that)."""
        if not trainer.sanity_checking:
            trainer.save_checkpoint(self.path)


class RunCheckpoint(ModelCheckpoint):
    """Keep checkpoints/best.ckpt, by validation macro-F1, and of equals the one with the lower validation loss.

    On few texts many steps have one macro-F1, and the first of them has learned least.

    Lightning writes down absolute paths, and forgets which checkpoint was best when the folder has another name;
    here the names are read as names in the folder as it is called now.
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
        is_best = bool(super().check_monitor_top_k(trainer, current)) or (is_equal and loss < self.kept_loss)
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
        moved["best_k_models"] = {self._here(path): score for path, score in state_dict["best_k_models"].items()}
        self.kept_loss = moved.pop("kept_loss", math.inf)
        super().load_state_dict(moved)

    def _here(self, path: str) -> str:
        return str(Path(str(self.dirpath)) / Path(path).name) if path else ""
