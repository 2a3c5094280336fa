"""The configuration of a training run: every key that `scripts/train.py` takes.

Free of torch and lightning, so that `--help` and mistakes are answered at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.data.config import DataConfig, TokenizerConfig, is_local
from headscope.inspection.config import InspectionConfig
from headscope.model.config import ModelConfig
from headscope.settings import setting

PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed")
ACCELERATORS = ("auto", "cpu", "gpu", "mps")


@dataclass
class OptimizerConfig:
    """AdamW with warm-up and cosine decay, and what shapes the loss."""

    learning_rate: float = setting(5e-4, "peak learning rate; with model.path about 1e-4", above=0)
    final_share: float = setting(0.0, "learning rate at the end, as a share of the peak", minimum=0, maximum=1)
    warmup_share: float = setting(0.1, "share of all steps in which the learning rate rises", minimum=0, maximum=1)
    weight_decay: float = setting(
        0.01,
        "decay of matrices, tables of tokens and places among them; biases, norms and other vectors have none",
        minimum=0,
    )
    layer_decay: float = setting(
        1.0, "learning rate of a layer as a share of that of the layer above; 1 for all alike", above=0, maximum=1
    )
    evidence_rate: float = setting(
        5e-2, "learning rate of the weights of n-grams (model.evidence), which are not decayed", above=0
    )
    beta1: float = setting(0.9, "AdamW: memory of the gradient", minimum=0, below=1)
    beta2: float = setting(0.98, "AdamW: memory of its square", minimum=0, below=1)
    gradient_clip: float = setting(1.0, "largest norm of the gradient; 0 for no limit", minimum=0)
    label_smoothing: float = setting(
        0.0, "share of the target spread over all classes, or over yes and no with data.multi_label", minimum=0, below=1
    )
    class_weights: str = setting(
        "balanced",
        "balanced: rare classes weigh as much as frequent ones; with data.multi_label, having a class as much as not",
        choices=("none", "balanced"),
    )


@dataclass
class TrainerConfig:
    """How long, on what, and by which rules training goes on and ends."""

    accelerator: str = setting("auto", "where to train", choices=ACCELERATORS)
    devices: int = setting(1, "how many of them", minimum=1)
    precision: str = setting(
        "auto", "auto: bf16-mixed on a GPU that has instructions for it, 32-true elsewhere", choices=PRECISIONS
    )
    max_epochs: int = setting(4, "passes over the training texts", minimum=1)
    max_steps: int | None = setting(None, "stop after so many optimizer steps", minimum=1)
    accumulate: int = setting(1, "batches per optimizer step", minimum=1)
    ema_decay: float | None = setting(
        None,
        "decay of a moving average of the weights, used for validation and kept, such as 0.99; null for none",
        above=0,
        below=1,
    )
    patience: int | None = setting(
        None, "stop after so many validations without a better macro-F1; null for never", minimum=1
    )
    progress: bool = setting(True, "show a progress bar with the time left")


@dataclass
class TrainConfig:
    """Everything that decides a run. The resolved form is kept in the run folder as config.yaml."""

    name: str | None = setting(None, "folder of the run below outputs_dir; null for data and time")
    outputs_dir: str = setting("outputs", "where runs land")
    resume: str | None = setting(
        None, "run folder to continue; its settings are taken, keys on the command line override them"
    )
    seed: int = setting(0, "seed of weights, dropout and order of batches", minimum=0)
    baseline: bool = setting(True, "score TF-IDF + logistic regression on the same split")
    data: DataConfig = setting(DataConfig, "texts")
    tokenizer: TokenizerConfig = setting(TokenizerConfig, "tokenizer")
    model: ModelConfig = setting(ModelConfig, "network")
    optimizer: OptimizerConfig = setting(OptimizerConfig, "optimizer")
    trainer: TrainerConfig = setting(TrainerConfig, "trainer")
    inspection: InspectionConfig = setting(InspectionConfig, "attention heads")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        if self.name is not None and (not self.name or Path(self.name).is_absolute() or ".." in Path(self.name).parts):
            yield "name", f"got {self.name!r}, takes the name of a folder below outputs_dir"
        if self.resume is not None and not (Path(self.resume) / "config.yaml").is_file():
            yield "resume", f"got {self.resume!r}, takes a run folder with a config.yaml in it"
        if self.trainer.devices > 1:
            yield (
                "trainer.devices",
                f"got {self.trainer.devices}, takes 1: several are not there yet (docs/scaling.md: what it needs)",
            )
        path = self.model.path  # of no interest to a resumed run, which has weights of its own
        if path and self.resume is None and not Path(path).expanduser().is_dir() and is_local(path):
            yield (
                "model.path",
                f"got {path!r}, takes a folder that exists (or a Hub id such as google-bert/bert-base-uncased)",
            )
