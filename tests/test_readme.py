"""The README's commands and its Python run as a reader would type them, in both languages; trainings are made short."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "README.ja.md")
SHORT = [
    *("data.limit=400", "trainer.max_epochs=1", "trainer.accelerator=cpu", "baseline=false"),
    *("model.d_model=16", "model.num_heads=2", "model.num_layers=1", "model.feedforward_size=16"),
]
HEADSCOPE = {
    "python scripts/train.py": ["train"],
    "headscope": [],
}  # how a command begins, and what it stands for


def blocks(page: str, language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(
        rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    )


def commands(page: str) -> list[list[str]]:
    """Return the words after `headscope` of each command in the page."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [
        [*words, *shlex.split(line.removeprefix(begin), comments=True)]
        for line in lines
        for begin, words in HEADSCOPE.items()
        if line.startswith(f"{begin} ")
    ]


def shortened(words: list[str]) -> list[str]:
    """Make a training one of seconds, and a sweep one of two jobs; other commands stay as they are."""
    if words[0] != "train" or "--help" in words:
        return words
    swept = {word.split("=")[0] for word in words if "," in word}
    kept = [
        word.replace("1,2,4,8", "1,2").replace("num_layers=1,2", "num_layers=1") for word in words
    ]
    return kept + [word for word in SHORT if word.split("=")[0] not in swept]


def test_both_languages_show_the_same_commands_within_eighty_lines() -> None:
    english, japanese = map(commands, PAGES)
    assert {words[0] for words in english} == {"train", "predict", "inspect", "verify", "trace"}
    assert [words for words in japanese if "data=livedoor" not in words] == english
    assert blocks(PAGES[0], "text") == blocks(PAGES[1], "text")
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "make train" in text
        assert "make test" in text
        assert len(text.splitlines()) <= 80
        assert max(map(len, text.splitlines())) <= 160


@pytest.mark.slow
def test_its_commands_and_its_python_run(tmp_path: Path) -> None:
    nouns = [
        a + b
        for a in ("sun", "moon", "star", "sea", "snow", "fire", "wind", "leaf")
        for b in "abcdefgh"
    ]
    rows = [
        f"{word} film about {noun},{word == 'nice':d}"
        for noun in nouns
        for word in ("nice", "poor")
    ]
    (tmp_path / "reviews.csv").write_text("review,stars\n" + "\n".join(rows) + "\n")
    (tmp_path / "texts.txt").write_text("Permission is hereby granted\nAll rights reserved\n")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def run(words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    for words in commands("README.md"):
        run([sys.executable, "-m", "headscope", *shortened(words)])
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 3
    assert (tmp_path / "outputs/sizes/sweep.csv").is_file()
    assert list(tmp_path.glob("outputs/first/inspect/*.html"))
    (code,) = blocks("README.md", "python")
    assert "nats" in run([sys.executable, "-c", code])
