"""The best and the last checkpoint, in a folder that may be moved."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint


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
    """Keep checkpoints/best.ckpt, by validation macro-F1.

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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what a checkpoint knows, with its paths below the folder of this run."""
        moved = dict(state_dict, dirpath=self.dirpath)
        for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
            moved[key] = self._here(state_dict[key])
        moved["best_k_models"] = {self._here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict(moved)

    def _here(self, path: str) -> str:
        return str(Path(str(self.dirpath)) / Path(path).name) if path else ""
