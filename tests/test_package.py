"""An installed package, far from any checkout: its command trains on a csv file and uses what it trained."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = [
    *("trainer.max_epochs=1", "trainer.accelerator=cpu", "trainer.progress=false"),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.feedforward_size=16"),
    "data.max_length=32",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package as a wheel installs it; what it depends on is taken from this environment."""
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = ["--wheel-dir", str(place / "wheels")]
    subprocess.run([*pip, "wheel", str(ROOT), "--no-deps", *wheels], check=True)
    wheel = next((place / "wheels").glob("headscope-*.whl"))
    target = ["--no-index", "--target", str(place / "site")]
    subprocess.run([*pip, "install", str(wheel), "--no-deps", *target], check=True)
    return place / "site"


@pytest.mark.slow
def test_the_installed_command_trains_on_a_csv_file_and_uses_the_run(
    site: Path, tmp_path: Path
) -> None:
    for name in ("configs/train.yaml", "configs/data/files.yaml", "tab/html.py", "tab/plugin.py"):
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
        options = {"cwd": tmp_path, "env": environment, "timeout": 300}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = "import headscope.cli.compose as cli; print(cli.__file__, cli.CONFIGS)"
    command = [sys.executable, "-P", "-c", where]
    found = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    package = site / "headscope"
    assert found.split() == [str(package / "cli/compose.py"), str(package / "configs")]

    words = {"nice": "lovely warm bright", "poor": "dull cold slow"}
    told = [(word, label) for label in words for word in words[label].split()]
    rows = [(f"a {word} film about {at}", label) for at in range(40) for word, label in told]
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    headscope("train", "data=files", "data.path=reviews.csv", "name=first", *SHORT)
    headscope("predict", "run=outputs/first", "input=reviews.csv", "output=labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [text for text, _ in rows]
    assert "lovely" in (tmp_path / "outputs/first/report.html").read_text(encoding="utf-8")
