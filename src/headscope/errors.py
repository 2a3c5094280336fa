"""What a user can cause is told in one message: what is wrong, where, and what to do."""

from collections.abc import Sequence


def listed(names: Sequence[object]) -> str:
    """Return names with commas between them: the first 20, and how many more there are."""
    return ", ".join(map(str, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


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
    """Training that cannot go on, such as a NaN loss."""

    exit_code = 1


class ProofError(UserError):
    """A claim about the attention that does not hold."""

    exit_code = 1


class UserWarningMessage(UserWarning):
    """Something that the user should know and may well accept, such as texts that stand in two splits."""


def separator_hint(first_line: str) -> str:
    """Return what to do about a csv file whose first line has semicolons or tabs and no comma; else ""."""
    for name, mark in (("semicolons", ";"), ("tabs", "\t")):
        if mark in first_line and "," not in first_line:
            return f"; its first line has {name} and no comma: save it with commas between the columns, or tabs as .tsv"
    return ""
