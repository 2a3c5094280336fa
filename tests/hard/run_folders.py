"""Runs of three kinds, the five commands that read one, what each answers, and how a case ended."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_family import write_checkpoint
from hard.forked import TRAIN, Case, Outcome, Server
from training_runs import Rows, comments, pairs, reviews, write

COMMANDS = {
    "predict": ["predict", "run=run", "input=texts.csv"],
    "evaluate": ["evaluate", "run=run"],
    "inspect": ["inspect", "run=run", "text=the soup was lovely", "output=page.html"],
    "export": ["export", "run=run", "output=exported"],
    "train resume=": ["train", "resume=run", "trainer.max_epochs=2"],
}
# Refused: exit code 2, and one line that names the file, or data.json, by which other texts are
# noticed. Noted: another answer, and a note that names the file.
OUTCOMES = ("refused", "same", "noted", "unclear", "crash", "silently different")
# What a message may name in place of config.yaml: that the folder is no run, or what config.yaml says.
TOLD_OF_CONFIG = ("expected a run folder", "names Python code", "nothing.csv", "/dev/zero")
SCORES = (
    "test",
    "validation",
    "calibration",
    "accuracy by confidence",
    "most unknown tokens of a familiar text",
    "labels",
)
TEXTS = (
    "text\nthe soup was lovely\na dark garden\nthe day was bright\nzzz xxx qqq www vvv yyy jjj\n"
)
DAMAGED = ("plain", "labelled", "pretrained")
ROWS: dict[str, Callable[[], Rows]] = {"labelled": comments, "pairs": pairs}
SETTINGS: dict[str, list[str]] = {
    "plain": [],
    "labelled": ["data.multi_label=true", "model.pooling=mean"],
    "pretrained": ["model.pooling=pooler", "model.evidence=false"],
    "pairs": ["data.text_pair_column=other"],
    "bpe": ["tokenizer=bpe", "tokenizer.vocab_size=300"],
    "wordpiece": ["tokenizer=wordpiece", "tokenizer.vocab_size=300"],
    "no readout": ["model.attention_readout=false", "model.num_layers=2", "model.pooling=max"],
    "bfloat16": ["trainer.precision=bf16-mixed"],
    "averaged": ["trainer.ema_decay=0.9", "model.positions=sinusoidal"],
    "resumed": [],
}


@dataclass
class Kind:
    """A folder with whole runs, "run" and others, and the answers of "run"."""

    name: str
    folder: Path
    answers: Mapping[str, object]


def arguments(kind: str, command: str) -> list[str]:
    """Return the words of a command."""
    is_abstaining = command == "predict" and kind == "plain"
    is_pair = command == "inspect" and kind == "pairs"
    found = (
        COMMANDS[command] + ["min_confidence=0.5"] * is_abstaining + ["text_pair=a cat"] * is_pair
    )
    if kind == "pretrained" and command == "export":
        found = [word for word in found if not word.startswith("format")]
    return found


def train_kind(server: Server, kind: str, folder: Path) -> Kind:
    """Train the runs of a kind, all of one shape, and ask "run" by each command."""
    given = ROWS.get(kind, reviews)()[:80]
    path = write(folder / "rows.jsonl", given)
    write(folder / "stranger.csv", [row | {"text": f"{row['text']} then"} for row in reviews(90)])
    words = ["trainer.max_epochs=1", f"outputs_dir={folder}", f"data.cache_dir={folder / 'cache'}"]
    words += SETTINGS[kind]
    if kind == "pretrained":
        texts = [row["text"] for row in reviews()]
        words.append(f"model.path={write_checkpoint(folder / 'checkpoint', 'bert', texts)}")
    keys = {word.partition("=")[0] for word in words} | {"name", "data.path"}
    if kind == "pretrained":  # whose sizes are the checkpoint's
        keys |= {"model.d_model", "model.num_heads", "model.feedforward_size"}
    words = [word for word in TRAIN if word.partition("=")[0] not in keys] + words
    runs = {"run": [f"data.path={path}"]}
    if kind in DAMAGED:
        runs["other"] = [f"data.path={path}", "seed=1"]
    if kind == "plain":
        runs["stranger"] = [f"data.path={folder / 'stranger.csv'}"]
    for name, more in runs.items():
        outcome = server.run(Case([*words, f"name={name}", *more], str(folder)))
        assert outcome.mistakes([0]) == [], outcome.stderr
    if kind == "resumed":
        outcome = server.run(Case(["train", "resume=run", "trainer.max_epochs=2"], str(folder)))
        assert outcome.mistakes([0]) == [], outcome.stderr
    two = "the soup was lovely,a dark cat\nthe day,a cold owl\n"
    (folder / "texts.csv").write_text(f"text,other\n{two}" if kind == "pairs" else TEXTS)
    answers = {}
    for command in COMMANDS:
        place = folder / "whole" / command.split()[0]
        copy(folder, place)
        outcome = server.run(Case(arguments(kind, command), str(place)))
        assert outcome.mistakes([0]) == [], (command, outcome.stderr)
        answers[command] = answer(command, place, outcome)
    return Kind(kind, folder, answers)


def copy(folder: Path, place: Path) -> None:
    """Copy the runs of a folder, and the texts to predict."""
    for path in folder.glob("*/config.yaml"):
        shutil.copytree(path.parent, place / path.parent.name)
    shutil.copy(folder / "texts.csv", place)


def answer(command: str, folder: Path, outcome: Outcome, name: str = "run") -> object:
    """Return what a command has answered, without times, paths, and the run's name."""
    if command == "export":
        return {path.name: path.read_bytes() for path in (folder / "exported").iterdir()}
    if command == "train resume=":
        metrics = json.loads((folder / name / "metrics.json").read_text())
        weights = (folder / name / "model.safetensors").read_bytes()
        return weights, [metrics[name] for name in SCORES]
    if command == "predict":
        return outcome.stdout
    lines = [
        line for line in outcome.stdout.splitlines() if not line.startswith(("kept in", "page:"))
    ]
    numbers = re.findall(r"\d+\.\d+", "\n".join(lines))
    if command == "inspect":
        shown = re.escape(json.dumps(Path(name).name)[1:-1])
        return numbers, re.sub(
            f"{shown}|{re.escape(name)}", "run", (folder / "page.html").read_text()
        )
    return numbers


def classified(kind: Kind, command: str, file: str, folder: Path, outcome: Outcome) -> str:
    """Return how a case ended: one of OUTCOMES."""
    if outcome.mistakes([0, 2]):
        return "crash"
    said = "error: " if outcome.code == 2 else "note: "
    names = (Path(file).name, "data.json") if outcome.code == 2 else (Path(file).name,)
    if outcome.code == 2 and file == "config.yaml":
        names += TOLD_OF_CONFIG
    lines = [line for line in outcome.stderr.splitlines() if line.startswith(said)]
    is_told = any(name in line for line in lines for name in names)
    if outcome.code == 2:
        return "refused" if is_told else "unclear"
    if answer(command, folder, outcome) == kind.answers[command]:
        return "same"
    return "noted" if is_told else "silently different"
