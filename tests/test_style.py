"""Ratchets on how the code reads: sizes, packed lines, words that a reader stumbles over, names.

A limit may only go down. Who brings a number down lowers its limit in the same commit, to what
`python tests/test_style.py` prints. Who must raise one says why in the commit.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headscope"
LIMITS: dict[str, float] = {
    "lines of Python": 17060,
    "lines of JavaScript and CSS": 4297,
    "nodes": 119580,  # of the syntax tree: what a reader reads, however the lines are broken
    "nodes per code line": 10.1,
    "packed assignments": 10,  # a, b = x, y
    "nested ternaries": 0,
    "lines over 100 characters": 3,
    "files over 500 lines": 0,
    "folders of more than 12 files": 0,
}
# Words of ours for what the field has a word for; beside them the word to write.
WORDS: dict[str, tuple[int, str]] = {
    r"switch(ed|es|ing)? off": (0, "ablated, ablation"),
    r"without one head alone": (0, "ablating one head"),
    r"likeness": (1, "similarity"),
    r"\bput for\b|\bput \+|nats put": (1, "contribution, contributed"),
    r"\bspoken\b|\bspoke for\b": (0, "contribution"),
    r"cannot be said|not known|\bunsaid\b": (0, "inconclusive; unknown"),
    r"does nothing": (0, "no effect"),
    r"whatever the text says": (0, "bias (input-independent)"),
    r"\bnat more\b": (0, "+1 nat multiplies the odds by 2.7"),
    r"what a head decided": (0, "head contributions"),
    r"on show\b": (0, "probe texts"),
    r"kept step|weights (that )?(are|were) kept": (6, "best step, best checkpoint"),
    r"go(es)? on with|gone on with|going on with|went on with": (0, "resume; the layer's output"),
    r"\bbegun\b": (0, "started"),
    r"\bso many\b": (0, "number of X, N X"),
    r"pass(es)? the heads by|past the heads": (0, "bypass attention"),
    r"stands between the cells": (0, "column delimiter"),
    r"what the bytes": (0, "text encoding"),
    r"signs of no width": (0, "zero-width characters"),
    r"\btoo sure\b": (0, "overconfident"),
    r"\bmended\b": (0, "fixed"),
    r"\btrainings\b": (0, "training runs"),
    r"(is|are) (there and )?no folder": (0, "is not a directory"),
    r"(is|are) refused": (0, "raises an error; is rejected"),
    r"\btakes .*, got\b|\bgot .*[,;] takes\b|what it takes": (0, "expected Y, got X; remedy"),
}
NAME = re.compile(r"(?<![\w/.-])headscope(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"(?<![\w/.-])(?:src|tests|docs|configs|benchmarks|scripts)/[\w./-]*\w")
GONE = {"scripts/benchmark.py"}  # older figures say that they were measured by it
Place = tuple[Path, int, str]  # file, line, text


@cache
def sources() -> dict[Path, tuple[str, ast.Module]]:
    """Return the text and the syntax tree of each file."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


@cache
def tokens() -> dict[Path, list[tokenize.TokenInfo]]:
    """Return the tokens of each file."""
    return {
        path: list(tokenize.generate_tokens(io.StringIO(text).readline))
        for path, (text, _) in sources().items()
    }


def code_lines(path: Path) -> int:
    """Count the lines that hold code: no comment, docstring or blank line."""
    layout = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    code = {
        line
        for token in tokens()[path]
        if tokenize.tok_name[token.type] not in layout
        for line in range(token.start[0], token.end[0] + 1)
    }
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(sources()[path][1]):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            code -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return len(code)


