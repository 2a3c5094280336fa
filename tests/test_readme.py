"""The README's commands run, in order, as a reader would type them; trainings are made short."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = list(
    dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for block in BLOCKS for line in block.splitlines())
)
SCRIPTS = [command for command in COMMANDS if command.startswith("python scripts/")]
SHORT = [
    *("data.limit=400", "trainer.max_epochs=1", "trainer.accelerator=cpu", "baseline=false"),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.feedforward_size=16"),
]


def shortened(command: str) -> list[str]:
    """Make a training one of seconds, and a sweep one of two jobs; other commands stay as they are."""
    words = shlex.split(command)
    if words[1] != "scripts/train.py" or "--help" in words:
        return words
    if any(word.startswith("resume=") for word in words):
        return [word.replace("max_epochs=12", "max_epochs=2") for word in words]
    swept = {word.split("=")[0] for word in words if "," in word}
    kept = [word.replace("1,2,4,8", "1,2").replace("num_layers=1,2", "num_layers=1") for word in words]
    return kept + [word for word in SHORT if word.split("=")[0] not in swept]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of scripts and configs with the files that the commands speak of."""
    place = tmp_path_factory.mktemp("clone")
    for folder in ("scripts", "configs"):
        shutil.copytree(ROOT / folder, place / folder)
    nouns = [
        first + second
        for first in ("sun", "moon", "star", "sea", "snow", "fire", "wind", "leaf")
        for second in "abcdefgh"
    ]
    rows = [f"{word} film about {noun},{word == 'nice':d}" for noun in nouns for word in ("nice", "poor")]
    (place / "reviews.csv").write_text("review,stars\n" + "\n".join(rows) + "\n")
    (place / "texts.txt").write_text("Permission is hereby granted\nAll rights reserved\n")
    return place


def test_the_readme_shows_every_script() -> None:
    assert {Path(shlex.split(command)[1]).stem for command in SCRIPTS} == {
        "train",
        "evaluate",
        "predict",
        "inspect",
        "verify",
        "trace",
    }
    assert "make train" in README
    assert "make test" in README
    assert len(README.splitlines()) < 150


@pytest.mark.slow
def test_its_commands_run(workplace: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for command in SCRIPTS:
        if "data=ag_news" in command or "data=livedoor" in command:
            continue  # the Hub: tests/data/test_source.py loads from one on loopback
        words = [sys.executable, *shortened(command)[1:]]
        done = subprocess.run(words, cwd=workplace, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert len((workplace / "labels.csv").read_text().splitlines()) == 3
    assert (workplace / "outputs/sizes/sweep.csv").is_file()
    assert list(workplace.glob("outputs/first/inspect/*.html"))
