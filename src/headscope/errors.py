"""What a user can cause is told in one message: what is wrong, where, and what to do."""

from collections.abc import Sequence

MOST_NAMED = 20


def listed(names: Sequence[object]) -> str:
    """Return names with commas between them, the first 20 if there are more, and how many those are."""
    more = len(names) - MOST_NAMED
    return ", ".join(map(str, names[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


class UserError(Exception):
    """Something that the user can mend; shown without a traceback. The exit code is `exit_code`."""

    exit_code = 2


class ConfigError(UserError):
    """A key, type or value in the configuration that cannot work."""


class DataError(UserError):
    """A file, column or row that cannot be trained on."""


class RunError(UserError):
    """A run folder that is missing, incomplete or already taken."""


class TrainingError(UserError):
    """Training that cannot go on, such as a loss that is not a number."""

    exit_code = 1


class ProofError(UserError):
    """A claim about the attention that does not hold."""

    exit_code = 1


class UserWarningMessage(UserWarning):
    """Something that the user should know and may well accept, such as texts that stand in two splits."""


SEPARATORS = (("semicolons", ";"), ("tabs", "\t"))  # of a csv file, where it is not commas


def separator_hint(first_line: str) -> str:
    """Return what to do about a csv file that seems to be cut by something else than commas, "" where it does not.

    Args:
        first_line: the names of its columns.
    """
    for name, mark in SEPARATORS:
        if mark in first_line and "," not in first_line:
            return f"; its first line has {name} and no comma: save it with commas between the columns, or tabs as .tsv"
    return ""
