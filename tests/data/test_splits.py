"""Cuts keep near-duplicates together and the shares of the classes, and are the same for the same seed."""

import math
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset, Features, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.columns import numbers, texts_among, tuples
from headscope.data.splits import cut as cut_rows
from headscope.data.splits import in_order, limited, text_keys


def cut(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset, int]:
    """Return what stays, what is cut off, and how many rows repeat another one nearly."""
    keys = text_keys(tuples(dataset, texts_among(dataset.column_names)))
    groups = in_order(keys[:, 1])
    is_off = cut_rows(numbers(dataset, "label"), groups, share, seed)
    sides = (dataset.select(np.flatnonzero(rows)) for rows in (~is_off, is_off))
    return *sides, len(groups) - len(set(groups))


def groups_of(*columns: list[str]) -> list[int]:
    return in_order(text_keys(zip(*columns, strict=True))[:, 1]).tolist()


def labelled(counts: dict[int, int]) -> Dataset:
    labels = [label for label, count in counts.items() for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(labels))
    return Dataset.from_dict(
        {"text": [letters(row) for row in order], "label": [labels[row] for row in order]}
    )


def letters(number: int) -> str:
    return f"text {chr(ord('a') + number // 26 % 26)}{chr(ord('a') + number % 26)}{'x' * (number // 676)}"


@pytest.mark.parametrize(
    ("texts", "groups"),
    [
        ("Copyright 2019, A!|copyright 2023 a|Copyright B|COPYRIGHT__A", [0, 0, 1, 0]),
        ("1 + 1|2 + 2|1 + 1|:-)|", [0, 1, 0, 2, 3]),  # without letters equal to themselves alone
        ("吾輩は猫である。|吾輩は猫である|吾輩は犬である|ÉTÉ|été", [0, 0, 1, 2, 2]),
        ("मेरी फिल्म!|मेरा फिल्म|मेरी, फिल्म", [0, 1, 0]),  # vowels are marks
        ("ดี|ดู", [0, 1]),
        ("b|a|B|c|a!", [0, 1, 0, 2, 1]),  # in the order of their first rows
        (
            "ABC|\uff21\uff22\uff23 1|\uff76\uff9e|\u30ac|cafe\u0301|caf\u00e9|\ufb01lm|film",
            [0, 0, 1, 1, 2, 2, 3, 3],
        ),
        (":-)|\uff1a\uff0d\uff09", [0, 0]),
    ],
)
def test_near_duplicates_differ_in_case_digits_and_signs_alone(
    texts: str, groups: list[int]
) -> None:
    assert groups_of(texts.split("|")) == groups


def test_texts_whose_tokens_are_equal_have_one_key() -> None:
    rows = [
        ("Caf\u00e9  \uff21",),
        ("cafe\u0301 a",),
        ("cafe a",),
        ("a", "b"),
        ("ab", ""),
        ("A ", "\uff42"),
    ]
    keys = text_keys(rows)[:, 0].tolist()
    assert keys[0] == keys[1]
    assert keys[3] == keys[5]
    assert len({*keys}) == 4


def test_no_text_stands_on_both_sides_in_another_width() -> None:
    """Labels are random, so that a test text is known by its twin alone."""
    plain = [letters(row) for row in range(75)]
    wide = [
        "".join(chr(ord(sign) + 0xFEE0) if sign != " " else sign for sign in text) for text in plain
    ]
    labels = np.random.default_rng(0).integers(0, 2, 150).tolist()
    stays, off, repeated = cut(Dataset.from_dict({"text": plain + wide, "label": labels}), 0.2, 0)
    assert repeated == 75
    sides = [{*text_keys(tuples(side, ["text"]))[:, 0]} for side in (stays, off)]
    assert not sides[0] & sides[1]


def test_a_pair_repeats_another_only_if_both_of_its_texts_do() -> None:
    assert groups_of(["Why?", "why 2", "why", "how"], ["yes", "no", "YES!", "yes"]) == [0, 1, 0, 2]
    pairs = {
        "text": ["why?"] * 20,
        "text_pair": [letters(row) for row in range(20)],
        "label": [0, 1] * 10,
    }
    stays, off, repeated = cut(Dataset.from_dict(pairs), 0.2, seed=0)
    assert (len(stays), len(off), repeated) == (16, 4, 0)


