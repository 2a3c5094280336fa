"""Columns read some rows at a time are what they are read whole, and rows have one digest only if they are equal."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, concatenate_datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.columns import TextsOf, digests, num_known, numbers, tuples, values

ROWS = Dataset.from_dict({"text": [f"text {row}" for row in range(23)], "label": list(range(23))})
STORED = {
    "whole": ROWS,
    "in chunks": concatenate_datasets([ROWS, ROWS]),
    "picked": ROWS.select([7, 3, 3, 21, 0]),
    "picked twice": ROWS.select(range(22, -1, -2)).select([5, 1, 9]),
    "one": ROWS.select([4]),
    "none": ROWS.select([]),
    "named": ROWS.cast_column("label", ClassLabel(num_classes=23)),
}


@pytest.mark.parametrize("at_once", [4, 1000])
@pytest.mark.parametrize("dataset", STORED.values(), ids=STORED)
def test_columns_are_the_same_however_many_rows_are_read_at_once(
    dataset: Dataset, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.data.columns.ROWS_AT_ONCE", at_once)
    rows = dataset.to_list()
    assert list(values(dataset, "text")) == [row["text"] for row in rows]
    assert list(tuples(dataset, ["label", "text"])) == [(row["label"], row["text"]) for row in rows]
    assert numbers(dataset, "label").dtype == np.int64
    assert numbers(dataset, "label").tolist() == [row["label"] for row in rows]


def test_texts_are_read_anew_each_time_column_after_column() -> None:
    pairs = Dataset.from_dict({"text": ["a", "b"], "text_pair": ["c", "d"]})
    texts = TextsOf(pairs, ["text", "text_pair"])
    assert list(texts) == list(texts) == ["a", "b", "c", "d"]


ROWS_OF_TEXTS = st.lists(st.tuples(st.text("ab\0é", max_size=3), st.text("ab\0", max_size=2)), max_size=30)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS_OF_TEXTS)
def test_two_digests_are_the_same_if_and_only_if_the_rows_are(rows: list[tuple[str, str]]) -> None:
    assert len(set(digests(rows).tolist())) == len(set(rows))


@settings(max_examples=50, deadline=None)
@given(rows=ROWS_OF_TEXTS, known=ROWS_OF_TEXTS.filter(bool))
def test_rows_that_are_known_are_counted_as_a_set_would(
    rows: list[tuple[str, str]], known: list[tuple[str, str]]
) -> None:
    assert num_known(digests(rows), digests(known)) == sum(row in set(known) for row in rows)


def test_a_digest_takes_16_bytes_even_if_its_last_one_is_zero() -> None:
    found = digests((str(number),) for number in range(3000))
    assert found.nbytes == 16 * 3000
    assert any(len(each) < 16 for each in found.tolist())  # as NumPy shows one that ends with a zero
    assert len(np.unique(found)) == 3000
