"""What a user can cause is told in one message: what is wrong, where, and what to do."""

import errno
import sys
from collections.abc import Sequence


def shown(value: object, most: int = 60) -> str:
    """Return a value as a message shows it: the beginning of a long one, control characters as escapes."""
    text = str(value)
    signs = (
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text[:most]
    )
    return "".join(signs) + (f"... ({len(text):,} characters)" if len(text) > most else "")


def listed(names: Sequence[object]) -> str:
    """Return names with commas between them: the first 20, and how many more there are."""
    return ", ".join(map(shown, names[:20])) + (
        f" and {len(names) - 20} more" if len(names) > 20 else ""
    )


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


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, at most 300 characters; empty if it says nothing."""
    return str(error).strip().partition("\n")[0][:300]


REMEDIES = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in that quota",
    errno.EFBIG: "the limit of a file's size is reached; raise it: ulimit -f unlimited",
    errno.EROFS: "choose a folder that can be written",
    errno.ENOTDIR: "choose another one",
    errno.EACCES: "choose another one, or change its permissions",
    errno.EPERM: "choose another one, or change its permissions",
    errno.ENAMETOOLONG: "take a shorter name",
    errno.EMFILE: "raise the limit: ulimit -n 1024",
    errno.ENFILE: "close other programs",
}


def os_message(error: OSError) -> str:
    """Return one line for what the system refuses: which file, why, and what to do."""
    if (
        error.errno == errno.ENOENT and error.filename is None
    ):  # of os.getcwd: all that open a file name it
        return "the folder that this was started in is gone; start it in one that is there"
    where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    reason = error.strerror or first_line(error) or type(error).__name__
    remedy = REMEDIES.get(error.errno or 0)
    return (
        (f"{where}: " if where else "")
        + reason[:1].lower()
        + reason[1:]
        + (f"; {remedy}" if remedy else "")
    )


OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
)  # in torch's words


def refused_by_machine(error: BaseException | None) -> str | None:
    """Return one line for a file that the system refuses, or memory that there is not; None for a fault of ours."""
    while error is not None:
        if isinstance(error, OSError):
            return os_message(error)
        if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
            reason = f": {first_line(error)}" if str(error) else ""
            return f"not enough memory{reason}; lower data.tokens_per_batch, data.max_length or the model's sizes"
        error = error.__cause__
    return None


def separator_hint(columns: Sequence[str], keys: str = "data.") -> str:
    """Return what to do about a csv file whose first line has semicolons or tabs and no comma; else ""."""
    for name, mark, written in (("semicolons", ";", "';'"), ("tabs", "\t", "'\\t'")):
        if len(columns) == 1 and mark in columns[0]:
            return f'; its first line has {name} and no comma: set "{keys}separator={written}"'
    return ""


def message_of(error: Exception) -> str:
    """Return what an error says, with lines that fit on a screen and no control characters, which may be a user's."""
    known = str(error) if isinstance(error, UserError) else refused_by_machine(error)
    return "\n".join(
        shown(line, 1000) for line in (known or f"{type(error).__name__}: {error}").split("\n")
    )


def tell(error: Exception) -> int:
    """Print the message of an error and return the exit code."""
    print(f"error: {message_of(error)}", file=sys.stderr)
    return error.exit_code if isinstance(error, UserError) else 1