@settings(max_examples=20, deadline=None)
@given(
    groups=st.lists(st.integers(0, 40), min_size=40, max_size=120).filter(
        lambda groups: len(set(groups)) > 8
    ),
    seed=st.integers(0, 5),
)
def test_near_duplicates_are_never_on_both_sides(groups: list[int], seed: int) -> None:
    rows = [
        {"text": f"{letters(group)}{'!' * row}", "label": group % 3}
        for row, group in enumerate(groups)
    ]
    stays, off, repeated = cut(Dataset.from_list(rows), 0.25, seed)
    assert not set(near_duplicates(stays)) & set(near_duplicates(off))
    assert sorted([*stays["text"], *off["text"]]) == sorted(row["text"] for row in rows)
    assert repeated == len(groups) - len(set(groups))
    assert len(set(near_duplicates(off))) == -(-len(set(groups)) // 4)


def near_duplicates(dataset: Dataset) -> list[str]:
    return [text.rstrip("!") for text in dataset["text"]]


def test_a_cut_keeps_the_shares_of_the_classes() -> None:
    stays, off, repeated = cut(labelled({0: 100, 1: 60, 2: 40}), 0.1, seed=0)
    assert Counter(off["label"]) == {0: 10, 1: 6, 2: 4}
    assert Counter(stays["label"]) == {0: 90, 1: 54, 2: 36}
    assert repeated == 0


def test_a_limit_keeps_the_shares_of_the_classes_and_the_order() -> None:
    dataset = labelled({0: 100, 1: 60, 2: 40})
    few = limited(dataset, 20, seed=0)
    assert Counter(few["label"]) == {0: 10, 1: 6, 2: 4}
    assert len(limited(labelled({0: 4, 1: 3, 2: 3}), 2, seed=0)) == 2  # where shares cannot be
    places = {text: place for place, text in enumerate(dataset["text"])}
    assert [places[text] for text in few["text"]] == sorted(places[text] for text in few["text"])
    assert (
        list(few["text"])
        == list(limited(dataset, 20, seed=0)["text"])
        != list(limited(dataset, 20, seed=1)["text"])
    )


def test_cuts_are_those_of_the_first_release() -> None:
    """Whoever compares runs wants the same texts in the same split in every version."""
    rows = [{"text": f"{letters(row % 37)} {row}", "label": row % 37 % 3} for row in range(60)]
    _, off, repeated = cut(Dataset.from_list(rows), 0.2, seed=5)
    numbers_off = "0 4 8 16 18 20 29 36 37 41 45 53 55 57"
    assert [text.split()[2] for text in off["text"]] == numbers_off.split()
    assert repeated == 23


# --- any number of labels ---


def with_sets(counts: dict[tuple[int, ...], int], num_classes: int) -> Dataset:
    sets = [labels for labels, count in counts.items() for _ in range(count)]
    order = np.random.default_rng(0).permutation(len(sets))
    rows = [[int(number in sets[row]) for number in range(num_classes)] for row in order]
    features = Features({"text": Value("string"), "label": List(Value("int8"), length=num_classes)})
    return Dataset.from_dict({"text": [letters(row) for row in order], "label": rows}, features)


def test_a_cut_keeps_the_shares_of_the_texts_without_a_label() -> None:
    counts = {(): 100, (0,): 60, (1, 2): 40, (0, 1, 2): 20}
    stays, off, _ = cut(with_sets(counts, 3), 0.1, seed=0)
    assert Counter(map(tuple, off["label"]))[0, 0, 0] == 10
    assert len(stays) == 198


def test_a_cut_keeps_the_shares_of_the_rarest_labels() -> None:
    """Each of the pairs stands in 4 texts, of which a tenth is none; label 9 is in all of them."""
    counts = {(label, 9): 4 for label in range(5)} | {
        (label, other, 9): 4 for label in range(5) for other in (5, 6, 7)
    }
    _, off, _ = cut(with_sets({**counts, (8,): 120}, 10), 0.1, seed=0)
    found = np.array(off["label"]).sum(axis=0)
    assert found[8] == 12
    assert found[9] == 8
    assert all(1 <= count <= 2 for count in found[:5])


def test_texts_with_a_label_too_rare_to_divide_stay() -> None:
    counts = {(): 50, (0,): 60, (1,): 60, (0, 2): 3, (1, 3): 2}
    for seed in range(5):
        stays, off, _ = cut(with_sets(counts, 4), 0.1, seed)
        assert np.array(stays["label"]).sum(axis=0)[2:].tolist() == [3, 2]
        assert len(off) == 18
    stays, off, _ = cut(with_sets({(number,): 2 for number in range(10)}, 10), 0.1, seed=0)
    # Where every label is too rare, texts are drawn as they come.
    assert (len(stays), len(off)) == (18, 2)


# --- one label, and classes that are rare ---


@settings(max_examples=20, deadline=None)
@given(labels=st.lists(st.integers(0, 12), min_size=8, max_size=80), share=st.floats(0.02, 0.5))
def test_a_cut_takes_as_many_texts_as_it_should_and_no_class_whole(
    labels: list[int], share: float
) -> None:
    dataset = Dataset.from_dict(
        {"text": [letters(row) for row in range(len(labels))], "label": labels}
    )
    wanted = math.ceil(share * len(labels))
    try:
        stays, off, _ = cut(dataset, share, seed=0)
    except ValueError:
        assert len(labels) - len(set(labels)) <= wanted  # a class keeps its last text
        return
    if min(Counter(labels).values()) > wanted:
        assert len(off) == wanted
    assert 0 < len(off) <= wanted  # fewer where a class would lose its last text
    assert set(stays["label"]) == set(labels)
    assert sorted([*stays["text"], *off["text"]]) == sorted(dataset["text"])


def test_the_last_text_of_a_class_stays_even_if_it_repeats_one_of_another_class() -> None:
    rows = [{"text": letters(row), "label": row % 2} for row in range(40)]
    twins = [
        {"text": f"{row['text']}!", "label": 2 + number} for number, row in enumerate(rows[:8])
    ]
    stays, off, _ = cut(Dataset.from_list([*rows, *twins]), 0.25, seed=0)
    assert len(off) > 0
    assert set(stays["label"]) == set(range(10))


def test_a_class_of_one_text_repeated_stays_and_hinders_no_other() -> None:
    rows = [{"text": letters(row), "label": row % 2 if row < 90 else 2} for row in range(100)]
    rows += [{"text": f"meh {number}", "label": 3} for number in range(3)]
    stays, off, _ = cut(Dataset.from_list(rows), 0.1, seed=0)
    assert Counter(off["label"])[2] == 1  # its share of eleven texts
    assert Counter(stays["label"])[3] == 3
