"""The results of a run, and metrics.json, their written form."""

import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from headscope.model.objective import ONE_CLASS, Objective
from headscope.training.calibration import Calibration
from headscope.training.config import TrainConfig
from headscope.training.kept import METRICS, save_json
from headscope.training.scoring import Scores

# The scores that are shown, and how they are called where people read them.
SCORES = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",  # of texts with any number of labels; of one label a text it is the accuracy
    "macro_f1": "macro-F1",
    "loss": "loss",
    "calibration_error": "calibration error",
}
# Of the facts of training.
PUT = "nats put for the predicted class"
WITHOUT = "loss without a head"  # head -> by how much it rises, its standard error
PACKAGES = ("headscope", "torch", "lightning", "datasets", "tokenizers", "scikit-learn")


@dataclass
class Report:
    """What came of a run.

    Attributes:
        folder: the run folder.
        config: every setting.
        labels: names of the classes.
        test: scores of the best weights on the test split.
        logits: [N, C], what they say of each test text.
        targets: [N] or [N, C], the labels of the test texts.
        objective: what the labels are.
        baseline: scores of TF-IDF + logistic regression on the same split, if asked for.
        baseline_name: what was fitted.
        calibration: the temperature, and what it does to validation and test.
        most_wrong: the page of the texts that the model is most wrong about, if there are any.
        facts_of_data: sizes, cuts, padding.
        facts_of_training: steps, parameters, precision.
        seconds: what took how long.
    """

    folder: Path
    config: TrainConfig
    labels: list[str]
    test: Scores
    logits: Float[Tensor, "N C"]
    targets: Int[Tensor, "N *C"]
    objective: Objective = ONE_CLASS
    baseline: Scores | None = None
    baseline_name: str = ""
    calibration: Calibration | None = None
    most_wrong: Path | None = None
    facts_of_data: dict[str, Any] = field(default_factory=dict)
    facts_of_training: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """By which logits are divided before they become probabilities."""
        return self.calibration.temperature if self.calibration else 1.0

    def save(self) -> None:
        """Write metrics.json."""
        content = {
            "test": asdict(self.test),
            "baseline": {"name": self.baseline_name, **asdict(self.baseline)} if self.baseline else None,
            "calibration": self.calibration.content() if self.calibration else None,
            "labels": self.labels,
            "training": self.facts_of_training,
            "data": self.facts_of_data,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "peak_memory_gib": peak_memory(),
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        }
        save_json(self.folder / METRICS, content)


def peak_memory() -> float | None:
    """Return the most memory that this process has held, in GiB; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kibibytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30, 2)
