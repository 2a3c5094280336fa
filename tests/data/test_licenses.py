"""The embedded data: which rules of the licence database are kept, and what the real package gives."""

from collections import Counter
from pathlib import Path

import pytest
from datasets import ClassLabel

from headscope.data import licenses
from headscope.data.corpus import load_corpus
from headscope.data.licenses import load_licenses
from headscope.data.source import load_source
from headscope.ground.errors import DataError
from headscope.ground.files import content_key
from headscope.settings.config import DataConfig

LICENSES = {
    "mit": "Permissive",
    "gpl": "Copyleft",
    "zlib": "Permissive",
    "odd": "Oddity",
    "bare": None,
}
WORDS = "this text of eight words is about licence"


def write(path: Path, head: str, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{head.strip()}\n---\n\n{text}\n", encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of a few licences, without rules, in which two texts make a class."""
    folder = tmp_path / "data"
    for key, category in LICENSES.items():
        write(
            folder / "licenses" / f"{key}.LICENSE",
            f"key: {key}\n" + (f"category: {category}" if category else ""),
            "",
        )
    (folder / "rules").mkdir()
    monkeypatch.setattr(licenses, "_package_folder", lambda: folder)
    monkeypatch.setattr(licenses, "FEWEST_OF_A_CLASS", 2)
    return folder


def add_rule(package: Path, text: str, *facts: str, key: str = "mit") -> None:
    number = len(list((package / "rules").iterdir()))
    head = "\n".join([f"license_expression: {key}", *(facts or ["is_license_notice: yes"])])
    write(package / "rules" / f"{number}.RULE", head, text)


def rows(package: Path) -> list[tuple[str, str]]:
    dataset = load_licenses(package.parent / "cache")
    return [(row["text"], dataset.features["label"].int2str(row["label"])) for row in dataset]


def add_one_of_each(package: Path) -> list[tuple[str, str]]:
    kept = [
        (f"{WORDS} {name}", key)
        for name, key in [("a", "mit"), ("b", "zlib"), ("c", "gpl"), ("d", "gpl")]
    ]
    for text, key in kept:
        add_rule(package, text, key=key)
    return [(text, str(LICENSES[key])) for text, key in kept]


def test_texts_and_notices_are_labelled_by_the_category_of_their_licence(package: Path) -> None:
    kept = add_one_of_each(package)
    add_rule(
        package, f"{WORDS}\n---\nwith a line of dashes", "is_license_text: yes", "language: en"
    )
    assert rows(package) == [*kept, (f"{WORDS}\n---\nwith a line of dashes", "Permissive")]


OTHERS = [
    (f"{WORDS} x", "is_license_reference: yes", "mit"),
    (f"{WORDS} x", "is_license_text: yes\nis_false_positive: yes", "mit"),
    (f"{WORDS} x", "is_license_text: yes\nlanguage: fr", "mit"),
    (f"{WORDS} x", "is_license_notice: yes", "mit OR gpl"),
    (f"{WORDS} x", "is_license_notice: yes", "unheard-of"),
    (f"{WORDS} x", "is_license_notice: yes", "bare"),
    ("these are no more than seven words", "is_license_notice: yes", "mit"),
    ("word " * 401, "is_license_notice: yes", "mit"),
]


def test_other_rules_are_left_out(package: Path) -> None:
    kept = add_one_of_each(package)
    for text, facts, key in OTHERS:
        add_rule(package, text, facts, key=key)
    assert rows(package) == kept


def test_a_repeated_text_is_kept_once_and_one_of_two_categories_not_at_all(package: Path) -> None:
    kept = add_one_of_each(package)
    for key in ("zlib", "mit"):
        add_rule(package, f"{WORDS} same", key=key)
    for key in ("mit", "gpl"):
        add_rule(package, f"{WORDS} contested", key=key)
    assert rows(package) == [*kept, (f"{WORDS} same", "Permissive")]


def test_a_package_that_is_not_installed_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(licenses, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"data\.path=licenses: .*pip install -e '\.\[demo\]'"):
        load_source(DataConfig(cache_dir=str(tmp_path)))


@pytest.mark.slow
def test_the_real_package_gives_the_data_that_every_figure_is_measured_on() -> None:
    dataset = load_source(DataConfig(train_split="all"))["all"]
    names = dataset.features["label"]
    assert isinstance(names, ClassLabel)
    counts = Counter(names.int2str(dataset[:]["label"]))
    assert sorted(counts.values()) == [106, 212, 635, 807, 1793, 3229, 4772]
    assert counts.total() == 11_554
    assert list(names.names) == sorted(counts)
    rows = (f"{names.names[row['label']]} {row['text']}" for row in dataset)
    assert content_key(rows) == "55682b3bbf209d0553d67c79f2bb78c0"
    corpus = load_corpus(DataConfig())
    assert corpus.facts["sizes"] == {"train": 9223, "test": 1158, "validation": 1173}
    assert corpus.facts["near-duplicates kept on one side"] == 614
    assert corpus.facts["texts also in train"] == 0
