"""The results of a run: metrics.json, and the closing entries of TensorBoard."""

import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from lightning.pytorch.loggers import Logger
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from headscope.ground.errors import shown
from headscope.ground.files import without_home
from headscope.model.objective import (
    ONE_CLASS,
    Objective,
    Reading,
    thresholds_of,
)
from headscope.results.baseline import Compared, differences
from headscope.results.scores import Scores, calibration, predicted_classes
from headscope.runs.abstaining import Point
from headscope.runs.folder import METRICS, MODEL, save_json
from headscope.runs.setup import Chosen
from headscope.settings.checks import flatten
from headscope.settings.config import TrainConfig
from headscope.tab.pictures import confusion_picture
from headscope.tab.summaries import add_summary

# Keys of facts_of_training, as metrics.json has them.
CONTRIBUTIONS = "contributions"  # to the predicted class
HEADLINE = "answer"  # which heads matter
DETAILS = "answer_details"
WORDS = "words"  # that add most to each class: mean, interval, number of texts
ABLATION = "ablation"  # head -> increase of the loss without it, its standard error
MOST_CLASSES = 150  # a picture of their confusion matrix has 60 million pixels
PACKAGES = ("headscope", "torch", "lightning", "datasets", "tokenizers", "scikit-learn")


@dataclass
class Results:
    """The results of a run. N test texts, C classes."""

    folder: Path
    config: TrainConfig
    labels: list[str]  # the classes, in the order of the logits
    test: Scores  # of the best checkpoint
    validation: Scores  # by which runs are compared
    logits: Float[Tensor, "N C"]  # of the test texts
    targets: Int[Tensor, "N *C"]  # their labels
    objective: Objective = ONE_CLASS
    compared: dict[str, Compared] = field(default_factory=dict)  # "baseline", "control"
    temperature: float = 1.0  # divides the logits before they become probabilities
    tempered: dict[str, Scores] = field(default_factory=dict)  # none with data.multi_label
    curve: list[Point] | None = None  # accuracy of validation texts by confidence
    most_unknown: float = 1.0  # share of unknown tokens beyond which a text is unfamiliar
    facts_of_data: dict[str, Any] = field(default_factory=dict)  # sizes, truncation, padding
    facts_of_training: dict[str, Any] = field(default_factory=dict)  # steps, what heads do
    seconds: dict[str, float] = field(default_factory=dict)  # of each part
    pending: list[str] = field(default_factory=list)  # steps after training that are not done yet
    failed: dict[str, str] = field(default_factory=dict)  # and those that failed, with the reason
    digest: str = ""  # of the model, once it is written

    def compare(self, name: str, other: Compared | None) -> None:
        """Add a classifier, if there is one, and how far the run is from it on the same texts."""
        if other is None:
            return
        ours = predicted_classes(self.objective, self.logits)
        truth = self.objective.has(self.targets, len(self.labels))
        other.differences = differences(ours, other.predicted, truth)
        self.compared[name] = other

    @property
    def reading(self) -> Reading:
        """What the logits of the best checkpoint mean."""
        return Reading(self.labels, self.objective, self.temperature)

    def chosen(self) -> Chosen:
        """Return what the validation texts have chosen."""
        return Chosen(
            self.facts_of_training["best_step"],
            self.temperature,
            thresholds_of(self.objective),
            self.most_unknown,
            self.curve,
            is_finished=True,
        )

    def save(self) -> None:
        """Write metrics.json; the run has finished when nothing is pending."""
        pairs = {name: (getattr(self, name), after) for name, after in self.tempered.items()}
        compared = {name: other.content(self.labels) for name, other in self.compared.items()}
        versions = {name: version(name) for name in PACKAGES}
        content = {
            "test": self.test.content(self.labels),
            "validation": self.validation.values(),
            "baseline": None,
            "control": None,
            **compared,
            "calibration": calibration(self.temperature, pairs) if pairs else None,
            "thresholds": thresholds_of(self.objective),
            "accuracy_by_confidence": self.curve,
            "most_unknown": self.most_unknown,
            "labels": self.labels,
            MODEL: self.digest,
            "pending": self.pending,
            "failed": self.failed,
            "training": plain(self.facts_of_training),
            "data": plain(self.facts_of_data),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "versions": plain({**versions, "python": platform.python_version()}),
        }
        save_json(self.folder / METRICS, content)


def plain(facts: Any) -> Any:
    """Return facts with names of lower-case letters, digits and underscores."""
    if not isinstance(facts, dict):
        return facts
    return {re.sub(r"\W+", "_", name.lower()): plain(value) for name, value in facts.items()}


def write_summaries(loggers: Sequence[Logger], results: Results) -> None:
    """Write the scores by each logger; the first, TensorBoard's, has pictures and settings too."""
    step = results.facts_of_training["steps"]
    splits = {"best_validation": results.validation, "test": results.test}  # HParams' order
    others = {name: other.scores for name, other in results.compared.items()}
    values = {
        f"{who}/{name}": value
        for who, scores in {**splits, **others}.items()
        for name, value in scores.values().items()
    }
    for logger in loggers:
        logger.log_metrics(values, step)
    writer: SummaryWriter = loggers[0].experiment  # type: ignore[attr-defined]
    for name, (sides, counts) in results.test.tables(results.labels).items():
        if len(counts) <= MOST_CLASSES:
            sides = [*map(shown, sides)]  # names may have line ends
            picture = confusion_picture(counts, sides)
            writer.add_image(f"test/{name}", picture, step, dataformats="HWC")
    probabilities = results.objective.probabilities(results.logits)
    classes = results.objective.has(results.targets, len(results.labels))
    for number, label in enumerate(results.labels):
        writer.add_pr_curve(f"test/{label}", classes[:, number], probabilities[:, number], step)
    # In the run's own event file; SummaryWriter.add_hparams would open a run of its own.
    settings = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten(without_home(asdict(results.config))).items()
    }
    for summary in hparams(settings, values):
        add_summary(writer, summary)
    for logger in loggers:
        logger.finalize("success")
