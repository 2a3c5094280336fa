"""The results of a run: metrics.json, and the closing entries of TensorBoard."""

import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from headscope.config import TrainConfig
from headscope.files import read_json
from headscope.model.objective import ONE_CLASS, Objective
from headscope.run import METRICS, flat, save_json
from headscope.tab.pictures import (
    confusion_picture,
    reliability,
    reliability_picture,
)
from headscope.tab.summaries import add_summary
from headscope.training.resume import JOB
from headscope.training.scores import CHANGED, SCORES, Calibration, Scores

# Of the facts of training.
PUT = "nats put for the predicted class"
ANSWER = "which heads matter"
ABLATION = "loss without a head"  # head -> by how much it rises, its standard error
MOST_CLASSES = 150  # a picture of their confusion matrix has 60 million pixels
PACKAGES = ("headscope", "torch", "lightning", "datasets", "tokenizers", "scikit-learn")


@dataclass
class Report:
    """What came of a run."""

    folder: Path
    config: TrainConfig
    labels: list[str]
    test: Scores  # scores of the best weights on the test split
    validation: Scores  # theirs on the validation split, by which runs are compared
    logits: Float[Tensor, "N C"]  # of the test texts
    targets: Int[Tensor, "N *C"]
    objective: Objective = ONE_CLASS
    baseline: Scores | None = (
        None  # scores of TF-IDF + logistic regression on the same split, if asked for
    )
    baseline_name: str = ""  # what was fitted
    calibration: Calibration | None = (
        None  # the temperature, and what it does to validation and test
    )
    most_wrong: Path | None = (
        None  # the page of the texts that the model is most wrong about, if there are any
    )
    facts_of_data: dict[str, Any] = field(default_factory=dict)  # sizes, cuts, padding
    facts_of_training: dict[str, Any] = field(default_factory=dict)  # steps, parameters, precision
    seconds: dict[str, float] = field(default_factory=dict)  # what took how long

    @property
    def temperature(self) -> float:
        """By which logits are divided before they become probabilities."""
        return self.calibration.temperature if self.calibration else 1.0

    def save(self) -> None:
        """Write metrics.json."""
        content = {
            "test": self.test.content(self.labels),
            "validation": {
                name: value for name, value in asdict(self.validation).items() if name in SCORES
            },
            "baseline": {"name": self.baseline_name, **self.baseline.content(self.labels)}
            if self.baseline
            else None,
            "calibration": self.calibration.content() if self.calibration else None,
            "labels": self.labels,
            "training": self.facts_of_training,
            "data": self.facts_of_data,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "peak_memory_gib": peak_memory(),
            "versions": {name: version(name) for name in PACKAGES}
            | {"python": platform.python_version()},
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


def write_scores(writer: SummaryWriter, report: Report) -> None:
    """Write the test split's scores beside the baseline's, confusion matrices, PR curves and hyper-parameters."""
    step = report.facts_of_training["steps"]
    named = {"test": report.test, "baseline": report.baseline}
    found = {
        f"{who}/{name}": value
        for who, part in named.items()
        if part
        for name, value in asdict(part).items()
    }
    values = {name: value for name, value in found.items() if name.split("/")[1] in SCORES}
    for name, value in values.items():
        writer.add_scalar(name, value, step)
    for name, (sides, counts) in report.test.tables(report.labels).items():
        if len(counts) <= MOST_CLASSES:
            picture = confusion_picture(counts, sides, report.config.inspection.font)
            writer.add_image(f"test/{name}", picture, step, dataformats="HWC")
        else:
            writer.add_text(
                f"test/{name}",
                f"left out: a picture of {len(counts)} classes; metrics.json has it",
                step,
            )
    probabilities = report.objective.probabilities(report.logits)
    classes = report.objective.has(report.targets, len(report.labels))
    for number, label in enumerate(report.labels):
        writer.add_pr_curve(f"test/{label}", classes[:, number], probabilities[:, number], step)
    for summary in _summaries_of_settings(report.config, values, _swept(report.folder)):
        add_summary(writer, summary)


def _swept(folder: Path) -> set[str]:
    """Return the keys and groups that differ in the sweep that a run is a job of; none for a run of its own."""
    if not (folder / JOB).exists():
        return set()
    job = read_json(folder / JOB, dict)
    return {key.lstrip("+") for key in job.get("overrides", {})} - {*job.get("fixed", {})}


def _summaries_of_settings(
    config: TrainConfig, scores: dict[str, float], swept: set[str]
) -> tuple[Summary, ...]:
    """Return what HParams reads, in the run's own event file: SummaryWriter.add_hparams would open a run of its own.

    HParams lists first what is said to differ. It asks one run, which does not know the others: it names what its
    sweep varies, and what is not as by default.
    """
    settings, defaults = flat(config), flat(TrainConfig())
    experiment, *others = hparams(settings, scores)
    content = HParamsPluginData.FromString(experiment.value[0].metadata.plugin_data.content)
    for setting in content.experiment.hparam_infos:
        is_swept = setting.name in swept or setting.name.partition(".")[0] in swept
        setting.differs = is_swept or settings[setting.name] != defaults[setting.name]
    experiment.value[0].metadata.plugin_data.content = content.SerializeToString()
    return experiment, *others


def write_calibration(writer: SummaryWriter, report: Report) -> None:
    """Write the temperature, the test split's scores with it, and how often it is right by how sure it is."""
    if report.calibration is None:
        return
    step, temperature = report.facts_of_training["steps"], report.calibration.temperature
    before, after = report.calibration.splits["test"]
    writer.add_scalar("test/temperature", temperature, step)
    for name in CHANGED:
        writer.add_scalar(f"test/calibrated/{name}", getattr(after, name), step)
    panels = {}
    for when, found, divisor in (
        ("before", before, 1.0),
        (f"at temperature {temperature:.3f}", after, temperature),
    ):
        title = f"{when}: calibration error {found.calibration_error:.4f}"
        confidence, prediction = (report.logits.double() / divisor).softmax(dim=-1).max(dim=-1)
        panels[title] = reliability(confidence.numpy(), (prediction == report.targets).numpy())
    picture = reliability_picture(panels)
    writer.add_image("test/reliability", picture, step, dataformats="HWC")
