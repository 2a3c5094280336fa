"""Errors that a user can cause, each told in one message: what is wrong, where, and what to do."""

import difflib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class UserError(Exception):
    """Something that the user can fix; shown without a traceback."""

    exit_code = 2


class ConfigError(UserError):
    """A key or value of the configuration that cannot work."""


class DataError(UserError):
    """A file, column or row that cannot be trained on."""


class RunError(UserError):
    """A run folder that is missing, incomplete or already in use."""


class LivePageError(UserError):
    """A run whose network cannot run inside a page; the message names what stands against it."""


class TrainingError(UserError):
    """Training that cannot continue, such as after a NaN loss."""

    exit_code = 1


class ProofError(UserError):
    """A claim about the attention that does not hold."""

    exit_code = 1


class UserWarningMessage(UserWarning):
    """Something that the user may well accept, such as texts that are in two splits."""


# C0 but for tab and line feed, DEL, C1, and surrogates, which cannot be encoded.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Marks, embeddings, overrides and isolates of direction: a line would be shown in another order.
BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # torch on a CPU, on a GPU


def shown(value: object, most: int = 60) -> str:
    """Return a value for a message: a long one cut, control characters escaped."""
    text = str(value)
    characters = (
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:most]
    )
    return "".join(characters) + (f"... ({len(text):,} characters)" if len(text) > most else "")


def printable(text: str) -> str:
    """Return the text with U+FFFD for each control character but tab and line feed."""
    return UNPRINTABLE.sub("\ufffd", text)


def on_screen(text: str) -> str:
    """Return printable text with a code, such as <U+202E>, for what changes the direction."""
    return BIDI.sub(lambda sign: f"<U+{ord(sign[0]):04X}>", printable(text))


def listed(names: Sequence[object]) -> str:
    """Return the first 20 names with commas between them, and how many more there are."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(shown, names[:20])) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the known name that is closest to a misspelled one; "" if none is close."""
    return next(iter(difflib.get_close_matches(name, [*known], n=1)), "")


def existing_runs(run: str) -> str:
    """Return which runs there are: in the folder `run`, beside it and in outputs/."""
    folders = dict.fromkeys((Path(run), Path(run).parent, Path("outputs")))
    models = [path for folder in folders for path in sorted(folder.glob("*/model.safetensors"))]
    runs = [path.parent for path in models]
    return f"runs here: {listed(runs)}" if runs else "headscope train makes one"


def first_line(error: BaseException) -> str:
    """Return an error's first line, and the next one after a colon: at most 300 characters."""
    first, _, others = str(error).strip().partition("\n")
    more = others.strip().partition("\n")[0] if first.endswith(":") else ""
    return f"{first} {more}".rstrip()[:300]


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise an error of a tokenizer as a RunError; in Python a panic is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise RunError(f"the tokenizer of this model fails: {first_line(error)}") from error


def refused_by_machine(error: BaseException | None) -> str | None:
    """Return one line for a refused file or missing memory; None for any other error."""
    while error is not None:
        if isinstance(error, OSError):
            return first_line(error)
        if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
            return f"not enough memory: {first_line(error)}"
        error = error.__cause__
    return None


def message_of(error: Exception) -> str:
    """Return the message of an error in printable characters."""
    known = str(error) if isinstance(error, UserError) else refused_by_machine(error)
    lines = (known or f"{type(error).__name__}: {error}").split("\n")
    return "\n".join(shown(line, 1000) for line in lines)


def print_error(error: Exception) -> int:
    """Print the message of an error and return the exit code."""
    print(f"error: {message_of(error)}", file=sys.stderr)
    return error.exit_code if isinstance(error, UserError) else 1


def warn(message: str) -> None:
    """Warn the user of something that may well be accepted, in the name of the caller's caller."""
    warnings.warn(UserWarningMessage(message), stacklevel=3)


def warnings_as_notes() -> None:
    """Print each warning of this process as one line on standard error, `note: ...`."""

    def show(message: Warning | str, *_: Any) -> None:
        with suppress(BrokenPipeError):  # nobody reads it any more
            print(on_screen(f"note: {message}"), file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]
