"""What is printed of a run and of a sweep: whole at any width, with names as long as they come."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from rich.cells import cell_len
from rich.console import Console

from headscope.cli.compose import compose, parse
from headscope.cli.sweep import run_sweep, show_table, verdict, write_best, write_table
from headscope.ground.errors import ConfigError
from headscope.ground.signals import Stopped, continued
from headscope.results.console import show_confusion, show_scores
from headscope.results.scores import Scores
from headscope.runs.folder import save_config
from headscope.settings.config import InspectionConfig, TrainConfig

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

ENGLISH = ["Commercial", "Copyleft", "Copyleft Limited", "Permissive", "Unstated License", "[b]"]
JAPANESE = ["許諾的なライセンス", "制限付きコピーレフト", "商用", "パブリックドメイン"]
RUN = "outputs/rotten_tomatoes_2026-11-21_15-48-30"


def scores_of(classes: int) -> Scores:
    confusion = [[1000 + row * classes + k for k in range(classes)] for row in range(classes)]
    return Scores(0.5, 0.25, 1.125, 0.75, confusion)


def printed(show: Callable[[Console], None], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show(console)
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("labels", [ENGLISH, JAPANESE])
def test_a_confusion_matrix_is_whole_or_left_out(labels: list[str]) -> None:
    matrix = scores_of(len(labels))
    lines = printed(lambda console: show_confusion(console, labels, matrix), 200)
    assert lines[0] == "rows: label, columns: prediction"
    assert " ".join(labels) in [" ".join(line.split()) for line in lines]
    for label, counts in zip(labels, matrix.confusion, strict=True):
        assert f"{label} {' '.join(map(str, counts))}" in [" ".join(line.split()) for line in lines]
    (line,) = printed(lambda console: show_confusion(console, labels, matrix), 60)
    assert line.endswith("columns; TensorBoard has it")


def test_a_long_name_is_folded_and_never_cut() -> None:
    row = Scores(0.5, 0.25, 1.125, 0.75, [], micro_f1=0.625)
    lines = printed(lambda console: show_scores(console, "test", {RUN: row}), 72)
    (cells,) = [line.split() for line in lines if "0.5000" in line]
    assert cells[-5:] == ["0.5000", "0.6250", "0.2500", "1.1250", "0.7500"]
    names = [line.split()[0] for line in lines if line.strip() and "─" not in line]
    assert RUN in "".join(names)
    assert "…" not in "".join(lines)


# --- a sweep's table: every override in the csv file, and on the screen what differs, whole, at any width ---


CONSTANT = {"data": "files", "data.path": "/home/someone/reviews.csv", "data.label_column": "stars"}
SCORES = {"accuracy": 0.55, "macro_f1": 0.4357, "loss": 1.1165, "calibration_error": 0.4061}


def job(folder: Path, number: int, overrides: dict[str, str], **kept: Any) -> None:
    place = folder / f"{'long' * number}-{number:08x}"
    place.mkdir(parents=True)
    overrides = {"model.num_heads": str(2**number), **overrides}
    (place / "job.json").write_text(
        json.dumps({"number": number, "overrides": overrides, "metric": "macro_f1"})
    )
    config = TrainConfig(name="x", outputs_dir="y", seed=int(overrides.get("seed", 0)))
    (place / "config.yaml").write_text(yaml.safe_dump(asdict(config)))
    for name, content in kept.items():
        (place / f"{name}.json").write_text(json.dumps(content))


def done(validation: float = 0.5, **more: float) -> dict[str, Any]:
    return {
        "test": {**SCORES, **more},
        "validation": {"macro_f1": validation},
        "seconds": {"everything": 61.5},
    }


def shown(folder: Path, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    show_table(folder, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_screen_shows_what_differs_and_the_file_has_all(tmp_path: Path) -> None:
    settings = {**CONSTANT, "optimizer.learning_rate": "'a value of several words'"}
    for number in range(3):
        layers = {"model.num_layers": str(number)}
        job(tmp_path, number, settings | layers, metrics=done(0.5 - number / 10))
    lines = shown(tmp_path).splitlines()
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    found = ["0.5500", "62"]
    assert rows == [[str(2**n), str(n), f"{0.5 - n / 10:.4f}", *found] for n in range(3)]
    with (tmp_path / "sweep.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert row.items() > CONSTANT.items()
            assert row["optimizer.learning_rate"] == "a value of several words"  # as meant


def test_more_than_two_settings_stand_below_the_table(tmp_path: Path) -> None:
    for number, settings in enumerate(({}, {"model.d_model": "64", "data.path": "a.csv"})):
        job(tmp_path, number, settings, metrics=done(0.5 + number / 10))
    lines = shown(tmp_path).splitlines()
    assert "1: model.num_heads=2, model.d_model=64, data.path=a.csv" in lines
    assert "2: model.num_heads=1" in lines
    assert [line.split()[:2] for line in lines if line.strip()[:1] in ("1", "2")][:2] == [
        ["1", "0.6000"],
        ["2", "0.5000"],
    ]


def test_a_job_that_failed_says_why_below_the_table(tmp_path: Path) -> None:
    why = "model.num_heads: got 3, takes a divisor of model.d_model=[32]"
    job(tmp_path, 0, {}, metrics=done())
    job(tmp_path, 1, {}, failure={"message": why})
    job(tmp_path, 2, {})
    lines = shown(tmp_path).splitlines()
    assert f"long-00000001: failed: {why}" in lines
    assert "longlong-00000002: not finished" in lines


def test_what_is_within_the_noise_of_the_seeds_and_the_baseline_stand_in_the_table(
    tmp_path: Path,
) -> None:
    baseline = {"accuracy": 0.5, "differences": {"accuracy": [0.1, 0.05, 0.15]}}
    scores = {1: (0.5, 0.52), 2: (0.51, 0.53), 4: (0.1, 0.12)}
    for number, (heads, values) in enumerate(scores.items()):
        for seed, value in enumerate(values):
            overrides = {"model.num_heads": str(heads), "seed": str(seed)}
            metrics = {**done(value), "baseline": baseline}
            job(tmp_path, 2 * number + seed, overrides, metrics=metrics)
    lines = [line.split() for line in shown(tmp_path, 200).splitlines()]
    assert [line[:4] for line in lines if line[:1] in (["1"], ["2"], ["4"])] == [
        ["2", "2", "best", "0.5200"],
        ["1", "2", "within", "noise"],
        ["4", "2", "0.1100", "±"],
    ]
    (one,) = [line for line in lines if line[:1] == ["1"]]
    assert "0.5000" in one  # TF-IDF


def test_a_configuration_has_the_mean_over_its_seeds_and_the_best_of_validation_comes_first(
    tmp_path: Path,
) -> None:
    for number, (heads, seed, validation, accuracy) in enumerate(
        [(2, 0, 0.4, 0.9), (2, 1, 0.5, 0.7), (4, 0, 0.6, 0.6), (4, 1, 0.8, 0.7), (8, 0, 0.9, 0.1)]
    ):
        settings = {"model.num_heads": str(heads), "seed": str(seed)}
        job(tmp_path, number, settings, metrics=done(validation, accuracy=accuracy))
    job(tmp_path, 5, {"model.num_heads": "8", "seed": "1"})  # not finished
    lines = shown(tmp_path, 200).splitlines()
    table = [
        re.split(r"\s{2,}", line.strip())[:4]
        for line in lines
        if line.strip()[:1].isdigit() and "±" in line
    ]
    assert table == [
        ["4", "2", "0.7000 ± 0.1414", "0.6500 ± 0.0707"],
        ["2", "2", "0.4500 ± 0.0707", "0.8000 ± 0.1414"],
    ]
    # One of its seeds is missing, so it is listed and not chosen.
    best = (tmp_path / "best.yaml").read_text()
    assert best.startswith("defaults:\n- train\n- _self_\nseed: 0\n")
    assert "outputs_dir" not in best
    assert f"best again: headscope train --config-dir {tmp_path} --config-name best" in lines


def test_of_a_loss_less_is_better_and_the_best_settings_resolve_nothing_of_this_machine(
    tmp_path: Path,
) -> None:
    for number, loss in enumerate([0.7, 0.3, 0.5]):
        metrics = {**done(loss=1.0 - loss), "validation": {"loss": loss, "macro_f1": loss}}
        job(tmp_path, number, {}, metrics=metrics)
        path = next(tmp_path.glob(f"*{number:08x}/job.json"))
        path.write_text(path.read_text().replace("macro_f1", "loss"))
    probes = ["1e3", "costs: 1"]
    config = TrainConfig(seed=17, inspection=InspectionConfig(probes=probes))
    (tmp_path / f"long-{1:08x}" / "config.yaml").write_text(yaml.safe_dump(asdict(config)))
    rows = [line.split()[:2] for line in shown(tmp_path).splitlines() if line.strip()[:1].isdigit()]
    assert rows == [["2", "0.3000"], ["4", "0.5000"], ["1", "0.7000"]]
    best = OmegaConf.load(tmp_path / "best.yaml")
    assert (best.seed, [*best.inspection.probes]) == (17, probes)


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ([0.032, 0.017, 0.047], "+3.2 points of test accuracy over TF-IDF (+1.7 to +4.7); take it"),
        ([0.01, -0.01, 0.03], "(-1.0 to +3.0); TF-IDF is as good, and trains in 2 s"),
        ([-0.02, -0.03, -0.01], "(-3.0 to -1.0); take TF-IDF, which trains in 2 s"),
        (None, "; TF-IDF could not be fitted"),
    ],
)
def test_the_interval_decides_whether_the_best_is_worth_taking_over_tf_idf(
    tmp_path: Path, interval: list[float] | None, said: str
) -> None:
    for number in (0, 1):
        metrics = done(0.1 + number / 10)
        metrics["seconds"]["baseline"] = 2.1
        metrics["baseline"] = interval and {"differences": {"accuracy": interval}}
        job(tmp_path, number, {}, metrics=metrics)
    write_table(tmp_path)
    found = verdict(tmp_path, ["long-00000001"])
    assert found.startswith("best: long-00000001")
    assert found.endswith(said)


def test_the_last_line_is_of_all_seeds_of_the_best_and_of_their_texts(tmp_path: Path) -> None:
    """Three seeds of +1, +3, +5 points: mean 3, t(2) = 4.303, s = 2; each with texts of +-2 points."""
    for number, mean in enumerate((0.01, 0.03, 0.05)):
        metrics = done(0.5)
        metrics["seconds"]["baseline"] = 2.1
        interval = [mean, mean - 0.02, mean + 0.02]
        metrics["baseline"] = {"accuracy": 0.5, "differences": {"accuracy": interval}}
        job(tmp_path, number, {"model.num_heads": "2", "seed": str(number)}, metrics=metrics)
    half = math.hypot(2, 4.3027 * 2 / math.sqrt(3))
    last = shown(tmp_path).splitlines()[-1]
    assert f"and 2 other seeds: +3.0 points of test accuracy over TF-IDF ({3 - half:.1f} to" in last
    assert f"to +{3 + half:.1f}); TF-IDF is as good" in last


def test_no_word_of_a_heading_is_broken(tmp_path: Path) -> None:
    for number in range(4):
        swept = {"optimizer.learning_rate": f"{number % 2}e-4", "seed": str(number // 2)}
        swept["model.feedforward_size"] = str(512 * (1 + number % 2))
        swept.pop("model.num_heads", None)
        job(tmp_path, number, swept | {"model.num_heads": "2"}, metrics=done(0.5 + number / 10))
    headings = {"optimizer.", "learning_", "rate", "feedforward_", "size", "validation", "seconds"}
    assert headings <= {*shown(tmp_path, 100).split()}
    narrow = shown(tmp_path, 80)  # where they do not fit, settings stand below
    assert {"validation", "accuracy", "seconds"} <= {*narrow.split()}
    assert "1: optimizer.learning_rate=1e-4, model.feedforward_size=1024" in narrow.splitlines()


def test_the_best_settings_are_the_same_again_though_a_text_has_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a ${b} c", r"\${d}", "$e {f}", r"\\$", "${g"]
    config = TrainConfig(inspection=InspectionConfig(probes=texts))
    save_config(tmp_path / "job", config)
    write_best(tmp_path, "job")
    line = parse(["--config-dir", str(tmp_path), "--config-name", "best"], TrainConfig)
    assert compose(line)["inspection"]["probes"] == texts


def test_a_stopped_job_says_that_the_whole_command_continues() -> None:
    stopped = Stopped(15, " at step 7; resume it: headscope train resume=a/b")
    said = "stopped by SIGTERM at step 7; the same command again continues"
    assert str(continued(stopped)) == said
    assert (
        str(continued(KeyboardInterrupt())) == "stopped by Ctrl-C; the same command again continues"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed=range(1000000000)"], "seed: expected at most 10,000 jobs in a sweep"),
        (["model.dropout=shuffle(range(0,0.5,1e-12))"], "model.dropout: expected at most 10,000"),
        (
            ["seed=range(101)", "model.num_layers=range(1,101)"],
            "model.num_layers: expected at most",
        ),
        (["seed=range(0,10,0)"], "seed: expected a step, got 0; leave it out"),
    ],
)
def test_the_jobs_of_a_sweep_are_bounded_before_they_are_listed(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run_sweep(parse(["-m", *words], TrainConfig))
    assert not any(tmp_path.iterdir())
