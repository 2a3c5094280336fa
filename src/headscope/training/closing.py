"""TensorBoard's closing entries: scores, confusion matrix, PR curves, hyper-parameters, and large labelled maps."""

from dataclasses import asdict

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from headscope.inspection.config import InspectionConfig
from headscope.inspection.measures import MEASURES, PAIR_MEASURES, TOKEN_MEASURES, Summary
from headscope.inspection.recorder import HeadRecorder
from headscope.tensorboard.confusion import confusion_picture
from headscope.tensorboard.images import labelled_heads, labelled_pooling
from headscope.tensorboard.reliability import Reliability, reliability, reliability_picture
from headscope.training.calibration import CHANGED
from headscope.training.folder import flat
from headscope.training.heads import Subjects, write_numbers
from headscope.training.pictures import add_picture
from headscope.training.probes import Probe, Reading, read_probe, shortened
from headscope.training.recording import numbers_of
from headscope.training.report import SCORES, Report
from headscope.training.study import Study

MOST_CLASSES = 150  # a picture of their confusion matrix has 60 million pixels


def write_scores(writer: SummaryWriter, report: Report) -> None:
    """Write the test split's scores beside the baseline's, confusion matrices, PR curves and hyper-parameters."""
    step = report.facts_of_training["steps"]
    named = {"test": report.test, "baseline": report.baseline}
    found = {f"{who}/{name}": value for who, part in named.items() if part for name, value in asdict(part).items()}
    values = {name: value for name, value in found.items() if name.split("/")[1] in SCORES}
    for name, value in values.items():
        writer.add_scalar(name, value, step)
    for name, (sides, counts) in report.test.tables(report.labels).items():
        if len(counts) <= MOST_CLASSES:
            add_picture(writer, f"test/{name}", confusion_picture(counts, sides, report.config.inspection.font), step)
        else:
            writer.add_text(f"test/{name}", f"left out: a picture of {len(counts)} classes; metrics.json has it", step)
    probabilities = report.objective.probabilities(report.logits)
    classes = report.objective.has(report.targets, len(report.labels))
    for number, label in enumerate(report.labels):
        writer.add_pr_curve(f"test/{label}", classes[:, number], probabilities[:, number], step)
    # In the run's own event file: SummaryWriter.add_hparams would open a run of its own.
    for summary in hparams(flat(report.config), values):
        writer._get_file_writer().add_summary(summary)


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
    for when, found, divisor in (("before", before, 1.0), (f"at temperature {temperature:.3f}", after, temperature)):
        title = f"{when}: calibration error {found.calibration_error:.4f}"
        panels[title] = _reliability(report.logits.double() / divisor, report.targets)
    add_picture(writer, "test/reliability", reliability_picture(panels), step)


def _reliability(logits: Float[Tensor, "N C"], targets: Int[Tensor, " N"]) -> Reliability:
    confidence, prediction = logits.softmax(dim=-1).max(dim=-1)
    return reliability(confidence.numpy(), (prediction == targets).numpy())


def write_probes(
    writer: SummaryWriter,
    subjects: Subjects,
    config: InspectionConfig,
    model: nn.Module,
    device: torch.device,
    step: int,
) -> None:
    """Write the kept model's maps of every probe, layer by layer, large, with the tokens on both axes."""
    for number, probe in enumerate(subjects.probes):
        reading = read_probe(model, probe, subjects.labels, device, subjects.objective)
        shown = shortened(probe, reading, config.max_tokens)
        write_labelled(writer, f"probe_{number}", *shown, step, config.font)


def write_labelled(
    writer: SummaryWriter, name: str, probe: Probe, reading: Reading, step: int, font: str | None = None
) -> None:
    """Write a probe's maps, a picture for each layer, and what the pooling gives to each token if it attends."""
    outcome = f"label {probe.label or 'unknown'}, prediction {reading.prediction}"
    for number, maps in enumerate(reading.maps.values()):
        picture = labelled_heads(np.asarray(maps), probe.tokens, f"layer {number}, {outcome}", font)
        add_picture(writer, f"tokens/{name}/layer_{number}", picture, step)
    if reading.pooling is not None:
        picture = labelled_pooling(reading.pooling, probe.tokens, f"pooling, {outcome}", font)
        add_picture(writer, f"tokens/{name}/pooling", picture, step)


def write_study(writer: SummaryWriter, recorder: HeadRecorder, step: int, study: Study) -> None:
    """Add what a study found, beyond what every record has, to a step's record, and write it as scalars.

    Args:
        writer: of the run's event file.
        recorder: of the run; a step that was thinned out meanwhile is left alone.
        step: whose weights were studied.
        study: what was found.
    """
    found = beyond_the_usual(study)
    recorder.index.notes["causes"] = f"measured at step {step}, whose weights were kept, on {study.texts} texts"
    recorder.amend(step, numbers_of(found), study.extra())
    write_numbers(writer, found, step)


def beyond_the_usual(study: Study) -> Summary:
    """Return a study's numbers without those that every record has."""
    usual = {*MEASURES, *TOKEN_MEASURES, *PAIR_MEASURES}
    return {
        layer: {name: values for name, values in measures.items() if name not in usual}
        for layer, measures in study.numbers.items()
    }
