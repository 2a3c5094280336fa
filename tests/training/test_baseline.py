"""What counting words reaches: the same however the texts are read, and a sample of them where there are too many."""

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, Features, List, Value

from headscope.training import baseline as module
from headscope.training.baseline import baseline_scores
from headscope.training.scoring import MultiLabelScores

WORDS = ["lion", "bear", "wolf"]


def splits(train: int = 60, test: int = 30, **columns: str) -> DatasetDict:
    def table(rows: int) -> Dataset:
        texts = [f"the {WORDS[row % 3]} number {row % 7} of {row % 5}" for row in range(rows)]
        extra = {name: [value] * rows for name, value in columns.items()}
        return Dataset.from_dict({"text": texts, "label": [row % 3 for row in range(rows)], **extra})

    return DatasetDict({"train": table(train), "test": table(test)})


def test_words_that_tell_the_classes_apart_are_found() -> None:
    found, name, seconds = baseline_scores(splits())
    assert found.accuracy == 1
    assert name == "TF-IDF (words 1-2) + logistic regression"
    assert seconds > 0


def test_a_class_that_no_text_has_keeps_its_column() -> None:
    """A ClassLabel may have names that no text is of."""
    rows = {
        "text": [f"the {WORDS[row % 2]} of {row % 7}" for row in range(40)],
        "label": [row % 2 * 2 for row in range(40)],
    }
    found = baseline_scores(DatasetDict({"train": Dataset.from_dict(rows), "test": Dataset.from_dict(rows)}))[0]
    assert (found.accuracy, found.confusion) == (1, [[20, 0, 0], [0, 0, 0], [0, 0, 20]])


def test_scores_do_not_depend_on_how_many_texts_are_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = baseline_scores(splits(text_pair="and a second text"))[0]
    monkeypatch.setattr(module, "SCORED_AT_ONCE", 7)
    assert baseline_scores(splits(text_pair="and a second text"))[0] == whole


def test_of_too_many_texts_a_sample_is_learned_from_and_the_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TEXTS", 30)
    found, name, _ = baseline_scores(splits())
    assert found.accuracy == 1
    assert name == "TF-IDF (words 1-2) + logistic regression on 30 of 60 training texts"
    assert sum(map(sum, found.confusion)) == 30  # every test text is scored


def test_texts_without_spaces_are_read_by_characters() -> None:
    rows = {"text": ["吾輩は猫である", "我是一只狗"] * 10, "label": [0, 1] * 10}
    _, name, _ = baseline_scores(DatasetDict({"train": Dataset.from_dict(rows), "test": Dataset.from_dict(rows)}))
    assert name == "TF-IDF (characters 1-3) + logistic regression"


def test_of_any_number_of_labels_there_is_a_regression_for_each_class() -> None:
    def table(rows: int) -> Dataset:
        sets = [{number for number in range(3) if row >> number & 1} for row in range(rows)]
        texts = [" ".join(["the", *(WORDS[number] for number in sorted(found)), str(row % 5)])
                 for row, found in enumerate(sets)]  # fmt: skip
        labels = [[int(number in found) for number in range(4)] for found in sets]  # the fourth class has no text
        features = Features({"text": Value("string"), "label": List(Value("int8"), length=4)})
        return Dataset.from_dict({"text": texts, "label": labels}, features)

    found, name, _ = baseline_scores(DatasetDict({"train": table(96), "validation": table(32), "test": table(40)}))
    assert isinstance(found, MultiLabelScores)
    assert (found.accuracy, found.macro_f1, found.micro_f1) == (1, 1, 1)
    assert np.array(found.confusion).sum() == 4 * 40
    assert name == "TF-IDF (words 1-2) + logistic regression"
