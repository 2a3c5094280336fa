"""An installed package, far from any checkout: its command trains on a csv file and uses what it trained."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = [
    "trainer.max_epochs=1",
    "trainer.epoch_steps=1",
    "trainer.accelerator=cpu",
    "trainer.progress=false",
    "model.d_model=16",
    "model.num_heads=2",
    "model.num_layers=1",
    "model.feedforward_size=16",
    "data.max_length=32",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package as a wheel installs it; what it depends on is taken from this environment."""
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", str(ROOT), "--no-deps", "--wheel-dir", str(place / "wheels")], check=True
    )
    wheel = next((place / "wheels").glob("headscope-*.whl"))
    subprocess.run(
        [*pip, "install", str(wheel), "--no-deps", "--no-index", "--target", str(place / "site")],
        check=True,
    )
    return place / "site"


@pytest.mark.slow
def test_the_installed_command_trains_on_a_csv_file_and_uses_the_run(
    site: Path, tmp_path: Path
) -> None:
    for name in ("configs/train.yaml", "configs/data/files.yaml", "tab/page.py", "tab/plugin.py"):
        assert (site / "headscope" / name).is_file(), name
    assert {path.suffix for path in (site / "headscope").glob("*/*static*/**/*")} >= {".js", ".css"}
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "OMP_NUM_THREADS": "1",
        # A network of a few steps may well be below chance, which `evaluate` says in a warning.
        "PYTHONWARNINGS": "error,default::UserWarning",
    }

    def headscope(*arguments: str) -> str:
        command = [sys.executable, "-P", str(site / "bin/headscope"), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = "import headscope.cli.compose as cli; print(cli.__file__, cli.CONFIGS)"
    command = [sys.executable, "-P", "-c", where]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert found.split() == [
        str(site / "headscope/cli/compose.py"),
        str(site / "headscope/configs"),
    ]

    words = {"nice": "lovely warm bright", "poor": "dull cold slow"}
    rows = [
        (f"a {word} film about {number}", label)
        for number in range(40)
        for label in words
        for word in words[label].split()
    ]
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    headscope("train", "data=files", "data.path=reviews.csv", "name=first", *SHORT)
    run = tmp_path / "outputs/first"
    metrics = json.loads((run / "metrics.json").read_text())
    headscope("predict", "run=outputs/first", "input=reviews.csv", "output=labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [text for text, _ in rows]
    headscope("evaluate", "run=outputs/first")
    assert (
        json.loads((run / "evaluations/reviews-test.json").read_text())["accuracy"]
        == metrics["test"]["accuracy"]
    )
    headscope("inspect", "run=outputs/first", "text=a lovely film", "output=page.html")
    assert "lovely" in (tmp_path / "page.html").read_text(encoding="utf-8")
