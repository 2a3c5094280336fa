"""The n-grams of a text are called what they are: every known one has a name, and the name is of that n-gram."""

import pytest

from headscope.data import named_ngrams
from headscope.data.named_ngrams import names, shown_letters
from headscope.data.ngrams import known_ngrams

TRAIN = ["The cat saw the dog", "the dog ran", "A cat ran home", "猫が好き 猫", "猫が嫌い"]


@pytest.mark.parametrize(
    "text", [*TRAIN, "the cat ran, ran and RAN", "犬と猫が", "ＴＨＥ ｃａｔ", "unheard-of", "!?", ""]
)
def test_every_known_ngram_of_a_text_is_named(text: str) -> None:
    vocabulary = known_ngrams(TRAIN)
    found = names(vocabulary, text)
    assert sorted(found) == vocabulary.rows([text]).ids.tolist()
    assert len(set(found.values())) == len(found)


def test_a_name_is_of_the_ngram_that_has_the_number() -> None:
    vocabulary = known_ngrams(TRAIN)
    words = {
        number: name
        for number, name in names(vocabulary, "the dog").items()
        if "-" not in name and name != "(any word)"
    }
    assert sorted(words.values()) == ["dog", "the", "the dog"]
    for number, name in words.items():
        assert number in vocabulary.rows([name]).ids
        assert number not in vocabulary.rows(["cat ran"]).ids


@pytest.mark.parametrize(
    ("run", "shown"),
    [(" un", "un-"), ("ble ", "-ble"), ("ita", "-ita-"), (" a ", "a"), (" ", "(any word)"), ("猫が", "-猫が-")],
)
def test_letters_are_written_as_parts_of_words(run: str, shown: str) -> None:
    assert shown_letters(run) == shown


def test_ngrams_of_one_hash_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = known_ngrams(TRAIN)
    first = int(vocabulary.hashes["words"][0])
    monkeypatch.setattr(named_ngrams, "_hashes", lambda parts: iter([first] * len(parts)))
    assert names(vocabulary, "cat dog")[0] == "cat or dog or cat dog"
