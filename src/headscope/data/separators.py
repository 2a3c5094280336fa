"""What the columns of a csv file are cut by, where it is not commas."""

SEPARATORS = (("semicolons", ";"), ("tabs", "\t"))


def separator_hint(first_line: str) -> str:
    """Return what to do about a csv file that seems to be cut by something else than commas, "" where it does not.

    Args:
        first_line: the names of its columns.
    """
    for name, mark in SEPARATORS:
        if mark in first_line and "," not in first_line:
            return f"; its first line has {name} and no comma: save it with commas between the columns, or tabs as .tsv"
    return ""
