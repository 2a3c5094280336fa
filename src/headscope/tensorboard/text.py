"""Text for TensorBoard's text tab, which reads Markdown: what a data set holds must come out as it stands."""

from collections.abc import Iterable, Mapping, Sequence


def literal(text: str) -> str:
    """Return Markdown that shows exactly this text: all but letters, digits and spaces as numeric entities.

    Markdown hands entities on to the page and the page shows them as characters, so that `*`, `<` or `|` mean nothing.
    """
    return "".join(
        character if character.isalnum() or character == " " else f"&#{ord(character)};" for character in text
    )


def probe_markdown(
    text: str, tokens: Sequence[str], label: str | None, prediction: str, probabilities: Mapping[str, float]
) -> str:
    """Return the entry of a probe: the text, its tokens, the label and what the model says.

    Args:
        text: as the data holds it.
        tokens: as a person reads them (see `headscope.data.display`).
        label: the true class, if it is known.
        prediction: the likeliest class.
        probabilities: of every class.
    """
    verdict = "" if label is None else (" ✓" if label == prediction else " ✗")
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    rows = [
        ("text", literal(text)),
        ("tokens", " &#183; ".join(map(literal, tokens))),
        ("label", "unknown" if label is None else literal(label)),
        ("prediction", literal(prediction) + verdict),
        ("probabilities", ", ".join(f"{literal(name)} {share:.3f}" for name, share in ranked)),
    ]
    return "\n\n".join(f"**{name}** &#160; {content}" for name, content in rows)


def table_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are shown as they stand.

    Args:
        columns: headings.
        rows: a cell for each column.
    """
    cells = [list(map(literal, row)) for row in (columns, *rows)]
    cells.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
