"""One HTML file that shows every attention head of some texts: the Heads tab with its data inside.

It needs no server and fetches nothing: the modules and the style sheet of static/ are part of it.
Text and tokens are untrusted: they travel as JSON without any character that HTML reads as markup,
the modules write them with ``textContent`` alone, and a Content-Security-Policy lets the browser
run this one script and fetch nothing.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headscope.ground.files import write_atomic
from headscope.record.reader import pack
from headscope.record.schema import PageText, encodable

STATIC = Path(__file__).with_name("static")
LIVE = Path(__file__).parents[1] / "pages" / "static"  # modules of a page with the network in it
# The browser may run this one script and style sheet, known by their hashes, and fetch nothing; a
# page with the network in it may also compile that script's kernel, and run the script in a Worker.
POLICY = (
    "default-src 'none'; script-src '{script}'{compiled}; style-src '{style}'; img-src data:; "
    "worker-src {worker}; base-uri 'none'; form-action 'none'"
)
TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>A script inside this page draws the maps; please allow it to run.</p></noscript>
<script id="data" type="application/json">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""

IMPORT = re.compile(r'^import ([^;]*) from "\./(\w+)\.js";', re.MULTILINE)
TABLE = re.compile(r'^import (\w+) from "\./([\w.]+)" with .*$', re.MULTILINE)  # of JSON
EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
RENAMED = re.compile(r"export\{([^}]*)\};\s*$")  # of the minified library


def texts_page(
    title: str,
    layers: Sequence[str],
    classes: Sequence[str],
    texts: Sequence[PageText],
    sure: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as one string of HTML for UTF-8; ValueError if a text has no maps.

    Layers and classes are names, classes in the order of the probabilities. One text is shown at a
    time. `sure` may have `curve` and `most_unknown`, by which the page says how often it is right.
    """
    if not texts or (layers and not all("layer_0/weights" in text.arrays for text in texts)):
        raise ValueError("a page needs at least one text, and the maps of each")
    index = {
        "texts": _index_of(texts),
        "layers": list(layers),
        "heads": [len(texts[0].arrays[f"layer_{at}/weights"]) for at in range(len(layers))],
        "classes": list(classes),
        "steps": [{"step": 0}],
        "notes": {},
        **(sure or {}),
    }
    if all("effects" in text.numbers["extra"] for text in texts):
        index["best"] = 0  # the step with the effects of ablation
    content = {"index": index, "texts": list(map(_content, texts))}
    return _document(title, content, "index")


def live_page(
    title: str, index: Mapping[str, Any], texts: Sequence[PageText], **content: Any
) -> str:
    """Return the page in which the network runs on whatever its reader types.

    Content: `numbers` of the run's heads as the tab fetches them, `network` as pages/pack.py packs
    it, and `live`, what the text box needs. A browser that cannot run it shows the texts.
    """
    shown = {"index": {**index, "texts": _index_of(texts)}, "texts": list(map(_content, texts))}
    return _document(title, shown | content, "live")


def compare_page(title: str, comparison: Mapping[str, Any]) -> str:
    """Return the page of two runs side by side: see `headscope.cli.compare`."""
    index: dict[str, Any] = {"texts": [], "layers": [], "heads": [], "classes": [], "steps": []}
    return _document(title, {"index": index, "texts": [], "comparison": comparison}, "compare")


def _document(title: str, content: dict[str, Any], entry: str) -> str:
    """Return a page of HTML with its data, whose script begins in a module of that name."""
    title = encodable(title)
    script = f"{bundled(f'{entry}.js')}modules.{entry}.render();\n"
    style = (STATIC / "heads.css").read_text("utf-8")
    runs = "network" in content
    policy = POLICY.format(
        script=content_hash(script),
        compiled=" 'wasm-unsafe-eval'" if runs else "",
        style=content_hash(style),
        worker="blob:" if runs else "'none'",
    )
    return TEMPLATE.format(
        policy=policy,
        title=html.escape(title),
        style=style,
        data=inert_json({"title": title} | content),
        script=script,
    )


def _index_of(texts: Sequence[PageText]) -> list[dict[str, Any]]:
    return [asdict(text.text) | {"notes": dict(text.notes)} for text in texts]


def _content(text: PageText) -> dict[str, Any]:
    """Return what the tab would fetch of a text: its maps, and the numbers of its step."""
    maps = base64.b64encode(pack(text.arrays)).decode("ascii")
    return {"maps": maps, "numbers": text.numbers}


def write_page(path: Path, content: str) -> None:
    """Write a page as UTF-8, atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(content.encode("utf-8")))


def inert_json(value: object) -> str:
    r"""Return ``value`` as ASCII JSON in which ``<``, ``>`` and ``&`` are written as \u escapes.

    HTML then finds no tag, comment or entity in it; JSON.parse gives the text back.
    """
    data = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return data.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})


def bundled(entry: str) -> str:
    """Return a module of static/, or of pages/static/, and all that it imports as one script.

    Each is a function's result: ``import { a } from "./b.js"`` becomes ``const { a } = modules.b``,
    and what is exported is returned.
    """
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        folder = LIVE if (LIVE / name).exists() else STATIC
        source = (folder / name).read_text("utf-8")
        for imported in re.findall(r'^import [^;]*"\./([\w.]+)";', source, re.MULTILINE):
            if imported not in modules:
                add(imported)
        source = TABLE.sub(lambda found: f"const {found[1]} = {_table(found[2])};", source)
        exported = ", ".join(EXPORT.findall(source))
        source = RENAMED.sub(_returned, source)
        source = IMPORT.sub(r"const \1 = modules.\2;", source)
        source = re.sub("^export ", "", source, flags=re.MULTILINE)
        stem = Path(name).stem
        modules[name] = f"modules.{stem} = (() => {{\n{source}return {{ {exported} }};\n}})();\n"

    add(entry)
    return "const modules = {};\n" + "".join(modules.values())


def _returned(found: re.Match[str]) -> str:
    """Return `export{a as b};` as a function's result."""
    names = re.sub(r"(\w+) as (\w+)", r"\2: \1", found[1])
    return f"return {{ {names} }};\n"


def _table(name: str) -> str:
    return inert_json(json.loads((STATIC / name).read_text("utf-8")))


def content_hash(content: str) -> str:
    """Return the hash of an inline element's content as a policy writes it."""
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