def is_packed(node: ast.AST) -> bool:
    """Tell whether a node is `a, b = x, y`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def measure() -> dict[str, float]:
    """Return what LIMITS holds down."""
    found = Counter(dict.fromkeys(LIMITS, 0))
    code = 0
    for path, (text, tree) in sources().items():
        lines = text.splitlines()
        code += code_lines(path)
        found["lines of Python"] += len(lines)
        found["lines over 100 characters"] += sum(len(line) > 100 for line in lines)
        found["files over 500 lines"] += len(lines) > 500
        for node in ast.walk(tree):
            found["nodes"] += 1
            found["packed assignments"] += is_packed(node)
            if isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.IfExp):
                found["nested ternaries"] += 1
    for path in (*SOURCE.rglob("*.js"), *SOURCE.rglob("*.css")):
        found["lines of JavaScript and CSS"] += path.read_text(encoding="utf-8").count("\n")
    files = Counter(path.parent for path in SOURCE.rglob("*.py"))
    found["folders of more than 12 files"] = sum(count > 12 for count in files.values())
    return {**found, "nodes per code line": round(found["nodes"] / code, 1)}


@cache
def prose() -> list[Place]:
    """Return what people read: comments, docstrings and messages, pages and configurations."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("configs/**/*.yaml")]
    pages += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    places = [
        (path, number, line)
        for path in pages
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]
    kinds = {"COMMENT", "STRING", "FSTRING_MIDDLE"}
    for path, found in tokens().items():
        for token in found:
            if tokenize.tok_name[token.type] in kinds and " " in token.string:  # else it is a name
                lines = enumerate(token.string.splitlines(), token.start[0])
                places += [(path, number, line) for number, line in lines]
    return places


def uses(pattern: str) -> list[str]:
    """Return where people read a word."""
    word = re.compile(pattern, re.IGNORECASE)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, number, line in prose()
        for _ in word.finditer(line)
    ]


def test_the_code_grows_in_no_way() -> None:
    found = measure()
    over = {name: found[name] for name, limit in LIMITS.items() if found[name] > limit}
    assert over == {}, f"more than LIMITS allows; {__doc__}"


@pytest.mark.parametrize("pattern", WORDS)
def test_words_of_ours_give_way_to_those_of_the_field(pattern: str) -> None:
    limit, better = WORDS[pattern]
    places = uses(pattern)
    assert len(places) <= limit, "\n".join([f"write {better}, not {pattern}:", *places])


def module_names(path: Path) -> Iterator[str]:
    """Yield each name that a module has: defined, assigned or imported, also in an if."""
    bodies = [sources()[path][1].body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.If):
                bodies += [node.body, node.orelse]
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield node.name
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name for alias in node.names)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name.id for name in targets if isinstance(name, ast.Name))


def exists(name: str) -> bool:
    """Tell whether a dotted name is a module, or stands in one; what follows a class is not read."""
    path = SOURCE
    for part in name.split(".")[1:]:
        if path.is_dir() and ((path / part).is_dir() or (path / f"{part}.py").exists()):
            path = path / part if (path / part).is_dir() else path / f"{part}.py"
            continue
        module = path / "__init__.py" if path.is_dir() else path
        return part in module_names(module) or part in ("__version__", "__main__")
    return True


def test_each_name_and_path_that_is_told_exists() -> None:
    unknown = []
    for file, number, line in prose():
        names = [name for name in NAME.findall(line) if not exists(name)]
        paths = [
            path
            for path in PATH.findall(line)
            if path not in GONE and not ((ROOT / path).exists() or (file.parent / path).exists())
        ]
        unknown += [f"{file.relative_to(ROOT)}:{number}: {told}" for told in names + paths]
    assert not unknown, "\n".join(unknown)


def test_the_map_in_contributing_has_each_folder_and_module_once() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w/.]+)` \| .+ \|$", page, re.MULTILINE)
    parts = [path for path in SOURCE.iterdir() if path.name != "__pycache__"]
    there = [f"{path.name}/" for path in parts if path.is_dir()]
    there += [path.name for path in parts if path.suffix == ".py"]
    assert sorted(told) == sorted(there)


if __name__ == "__main__":
    for name, amount in measure().items():
        print(f"    {name!r}: {amount},")
    for pattern in WORDS:
        print(f"    {pattern!r}: {len(uses(pattern))},")
