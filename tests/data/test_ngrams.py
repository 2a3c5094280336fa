"""N-grams are counted as the formula says, held against loops, and kept and read again as they were."""

import math
import re
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from headscope.data import encoded_ngrams as module
from headscope.data.encoded_ngrams import encode_ngrams, texts_with, trained_ngrams
from headscope.data.ngrams import FEWEST_TEXTS, NgramVocabulary, known_ngrams, load_ngrams

TRAIN = ["The cat saw the dog", "the dog ran", "A cat ran home", "猫が好き 猫", "猫が嫌い"]
OTHER = ["the cat ran, ran and RAN", "犬と猫が", "unheard-of", "!?"]
WIDE = "Ｔｈｅ ｃａｔ ｒａｎ, ﾈｺが"  # the cat ran, ネコが


def words_of(text: str) -> Counter[str]:
    """Return the words and the pairs of neighbours of a text, counted."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())
    return Counter([*words, *(f"{one} {other}" for one, other in pairwise(words))])


def letters_of(text: str) -> Counter[str]:
    """Return the runs of 1 to 4 letters within words, whose ends are marked by a space, counted."""
    found: Counter[str] = Counter()
    for word in re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()):
        marked = f" {word} "
        for size in range(1, 5):
            found.update(marked[start : start + size] for start in range(max(1, len(marked) - size + 1)))
    return found


def values_by_loops(text: str) -> list[float]:
    """Return the values of a text's known n-grams, by the formula, in order of size."""
    values = []
    for count in (words_of, letters_of):
        present = Counter(ngram for train in TRAIN for ngram in count(train))
        found = [
            (1 + math.log(times)) * (1 + math.log((1 + len(TRAIN)) / (1 + present[ngram])))
            for ngram, times in count(text).items()
            if present[ngram] >= FEWEST_TEXTS
        ]
        norm = math.sqrt(sum(value**2 for value in found))
        values += [value / norm for value in found]
    return sorted(values)


@pytest.mark.parametrize("text", [*TRAIN, *OTHER, WIDE])
def test_a_texts_values_are_those_of_the_formula(text: str) -> None:
    rows = known_ngrams(TRAIN).rows([text])
    assert sorted(rows.values.tolist()) == pytest.approx(values_by_loops(text), rel=1e-5)
    assert len(set(rows.ids.tolist())) == len(rows.ids)


def test_ngrams_of_one_training_text_are_not_known() -> None:
    vocabulary = known_ngrams(TRAIN)
    wanted = [
        sum(count >= 2 for count in Counter(ngram for text in TRAIN for ngram in kind(text)).values())
        for kind in (words_of, letters_of)
    ]
    assert [len(vocabulary.hashes[kind]) for kind in ("words", "letters")] == wanted
    assert len(vocabulary) == sum(wanted)
    assert (vocabulary.rows(OTHER).ids < len(vocabulary)).all()


def test_only_the_most_frequent_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = known_ngrams(TRAIN)
    monkeypatch.setattr("headscope.data.ngrams.MOST", 2)
    fewer = known_ngrams(TRAIN)
    assert len(fewer) == 4
    for kind in ("words", "letters"):
        assert set(fewer.hashes[kind]) <= set(everything.hashes[kind])
        assert sorted(fewer.idf[kind]) == sorted(everything.idf[kind])[:2]


def test_counting_in_steps_is_counting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = known_ngrams(TRAIN)
    monkeypatch.setattr("headscope.data.ngrams.TEXTS_AT_ONCE", 2)
    assert known_ngrams(iter(TRAIN)).key() == whole.key()


def test_texts_of_a_batch_stand_end_to_end() -> None:
    rows = known_ngrams(TRAIN).rows(OTHER)
    chosen = [2, 0, 3, 1]
    ids, values, starts = rows.of(chosen)
    ends = [*starts.tolist()[1:], len(ids)]
    for row, start, end in zip(chosen, starts.tolist(), ends, strict=True):
        own = slice(rows.starts[row], rows.starts[row + 1])
        assert ids[start:end].tolist() == rows.ids[own].tolist()
        assert values[start:end].tolist() == rows.values[own].tolist()
    assert starts.tolist()[0] == 0
    assert (np.diff(rows.starts)[2:] == [len(letters_known("unheard-of")), 0]).all()


def letters_known(text: str) -> list[str]:
    present = Counter(ngram for train in TRAIN for ngram in letters_of(train))
    return [ngram for ngram in letters_of(text) if present[ngram] >= FEWEST_TEXTS]


def test_a_vocabulary_is_read_as_it_was_written(tmp_path: Path) -> None:
    vocabulary = known_ngrams(TRAIN)
    vocabulary.save(tmp_path / "ngrams.safetensors")
    again = load_ngrams(tmp_path / "ngrams.safetensors")
    assert again.key() == vocabulary.key()
    assert known_ngrams(TRAIN[:-1]).key() != vocabulary.key()


@pytest.mark.parametrize("content", [b"broken", b""])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ngrams.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"ngrams\.safetensors: does not hold n-grams"):
        load_ngrams(tmp_path / "ngrams.safetensors")


