"""The page of `headscope drift`: what has changed, a picture of each measure, and the tables."""

import base64
import io
import warnings
from collections.abc import Iterable, Mapping
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
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src '{policy}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body><h1>{title}</h1>
{body}
</body>
</html>
"""
STYLE = """
body { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h2, p, table, img { margin-top: 0.8rem; max-width: 100%; }
td, th { padding: 0.1rem 0.8rem 0.1rem 0; text-align: left; }
"""
MOST_PICTURES = 15


def drift_page(title: str, lines: Iterable[str], tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the page, all text escaped: lines, tables by name, a picture of the first of them."""
    parts = [f"<p>{_shown(line)}</p>" for line in lines]
    picture = base64.b64encode(_picture(next(iter(tables.values())))).decode("ascii")
    parts.append(f'<img alt="each measure by period" src="data:image/png;base64,{picture}">')
    for name, table in tables.items():
        table = table.drop(columns=["reference low", "reference high"], errors="ignore")
        cells = table.round(4).astype(object).fillna("").map(_shown)
        with pd.option_context("display.max_colwidth", None):
            rows = cells.to_html(index=False, border=0, escape=False)
        rows = rows.replace(' style="text-align: right;"', "")  # the policy forbids it
        parts.append(f"<h2>{name}</h2>\n{rows}")
    style = (STATIC / "heads.css").read_text("utf-8") + STYLE
    content = {"policy": content_hash(style), "style": style, "title": _shown(title)}
    return TEMPLATE.format(body="\n".join(parts), **content)


def _shown(cell: object) -> str:
    return escape(on_screen(encodable(str(cell))))


def _picture(table: pd.DataFrame) -> bytes:
    """Draw the first measures: value and interval of each period over the reference's interval."""
    groups = [*table.dropna().groupby("measure", sort=False)][:MOST_PICTURES]
    figure = Figure((9, 1.5 * len(groups)), layout="constrained")
    places = figure.subplots(len(groups), squeeze=False)[:, 0]
    for axes, (name, rows) in zip(places, groups, strict=True):
        axes.axhspan(*rows[["reference low", "reference high"]].iloc[0], color="lightgrey")
        errors = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
        axes.errorbar([*map(encodable, rows["period"])], rows["value"], errors, fmt="o", capsize=4)
        axes.set_title(on_screen(encodable(name)), **text_style(10.0))
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as boxes
        figure.savefig(file, format="png")
    return file.getvalue()
