"""The rows of the accuracy tables: which classifiers, and the overrides that a training takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.benchmark.accuracy.fast_text import fasttext
from headscope.benchmark.config import ROWS, BenchmarkConfig
from headscope.benchmark.page import portable
from headscope.errors import ConfigError

LABELS = {"tfidf": "TF-IDF + logistic regression", "fasttext": "fastText", "scratch": "headscope, from scratch"}


@dataclass(frozen=True)
class Row:
    """A row of every table.

    Attributes:
        name: as keys have it.
        label: as tables have it.
        kind: tfidf, fasttext or training.
        overrides: of a training, beside those that all trainings have.
    """

    name: str
    label: str
    kind: str
    overrides: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the key that a user gave it by."""
        return "checkpoint" if self.name == "pretrained" else f"variants.{self.name}"

    def seeds(self, count: int) -> range:
        """Return the seeds to run: but one where nothing is drawn at random."""
        return range(1 if self.kind == "tfidf" else count)


def chosen_rows(config: BenchmarkConfig) -> tuple[list[Row], list[str]]:
    """Return the rows in their order, and what the page must say of those that are left out.

    Raises:
        ConfigError: if a row was asked for by name that cannot be had here.
    """
    names, notes = list(ROWS if config.rows is None else config.rows), []
    if "fasttext" in names and (missing := _missing_fasttext()):
        if config.rows is not None:
            raise ConfigError(f"rows: {missing}, or leave it out, as in rows=[tfidf,scratch]")
        names.remove("fasttext")
        notes.append(f"Left out: {missing}.")
    if config.checkpoint is None and config.rows is None:
        names.remove("pretrained")
    rows = [_row(name, config) for name in names]
    further = [Row(name, f"headscope, {name}", "training", tuple(given)) for name, given in config.variants.items()]
    return [*rows, *further], notes


def _missing_fasttext() -> str | None:
    try:
        fasttext()
    except ConfigError as error:
        return str(error)
    return None


def _row(name: str, config: BenchmarkConfig) -> Row:
    if name != "pretrained":
        return Row(name, LABELS[name], "training" if name == "scratch" else name)
    path = located(str(config.checkpoint))
    label = f"headscope, {Path(path).name} fine-tuned"
    return Row(name, label, "training", ("experiment=minilm", assigned("model.path", path)))


def located(path: str) -> str:
    """Return a path that can be handed to a process in another folder; what does not exist here may be a Hub id."""
    place = Path(path).expanduser()
    return str(place.resolve()) if place.exists() else path


def assigned(key: str, value: str) -> str:
    """Return an override that gives a key this text, whatever is in it."""
    escaped = value.replace('"', '\\"')
    return f'{key}="{escaped}"'


def overrides_note(row: Row, common: Sequence[str]) -> str | None:
    """Return the sentence that says what a training has been given, or None if it has its defaults."""
    given = [*row.overrides, *common]
    return f"{row.label}: {portable(', '.join(given))}." if row.kind == "training" and given else None
