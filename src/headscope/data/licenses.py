"""Text classification into kinds of licence: the embedded default data.

Texts and categories are those of the ScanCode licence database (nexB and AboutCode, CC-BY-4.0),
which the PyPI package `licensedcode-data` carries: about 35,000 rule files, each YAML front matter
and a text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from datasets import ClassLabel, Dataset, Features, Value

from headscope.ground.errors import DataError
from headscope.ground.files import cached

RECIPE = 1  # raise it when the rules below change, so that cached files are made anew
SHORTEST = 8  # words
LONGEST = 400
FEWEST_OF_A_CLASS = 100
FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is about ten times faster


def load_licenses(cache: Path) -> Dataset:
    """Return the licence texts, columns text and label, reading the package at first use (10 s).

    Repeated texts, texts under two categories, and categories with fewer than 100 texts are left
    out.
    """
    folder = _package_folder()
    name = f"{distribution('licensedcode-data').version}-{RECIPE}.parquet"
    path = cache / "licenses" / name
    table = pq.read_table(cached(path, lambda file: pq.write_table(_texts(folder), file)))
    names = table["label"].unique().sort()
    features = Features({"text": Value("string"), "label": ClassLabel(names=names.to_pylist())})
    labels = pc.index_in(table["label"], names).cast(pa.int64())
    return Dataset(pa.table([table["text"], labels], schema=features.arrow_schema))


def _texts(folder: Path) -> pa.Table:
    """Return the texts of one category each, and their categories."""
    categories: dict[str, set[str]] = defaultdict(set)
    for text, category in _read_rules(folder):
        categories[text].add(category)
    of_one = {}
    for text, found in categories.items():
        if len(found) == 1:
            (of_one[text],) = found
    counts = Counter(of_one.values())
    rows = [
        {"text": text, "label": label}
        for text, label in of_one.items()
        if counts[label] >= FEWEST_OF_A_CLASS
    ]
    return pa.Table.from_pylist(rows)


def _package_folder() -> Path:
    spec = find_spec("licensedcode")
    places = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(places))) / "data" if places else None
    if folder is None or not (folder / "rules").is_dir():
        raise DataError(
            "data.path=licenses: needs the package licensedcode-data, from the clone: pip install "
            "-e '.[demo]'; or train on texts of your own: data=files data.path=reviews.csv"
        )
    return folder


def _front_matter(path: Path) -> tuple[dict[str, object], str]:
    """Split a file into its YAML head, which stands between two lines of dashes, and its text."""
    _, head, text = FENCE.split(path.read_text(encoding="utf-8"), 2)
    return yaml.load(head, Loader=Loader), text.strip()


def _read_rules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (text, category) of every English licence text or notice under a single licence."""
    heads = (_front_matter(path)[0] for path in sorted((folder / "licenses").glob("*.LICENSE")))
    categories = {str(head["key"]): head.get("category") for head in heads}
    for path in sorted((folder / "rules").glob("*.RULE")):
        content = path.read_text(encoding="utf-8")
        # A cheap look spares parsing the YAML of the two thirds that are references and tags.
        if "is_license_text: yes" not in content and "is_license_notice: yes" not in content:
            continue
        head, text = _front_matter(path)
        category = categories.get(str(head.get("license_expression")))
        is_text = head.get("is_license_text") or head.get("is_license_notice")
        is_english = head.get("language", "en") == "en"
        has_length = SHORTEST <= len(text.split()) <= LONGEST
        if category and is_text and is_english and has_length and not head.get("is_false_positive"):
            yield text, str(category)
