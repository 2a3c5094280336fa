"""The temperature against a grid, a factor that is known, and its bounds; what is kept of it, and what uses it."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.special import log_softmax
from sklearn.metrics import log_loss
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from headscope.commands.config import EvaluateConfig
from headscope.commands.evaluate import evaluate
from headscope.data.config import DataConfig
from headscope.errors import RunError
from headscope.training import run as run_module
from headscope.training.calibration import LARGEST, calibrate, fitted_temperature
from headscope.training.config import TrainConfig
from headscope.training.folder import load_run, save_weights
from headscope.training.kept import CALIBRATION, MADE_OF_WEIGHTS, METRICS, MOST_WRONG, WEIGHTS, load_temperature
from headscope.training.run import train
from headscope.training.scoring import scores

Maker = Callable[..., TrainConfig]


def drawn(texts: int, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits, and labels drawn by the probabilities that they stand for: a calibrated model."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(texts, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]


def losses_of(logits: Tensor, labels: Tensor, temperatures: np.ndarray) -> np.ndarray:
    return np.array(
        [-log_softmax(logits.numpy() / one, axis=1)[range(len(labels)), labels].mean() for one in temperatures]
    )


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_temperature_of_a_grid_is_better(factor: float, seed: int) -> None:
    logits, labels = drawn(200, seed=seed)
    found = fitted_temperature(factor * logits, labels)
    temperatures = np.geomspace(1 / LARGEST, LARGEST, 4001)
    losses = losses_of(factor * logits, labels, temperatures)
    best = int(losses.argmin())
    assert temperatures[best - 1] < found < temperatures[best + 1]
    assert losses_of(factor * logits, labels, np.array([found]))[0] <= losses[best]


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_a_model_that_is_too_sure_by_a_known_factor_gets_that_factor_back(factor: float) -> None:
    logits, labels = drawn(20_000)
    assert fitted_temperature(factor * logits, labels) == pytest.approx(factor, rel=0.03)
    # Whatever the sample says of the factor 1, it says of every other in proportion.
    assert fitted_temperature(factor * logits, labels) / fitted_temperature(logits, labels) == pytest.approx(factor)


def test_the_calibration_error_falls_and_no_label_changes() -> None:
    logits, labels = drawn(5_000)
    validation, test = slice(0, 2_500), slice(2_500, None)
    temperature = fitted_temperature(3 * logits[validation], labels[validation])
    before, after = (scores(3 * logits[test] / divisor, labels[test]) for divisor in (1.0, temperature))
    assert after.calibration_error < 0.3 * before.calibration_error
    assert after.loss < before.loss
    assert (after.accuracy, after.macro_f1, after.confusion) == (before.accuracy, before.macro_f1, before.confusion)


def test_a_temperature_stays_within_its_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = 1000 * torch.randn(300, 3, generator=generator)
    labels = torch.randint(3, (300,), generator=generator)
    assert fitted_temperature(noise, labels) == pytest.approx(LARGEST, rel=1e-3)
    almost = 1e-3 * torch.nn.functional.one_hot(labels, 3).float()  # hardly sure at all, and right but for one text
    almost[0] = -almost[0]
    assert 1 / LARGEST <= fitted_temperature(almost, labels) < 0.051


@pytest.mark.parametrize("scale", [0.0, 0.01, 100.0])
def test_it_is_1_where_the_texts_say_nothing(scale: float) -> None:
    labels = torch.arange(60) % 3
    logits = scale * torch.nn.functional.one_hot(labels, 3).float()  # all right, or at 0 all alike
    assert fitted_temperature(logits, labels) == 1.0


def test_logits_that_are_no_numbers_give_1() -> None:
    assert fitted_temperature(torch.full((4, 2), float("nan")), torch.tensor([0, 1, 1, 1])) == 1.0


def test_the_file_holds_the_temperature_and_what_it_does(tmp_path: Path) -> None:
    logits, labels = drawn(1_000)
    found = calibrate(tmp_path, 2 * logits, labels)
    kept = json.loads((tmp_path / CALIBRATION).read_text())
    assert kept == found.content()
    assert list(kept) == ["temperature", "validation"]
    assert kept["temperature"] == load_temperature(tmp_path) == pytest.approx(2, rel=0.2)
    shares = (2 * logits).softmax(dim=-1), (2 * logits / kept["temperature"]).softmax(dim=-1)
    for when, probabilities in zip(("before", "after"), shares, strict=True):
        assert kept["validation"]["loss"][when] == pytest.approx(log_loss(labels, probabilities), abs=1e-5)
        error = scores(probabilities.log(), labels).calibration_error
        assert kept["validation"]["calibration_error"][when] == pytest.approx(error, abs=1e-5)
    assert found.with_split("test", logits, labels).row("test").keys() == {f"at temperature {kept['temperature']:.3f}"}


def test_training_keeps_a_temperature_and_shows_what_it_does(small_config: Maker) -> None:
    config = small_config(max_epochs=1)
    config.model.evidence, config.model.pooling = False, "mean"  # which leaves mistakes after one epoch
    output = io.StringIO()
    report = train(config, Console(file=output, width=200))
    kept = json.loads((report.folder / CALIBRATION).read_text())
    metrics = json.loads((report.folder / "metrics.json").read_text())
    tempered = scores(report.logits.double() / kept["temperature"], report.targets)
    assert metrics["calibration"]["temperature"] == kept["temperature"] == report.temperature != 1
    assert metrics["calibration"]["validation"] == kept["validation"]
    assert kept["validation"]["loss"]["after"] < kept["validation"]["loss"]["before"]
    assert metrics["calibration"]["test"] == {
        name: {"before": getattr(report.test, name), "after": getattr(tempered, name)}
        for name in ("calibration_error", "loss")
    }
    assert metrics["seconds"]["calibration"] > 0
    row = next(line for line in output.getvalue().splitlines() if f"at temperature {report.temperature:.3f}" in line)
    assert f"{tempered.calibration_error:.4f}" in row
    assert load_run(report.folder).temperature == kept["temperature"]
    events = EventAccumulator(str(report.folder), size_guidance={"images": 0, "scalars": 0}).Reload()
    assert events.Scalars("test/temperature")[0].value == pytest.approx(report.temperature)
    for name in ("calibration_error", "loss"):
        (scalar,) = events.Scalars(f"test/calibrated/{name}")
        assert scalar.value == pytest.approx(getattr(tempered, name), abs=1e-6)
        assert scalar.step == report.facts_of_training["steps"]
    assert len(events.Images("test/reliability")) == 1


def test_evaluate_shows_both_errors_and_an_old_run_has_a_temperature_of_1(small_config: Maker) -> None:
    report = train(small_config(max_epochs=1))
    kept, quiet = report.folder / "evaluations/reviews-test.json", Console(file=io.StringIO(), width=200)
    assert evaluate(EvaluateConfig(str(report.folder), accelerator="cpu"), quiet) == report.test
    metrics = json.loads((report.folder / "metrics.json").read_text())["calibration"]
    assert json.loads(kept.read_text())["calibration"] == {name: metrics[name] for name in ("temperature", "test")}
    (report.folder / CALIBRATION).unlink()
    output = io.StringIO()
    assert evaluate(EvaluateConfig(str(report.folder), accelerator="cpu"), Console(file=output)) == report.test
    found = json.loads(kept.read_text())["calibration"]
    assert found["temperature"] == 1
    assert found["test"]["loss"]["before"] == found["test"]["loss"]["after"] == report.test.loss
    assert "at temperature 1.000" in output.getvalue()


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"temperature": 0}', '{"temperature": "2"}', '{"temperature": Infinity}', "\ud83d"]
)
def test_a_broken_file_is_named(trained_once: Path, content: str) -> None:
    (trained_once / CALIBRATION).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError, match=r"a file there is broken: .*calibration\.json"):
        load_run(trained_once)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of one step."""
    data = tmp_path_factory.mktemp("data") / "reviews.csv"
    rows = (f"{one}{other},{number % 2}" for number, (one, other) in enumerate(product("abcdefghijkl", repeat=2)))
    data.write_text("\n".join(["text,label", *rows]))
    config = TrainConfig(name="run", outputs_dir=str(data.parent), baseline=False, data=DataConfig(path=str(data)))
    config.data.cache_dir = str(data.parent)
    config.tokenizer.kind, config.trainer.max_steps, config.inspection.enabled, config.trainer.accelerator = (
        "wordpiece",
        1,
        False,
        "cpu",
    )
    return train(config, Console(file=io.StringIO())).folder


def test_new_weights_have_nothing_that_was_made_of_older_ones(trained_once: Path) -> None:
    (trained_once / CALIBRATION).unlink(missing_ok=True)
    model = load_run(trained_once).model
    for name in MADE_OF_WEIGHTS:
        (trained_once / name).write_text("{}")
    save_weights(trained_once, model)  # the same ones: all of it is still true
    assert [name for name in MADE_OF_WEIGHTS if not (trained_once / name).exists()] == []
    torch.nn.init.zeros_(next(model.parameters()))
    save_weights(trained_once, model)
    assert [name for name in MADE_OF_WEIGHTS if (trained_once / name).exists()] == []
    assert load_run(trained_once).temperature == 1


def test_ctrl_c_while_a_finished_run_is_scored_anew_changes_nothing(
    small_config: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(max_epochs=1)
    config.model.evidence, config.model.pooling = False, "mean"  # which leaves mistakes after one epoch
    folder = train(config).folder
    before = {name: (folder / name).read_bytes() for name in (CALIBRATION, MOST_WRONG, METRICS, WEIGHTS)}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(replace(config, resume=str(folder)))
    assert {name: (folder / name).read_bytes() for name in before} == before
