"""One HTML file that shows every attention head of a text, or of several: the Heads tab over data inside the file.

It needs no server and fetches nothing: the modules and the style sheet of static/ are put inside it. Text and tokens
are untrusted: they travel as JSON without any character that HTML reads as markup, the modules write them with
``textContent`` alone, and a Content-Security-Policy lets the browser run this one script and fetch nothing.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headscope.files import write_atomic
from headscope.record.reader import finite, pack
from headscope.record.schema import Arrays, Text, encodable

STATIC = Path(__file__).with_name("static")
# The browser may run this one script and style sheet, known by their hashes, and fetch nothing.
POLICY = "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
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
<noscript><p>The maps on this page are drawn by a script inside it; please allow it to run.</p></noscript>
<script id="data" type="application/json">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, eq=False)
class PageText:
    """A text on a page, and everything that is shown of it."""

    text: Text  # with its tokens
    arrays: Arrays  # as in docs/record-format.md, without the text_t/ before their names; or weights in float32
    # Measure -> its mean for each layer and head, None where there is none
    numbers: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, str] = field(
        default_factory=dict
    )  # where all this comes from, and what is said of the text
    answer: str | None = None  # what the heads put nats for, where that is no single class
    extra: Mapping[str, Any] = field(
        default_factory=dict
    )  # other small arrays of the step, as nested lists
    errors: Mapping[str, Any] = field(
        default_factory=dict
    )  # measure -> standard errors of its means, where known


def page(
    title: str, layers: Sequence[str], classes: Sequence[str], texts: Sequence[PageText]
) -> str:
    """Return the whole page as one string of HTML, to be stored as UTF-8; ValueError if a text has no maps.

    Layers and classes are names, classes in the order of the probabilities. One text is shown at a time; with several
    there is a list to choose from.
    """
    if not texts or not all(
        any(name.startswith("layer_0/") for name in shown.arrays) for shown in texts
    ):
        raise ValueError("a page needs at least one text, and the maps of each")
    encoded_texts, first = [], texts[0].arrays
    for shown in texts:
        measures = {
            name: {"mean": mean, "error": shown.errors.get(name)}
            for name, mean in shown.numbers.items()
        }
        maps = base64.b64encode(pack(shown.arrays)).decode("ascii")
        encoded_texts.append(
            {"maps": maps, "numbers": {"measures": measures, "extra": dict(shown.extra)}}
        )
    heads = [
        next((len(array) for name, array in first.items() if name.startswith(f"layer_{layer}/")), 0)
        for layer in range(len(layers))
    ]
    index = {
        "texts": [
            asdict(shown.text) | {"notes": dict(shown.notes), "answer": shown.answer}
            for shown in texts
        ],
        "layers": list(layers),
        "heads": heads,
        "classes": list(classes),
        "steps": [{"step": 0, "time": 0}],
        "notes": {},
    }
    if all("verdicts" in shown.extra for shown in texts):
        index["kept"] = 0  # the step that says which heads matter
    data = {"title": encodable(title), "index": index, "texts": encoded_texts}
    script, style = (
        bundled("index.js") + "modules.index.render();\n",
        (STATIC / "heads.css").read_text("utf-8"),
    )
    return TEMPLATE.format(
        policy=POLICY.format(script=content_hash(script), style=content_hash(style)),
        title=html.escape(encodable(title)),
        style=style,
        data=inert_json(finite(data)),
        script=script,
    )


def write_page(path: Path, content: str) -> None:
    """Write a page as UTF-8, whole or not at all, so that a failure leaves an older page as it was."""
    encoded = content.encode("utf-8")
    write_atomic(path, lambda temporary: temporary.write_bytes(encoded))


def inert_json(value: object) -> str:
    r"""Return ``value`` as ASCII JSON in which ``<``, ``>`` and ``&`` are written as \u escapes.

    HTML then finds no tag, comment or entity in it, whatever the text holds; JSON.parse gives the text back.
    """
    data = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return data.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})


def bundled(entry: str) -> str:
    """Return a module of static/ and all that it imports as one script, in which each is a function's result.

    ``import { a } from "./b.js"`` becomes ``const { a } = modules.b``, and what is exported is returned.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        source = (STATIC / name).read_text("utf-8")
        for imported in re.findall(r'^import [^;]*"\./([\w.]+)";', source, re.MULTILINE):
            if imported not in done:
                add(imported)
        exported = re.findall(
            r"^export (?:async )?(?:function|class|const) (\w+)", source, re.MULTILINE
        )
        source = re.sub(
            r'^import ([^;]*) from "\./(\w+)\.js";',
            r"const \1 = modules.\2;",
            source,
            flags=re.MULTILINE,
        )
        source = re.sub("^export ", "", source, flags=re.MULTILINE)
        done[name] = (
            f"modules.{Path(name).stem} = (() => {{\n{source}return {{ {', '.join(exported)} }};\n}})();\n"
        )

    add(entry)
    return "const modules = {};\n" + "".join(done.values())


def content_hash(content: str) -> str:
    """Return the hash of an inline element's content as a policy writes it."""
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
