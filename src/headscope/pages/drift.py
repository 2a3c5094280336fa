"""The page of `headscope drift`: what has changed, a picture of each measure, and tables."""

import base64
import io
import warnings
from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd
from matplotlib.figure import Figure

from headscope.ground.errors import on_screen
from headscope.record.schema import encodable
from headscope.tab.html import STATIC, content_hash
from headscope.tab.pictures import text_style

TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{policy}'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
STYLE = """
body { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h2, p, table, img { margin-top: 0.8rem; }
td, th { padding: 0.1rem 0.8rem 0.1rem 0; text-align: left; }
img { max-width: 100%; }
"""
MOST_PICTURES = 15


def drift_page(
    title: str, lines: Iterable[str], pictured: pd.DataFrame, words: pd.DataFrame
) -> str:
    """Return the page: lines of text, a picture of the measures, and both tables, all escaped."""
    parts = [f"<p>{_shown(line)}</p>" for line in lines]
    picture = base64.b64encode(_picture(pictured)).decode("ascii")
    parts.append(f'<img alt="each measure by period" src="data:image/png;base64,{picture}">')
    for heading, table in (("Measures", pictured), ("Words that came and went", words)):
        rows = [f"<tr>{_cells(row, 'td')}</tr>" for row in table.astype(str).to_numpy().tolist()]
        parts.append(f"<h2>{heading}</h2>\n<table><tr>{_cells([*table], 'th')}</tr>")
        parts.append("\n".join([*rows, "</table>"]))
    style = (STATIC / "heads.css").read_text("utf-8") + STYLE
    title = _shown(title)
    body = "\n".join(parts)
    return TEMPLATE.format(policy=content_hash(style), title=title, style=style, body=body)


def _cells(row: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{_shown(cell)}</{tag}>" for cell in row)


def _shown(text: str) -> str:
    return escape(on_screen(encodable(text)))


def _picture(table: pd.DataFrame) -> bytes:
    """Draw the first measures: value and interval of each period over the reference's interval."""
    groups = [*table.groupby("measure", sort=False)][:MOST_PICTURES]
    figure = Figure((9, 1.5 * len(groups)), layout="constrained")
    for axes, (name, rows) in zip(
        figure.subplots(len(groups), squeeze=False)[:, 0], groups, strict=True
    ):
        low, high = rows[["reference low", "reference high"]].iloc[0]
        axes.axhspan(100 * low, 100 * high, color="lightgrey")
        values = 100 * rows["value"]
        errors = [values - 100 * rows["low"], 100 * rows["high"] - values]
        axes.errorbar([*map(encodable, rows["period"])], values, errors, fmt="o", capsize=4)
        axes.set_title(f"{encodable(str(name))}, %", **text_style(10.0))
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as boxes
        figure.savefig(file, format="png", dpi=100)
    return file.getvalue()
