"""Runs of three kinds, the five commands that read one, what each answers, and how a case ended."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_family import write_checkpoint
from hard.forked import TRAIN, Case, Outcome, Server
from training_runs import comments, reviews, write

COMMANDS = {
    "predict": ["predict", "run=run", "input=texts.txt"],
    "evaluate": ["evaluate", "run=run"],
    "inspect": ["inspect", "run=run", "text=the soup was lovely", "output=page.html"],
    "export": ["export", "run=run", "output=exported", "format=onnx"],
    "train resume=": ["train", "resume=run", "trainer.max_epochs=2"],
}
# Refused: exit code 2, and one line that names the file, or data.json, by which other texts are
# noticed. Noted: another answer, and a note that names the file.
OUTCOMES = ("refused", "same", "noted", "unclear", "crash", "silently different")
SCORES = ("test", "validation", "calibration", "selective", "familiar texts", "labels")
MORE = {"plain": ["min_confidence=0.5"], "labelled": [], "pretrained": []}  # of predict
TEXTS = "the soup was lovely\na dark garden\nthe day was bright\nzzz xxx qqq www vvv yyy jjj\n"


@dataclass
class Kind:
    """A folder with whole runs, "run" and others, and the answers of "run"."""

    name: str
    folder: Path
    answers: Mapping[str, object]


def arguments(kind: str, command: str) -> list[str]:
    """Return the words of a command."""
    found = COMMANDS[command] + (MORE[kind] if command == "predict" else [])
    if kind == "pretrained" and command == "export":
        found = [word for word in found if not word.startswith("format")]
    return found


def train_kind(server: Server, kind: str, folder: Path) -> Kind:
    """Train the runs of a kind, all of one shape, and ask "run" by each command."""
    rows = comments(80) if kind == "labelled" else reviews(80)
    path = write(folder / "rows.jsonl", rows)
    write(folder / "stranger.csv", [row | {"text": f"{row['text']} then"} for row in reviews(90)])
    words = ["trainer.max_epochs=1", f"outputs_dir={folder}", f"data.cache_dir={folder / 'cache'}"]
    if kind == "labelled":
        words += ["data.multi_label=true", "model.pooling=mean"]
    if kind == "pretrained":
        checkpoint = write_checkpoint(
            folder / "checkpoint", "bert", [row["text"] for row in reviews()]
        )
        words += [f"model.path={checkpoint}", "model.pooling=pooler", "model.evidence=false"]
    given = {word.partition("=")[0] for word in words} | {"name", "data.path"}
    if kind == "pretrained":  # whose sizes are the checkpoint's
        given |= {"model.d_model", "model.num_heads", "model.feedforward_size"}
    words = [word for word in TRAIN if word.partition("=")[0] not in given] + words
    runs = {"run": [f"data.path={path}"], "other": [f"data.path={path}", "seed=1"]}
    if kind == "plain":
        runs["stranger"] = [f"data.path={folder / 'stranger.csv'}"]
    for name, more in runs.items():
        outcome = server.run(Case([*words, f"name={name}", *more], str(folder)))
        assert outcome.mistakes([0]) == [], outcome.stderr
    (folder / "texts.txt").write_text(TEXTS)
    answers = {}
    for command in COMMANDS:
        place = folder / "whole" / command.split()[0]
        outcome = run(server, kind, command, folder, place)
        assert outcome.mistakes([0]) == [], (command, outcome.stderr)
        answers[command] = answer(command, place, outcome)
    return Kind(kind, folder, answers)


def copy(folder: Path, place: Path) -> None:
    """Copy the runs of a folder, without their event files, and the texts to predict."""
    for path in folder.glob("*/config.yaml"):
        shutil.copytree(path.parent, place / path.parent.name)
    shutil.copy(folder / "texts.txt", place)


def run(server: Server, kind: str, command: str, folder: Path, place: Path) -> Outcome:
    """Run a command on a copy of the runs."""
    copy(folder, place)
    return server.run(Case(arguments(kind, command), str(place)))


def answer(command: str, folder: Path, outcome: Outcome) -> object:
    """Return what a command has answered, without times and the paths of what it wrote."""
    if command == "export":
        return {path.name: path.read_bytes() for path in (folder / "exported").iterdir()}
    if command == "train resume=":
        metrics = json.loads((folder / "run" / "metrics.json").read_text())
        weights = (folder / "run" / "model.safetensors").read_bytes()
        return weights, [metrics[name] for name in SCORES]
    said = [
        line for line in outcome.stdout.splitlines() if not line.startswith(("kept in", "page:"))
    ]
    if command == "inspect":
        return said, (folder / "page.html").read_bytes()
    return said


def classified(kind: Kind, command: str, file: str, folder: Path, outcome: Outcome) -> str:
    """Return how a case ended: one of OUTCOMES."""
    if outcome.mistakes([0, 2]):
        return "crash"
    said = "error: " if outcome.code == 2 else "note: "
    names = (Path(file).name, "data.json") if outcome.code == 2 else (Path(file).name,)
    lines = [line for line in outcome.stderr.splitlines() if line.startswith(said)]
    is_told = any(name in line for line in lines for name in names)
    if outcome.code == 2:
        return "refused" if is_told else "unclear"
    if answer(command, folder, outcome) == kind.answers[command]:
        return "same"
    return "noted" if is_told else "silently different"