def test_wide_letters_are_plain_ones() -> None:
    vocabulary = known_ngrams(TRAIN)
    assert vocabulary.rows(["Ｔｈｅ ｃａｔ"]).ids.tolist() == vocabulary.rows(["the cat"]).ids.tolist()


def test_ngrams_of_another_recipe_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.data.ngrams.RECIPE", "1")
    known_ngrams(TRAIN).save(tmp_path / "ngrams.safetensors")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="another version of headscope; train again"):
        load_ngrams(tmp_path / "ngrams.safetensors")


@pytest.mark.parametrize("hashes", [[-1], [2**22], [1, 2], [[1]]])
def test_hashes_that_cannot_be_are_refused(tmp_path: Path, hashes: list[int]) -> None:
    idf = {"words": np.ones(1, np.float32), "letters": np.ones(1, np.float32)}
    broken = {"words": np.array(hashes, np.int32), "letters": np.array([1], np.int32)}
    NgramVocabulary(broken, idf).save(tmp_path / "ngrams.safetensors")
    with pytest.raises(ValueError, match="hashes of words do not fit"):
        load_ngrams(tmp_path / "ngrams.safetensors")


@pytest.mark.parametrize("columns", [{"text": TRAIN}, {"text": TRAIN, "text_pair": TRAIN[::-1]}])
def test_ngrams_are_counted_once_and_then_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[str]]
) -> None:
    dataset = Dataset.from_dict(columns)
    monkeypatch.setattr("headscope.data.encoded_ngrams.TEXTS_AT_ONCE", 2)
    vocabulary = trained_ngrams(dataset, tmp_path)
    first = encode_ngrams(vocabulary, dataset, tmp_path)
    monkeypatch.setattr("headscope.data.ngrams.counted", None)  # nothing may be counted from here on
    again = encode_ngrams(trained_ngrams(dataset, tmp_path), dataset, tmp_path)
    monkeypatch.undo()
    direct = vocabulary.rows(["\n".join(texts) for texts in zip(*columns.values(), strict=True)])
    for found in (first, again):
        assert found.ids.tolist() == direct.ids.tolist()
        np.testing.assert_allclose(found.values, direct.values, rtol=1e-6)
        assert found.starts.tolist() == direct.starts.tolist()
    assert encode_ngrams(vocabulary, dataset.select([1]), tmp_path).starts.tolist() == [
        0,
        len(vocabulary.rows(["\n".join(values[1] for values in columns.values())]).ids),
    ]


def test_texts_of_a_class_that_have_an_ngram_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.data.encoded_ngrams.TEXTS_AT_ONCE", 2)
    vocabulary = known_ngrams(TRAIN)
    classes = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1]], dtype=bool)
    rows = vocabulary.rows(TRAIN)
    wanted = np.zeros((len(vocabulary), 3))
    for text, of_text in enumerate(classes):
        for ngram in set(rows.ids[rows.starts[text] : rows.starts[text + 1]].tolist()):
            wanted[ngram] += of_text
    assert texts_with(rows, classes, len(vocabulary)).tolist() == wanted.tolist()


def test_texts_without_a_word_have_no_ngrams() -> None:
    vocabulary = known_ngrams(TRAIN)
    rows = vocabulary.rows(["?!", "…"])
    assert rows.starts.tolist() == [0, 0, 0]
    assert len(known_ngrams(["!", "?"])) == 0


@pytest.mark.parametrize("train", [["今天天气很好", "我喜欢这本书", "价格太贵了"], ["a", "b", "c"]])
def test_texts_that_share_no_word_are_read_all_the_same(train: list[str]) -> None:
    """As where titles have no spaces, and each is one word."""
    vocabulary = known_ngrams(train)
    rows = vocabulary.rows(train)
    assert len(vocabulary.hashes["words"]) == 0
    assert len(rows.starts) == 4
    assert set(rows.ids.tolist()) <= set(range(len(vocabulary)))


def test_vowels_that_are_marks_belong_to_their_words() -> None:
    vocabulary = known_ngrams(["फिल्म ดี", "फिल्म ดี", "फूल ดู", "फूल ดู"])
    rows = vocabulary.rows(["फिल्म", "फूल", "ดี", "ดู"])
    words = set(range(len(vocabulary.hashes["words"])))
    film, flower, good, look = (set(rows.ids[slice(*ends)].tolist()) & words for ends in pairwise(rows.starts))
    assert len(film) == len(flower) == len(good) == len(look) == 1
    assert len(film | flower | good | look) == 4


def test_of_two_runs_that_count_at_once_the_second_reads_what_the_first_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, vocabulary = Dataset.from_dict({"text": TRAIN}), known_ngrams(TRAIN)
    write = module._write

    def raced(vocabulary: NgramVocabulary, dataset: Dataset, folder: Path) -> None:
        write(vocabulary, dataset, folder)
        monkeypatch.setattr(module, "_write", write)
        encode_ngrams(vocabulary, dataset, tmp_path)  # another process is done before this one

    monkeypatch.setattr(module, "_write", raced)
    assert encode_ngrams(vocabulary, dataset, tmp_path).ids.tolist() == vocabulary.rows(TRAIN).ids.tolist()
    assert not list((tmp_path / "ngrams").glob(".*"))
