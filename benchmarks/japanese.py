"""Japanese by characters and by the words of MeCab, on two sets made from packages of Debian.

    apt-get download manpages-ja manpages-ja-dev libreoffice-help-ja
    for package in *.deb; do dpkg -x "$package" extracted; done
    python benchmarks/japanese.py extracted

`manpages_ja`: the description of a manual page, its section the class (1, 2, 3, 5, 7, 8).
`office_help_ja`: a page of help without the names of the programs, its module the class. Texts are
cut at 600 characters; 30 % are the test split, which each seed draws again.

Takes 8 minutes of CPU a seed. Prints a table: accuracy, macro-F1 and loss on test, and CPU seconds.
"""

import csv
import gzip
import html
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import headscope

JAPANESE = re.compile("[\u3041-\u30ff\u4e00-\u9fff]")
SECTIONS = {"man1", "man2", "man3", "man5", "man7", "man8"}
DESCRIPTION = re.compile("説明|DESCRIPTION|概要|記述|解説")
FONTS = re.compile(r"^\.(B|I|BR|IR|RB|BI|IB|RI|SS|Nm|Fl|Ar|Xr|Em)\s")
PROGRAMS = re.compile("LibreOffice|Writer|Calc|Impress|Draw|Math|Base|Basic|Chart", re.IGNORECASE)
SEEDS = range(5)


def manual_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the description and the section of each manual page."""
    for path in sorted(root.rglob("man/ja/man*/*.gz")):
        if path.parent.name in SECTIONS and not path.is_symlink():
            content = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
            yield " ".join(described(content.splitlines())), path.parent.name


def described(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a page's description without the marks of roff and other sections' numbers."""
    is_description = False
    for line in lines:
        if re.match(r"^\.\s*S[Hh]\s", line):
            is_description = DESCRIPTION.search(line) is not None
        elif is_description and (FONTS.match(line) or not line.startswith((".", "'"))):
            text = re.sub(r"^\.\w+\s*|\\f[BIRPCW]|\\f\(..|\\&|\"", "", line).replace("\\-", "-")
            yield re.sub(r"\\\(..|\\\*.|\\[a-z]|\(\d\w*\)", " ", text)


def help_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the text and the module of each page of help."""
    folder = next(root.rglob("help/ja/text"))
    for path in sorted(folder.rglob("*.html")):
        module = path.relative_to(folder).parts[0]
        if module not in ("shared", "sdatabase"):
            content = path.read_text(encoding="utf-8", errors="replace")
            _, _, body = content.partition('id="DisplayArea"')
            body = re.sub("(?s)^[^>]*>|<footer.*|<(script|style).*?</\\1>|<[^>]+>", " ", body)
            yield PROGRAMS.sub("", html.unescape(body)), module


def write(path: Path, pages: Iterator[tuple[str, str]]) -> None:
    """Write the distinct Japanese texts of some pages as csv."""
    texts: dict[str, str] = {}
    for page, label in pages:
        text = " ".join(page.split())[:600]
        if len(JAPANESE.findall(text)) >= 40:
            texts.setdefault(text, label)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows(texts.items())
    print(f"{path}: {len(texts)} texts of {len({*texts.values()})} classes")


def main(root: Path) -> None:
    """Make both sets, train on them, and print the table."""
    sets = {"manpages_ja": manual_pages(root), "office_help_ja": help_pages(root)}
    lines = [
        "| set | tokenizer | seed | accuracy | macro-F1 | loss | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, pages in sets.items():
        write(Path(f"{name}.csv"), pages)
        for seed in SEEDS:
            for tokenizer in ("words", "japanese"):
                started = time.process_time()
                run = headscope.train(
                    {
                        "data": "files",
                        "data.path": f"{name}.csv",
                        "data.max_length": 512,
                        "data.test_share": 0.3,
                        "data.split_seed": seed,
                        "seed": seed,
                        "tokenizer": tokenizer,
                        "inspection": "off",
                        "baseline": False,
                    }
                )
                report = (run.folder / "metrics.json").read_text(encoding="utf-8")
                scores = json.loads(report)["test"]
                cells = [f"{100 * scores[key]:.1f}" for key in ("accuracy", "macro_f1")]
                seconds = time.process_time() - started
                cells += [f"{scores['loss']:.3f}", f"{seconds:.0f}"]
                lines.append(f"| {name} | {tokenizer} | {seed} | {' | '.join(cells)} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
