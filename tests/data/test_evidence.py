"""Counted evidence: which n-grams a token has, what they say, and that no training text is told its own label."""

import math
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from headscope.data.batching import encode_texts
from headscope.data.evidence import (
    FOLDS,
    KnownNgrams,
    Vocabulary,
    WordTexts,
    assign_folds,
    known_ngrams,
    log_count_ratios,
)
from headscope.data.ngrams import tokens_of_words
from headscope.data.tokenizer import train_tokenizer, trained_tokenizer, word_units
from headscope.data.units import REST, read_texts, sections
from headscope.settings.config import TokenizerConfig

SPECIAL = None


def words(*texts: list[str | None]) -> WordTexts:
    """Return texts whose tokens are given as words, None for a special token."""
    units = Vocabulary()
    numbers = [-1 if word is SPECIAL else units.number(word) for text in texts for word in text]
    return WordTexts(units.words, np.array(numbers, np.int32), np.cumsum([0, *map(len, texts)]))


def names(text: list[str | None], place: int) -> set[str]:
    """Return the n-grams of one token, written out."""
    word = text[place]
    if word is SPECIAL:
        return set()
    marked, before = f"<{word}>", text[place - 1] if place else SPECIAL
    found = {f"word {word}"}
    if len(word) > 1:
        runs = {marked[i : i + n] for n in (3, 4) for i in range(len(marked) - n + 1)} - {marked}
        found |= {f"run {run}" for run in runs}
    if before is not SPECIAL:
        is_run = all(len(sign) == 1 and ord(sign) > 0x3000 for sign in (before, word))
        found.add(f"{'signs' if is_run else 'pair'} {before} {word}")
        far = text[place - 2] if place > 1 else SPECIAL
        if far is not SPECIAL and all(
            len(sign) == 1 and ord(sign) > 0x3000 for sign in (far, before, word)
        ):
            found.add(f"signs {far} {before} {word}")
    return found


TEXTS = [
    [SPECIAL, "the", "cat", "sat", SPECIAL],
    [SPECIAL, "the", "cats", "sat", "the", "cat", SPECIAL],
    [SPECIAL, "吾", "輩", "は", "猫", SPECIAL, "猫", "吾", SPECIAL],
    [SPECIAL, "吾", "輩", "は", "犬", SPECIAL],
    [SPECIAL, "a", "catalog", "of", "cats", SPECIAL],
]


def counted(texts: list[list[str | None]]) -> Counter[str]:
    return Counter(
        name
        for text in texts
        for name in set().union(*(names(text, place) for place in range(len(text))))
    )


def known_names(texts: list[list[str | None]]) -> set[str]:
    return {
        name
        for name, count in counted(texts).items()
        if count >= (4 if name.startswith("signs") else 2)
    }


def test_an_ngram_is_known_from_two_texts_on_and_one_of_characters_from_four() -> None:
    assert len(known_ngrams(words(*TEXTS))) == len(known_names(TEXTS)) > 20
    again = [*TEXTS, *TEXTS[2:4]]
    assert len(known_ngrams(words(*again))) - len(known_ngrams(words(*[*TEXTS, TEXTS[2]]))) >= 3


def test_each_token_has_the_ngrams_that_are_written_out() -> None:
    texts = words(*TEXTS)
    known = known_names(TEXTS)
    evidence = known_ngrams(texts).find(texts)
    lengths = np.diff(texts.starts)
    found = evidence.of(range(len(TEXTS)))
    at = Counter(found.places.tolist())
    numbers: dict[int, set[str]] = {}
    for row, text in enumerate(TEXTS):
        for place in range(len(text)):
            expected = names(text, place) & known
            assert at[row * int(lengths.max()) + place] == len(expected), (text, place)
            for number in found.ids[found.places == row * int(lengths.max()) + place].tolist():
                numbers[number] = numbers.get(number, expected) & expected
    assert len(numbers) == len(known)
    assert all(numbers.values())  # a number stands for one n-gram wherever it is


@pytest.mark.parametrize("text", ["ΟΔΟΣ", "İSTANBUL", "ẞ", "ΌΣΟΣ\u1c89", "㋿\ua7f2"])
def test_a_word_has_the_lower_case_that_the_tokenizer_gives_it(text: str) -> None:
    tokenizer = train_tokenizer(iter([text]), TokenizerConfig(vocab_size=300))
    units = Vocabulary()
    units.number(text)
    assert units.words == [tokenizer.normalizer.normalize_str(text)]


def test_an_unknown_word_lives_on_by_its_letters() -> None:
    known = known_ngrams(words(["licence"], ["licence"], ["dog"], ["dog"]))
    unseen = known.find(words(["licences"]))
    runs = {"<lic", "<li", "lic", "lice", "ice", "icen", "cen", "cenc", "enc", "ence", "nce"}
    assert len(unseen.of([0]).ids) == len(runs)


def spelled_out(texts: list[list[str | None]], classes: np.ndarray, name: str, label: int) -> float:
    """Return one ratio by its formula, counting texts one by one. Needs the counts of all n-grams for its sums."""
    known = sorted(known_names(TEXTS))
    having = {
        gram: [any(gram in names(text, place) for place in range(len(text))) for text in texts]
        for gram in known
    }
    inside = {
        gram: 1 + sum(has and row[label] for has, row in zip(having[gram], classes, strict=True))
        for gram in known
    }
    outside = {
        gram: 1
        + sum(has and not row[label] for has, row in zip(having[gram], classes, strict=True))
        for gram in known
    }
    return math.log(inside[name] / sum(inside.values())) - math.log(
        outside[name] / sum(outside.values())
    )


@pytest.mark.parametrize(
    "classes",
    [
        [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]],
        [[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]],
    ],
    ids=["one class", "any number of classes"],
)
def test_ratios_are_those_of_the_formula_without_the_texts_of_a_fold(
    classes: list[list[int]],
) -> None:
    of_texts, texts = np.array(classes, dtype=bool), words(*TEXTS)
    folds = np.array([0, 1, 1, 3, 7])
    vocabulary = known_ngrams(texts)
    found = log_count_ratios(vocabulary.find(texts, folds), of_texts, len(vocabulary))
    assert found.shape == (FOLDS + 1, len(vocabulary), of_texts.shape[1])
    number = int(vocabulary.find(words(["sat"])).of([0]).ids[0])
    with_it = counted(TEXTS)["word sat"]
    scale = (1 + math.log((1 + len(TEXTS)) / (1 + with_it))) / 5
    for fold, out in ((-1, -1), (0, 0), (1, 1), (5, 5)):
        left = [row for row in range(len(TEXTS)) if folds[row] != out]
        for label in range(of_texts.shape[1]):
            expected = scale * spelled_out(
                [TEXTS[row] for row in left], of_texts[left], "word sat", label
            )
            assert found[fold, number, label] == pytest.approx(expected, abs=1e-6)


def test_the_ratios_of_many_classes_need_little_more_memory_than_they_take() -> None:
    random = np.random.default_rng(0)
    texts = words(*random.choice([f"{number:04d}" for number in range(2000)], (2000, 4)).tolist())
    known = known_ngrams(texts)
    found = known.find(texts, np.arange(2000) % FOLDS)
    classes = np.eye(500, dtype=bool)[random.integers(0, 500, 2000)]
    tracemalloc.start()
    ratios = log_count_ratios(found, classes, len(known))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ratios.nbytes > 2e7
    assert peak < 1.5 * ratios.nbytes


def test_of_too_many_ngrams_the_most_frequent_are_known() -> None:
    texts = words(*TEXTS)
    known = known_ngrams(texts)
    few = known_ngrams(texts, 5)
    assert len(few) == 5 < len(known)
    counts = np.diff(known.find(texts).by_text(np.arange(len(TEXTS)), len(known)).indptr)
    is_kept = np.isin(known.keys, few.keys)
    assert counts[is_kept].min() >= counts[~is_kept].max()


def test_near_duplicates_are_in_one_fold_and_the_folds_stay() -> None:
    groups = np.arange(500) % 250
    folds = assign_folds(groups)
    assert (folds[:250] == folds[250:]).all()
    assert (folds == assign_folds(groups)).all()
    assert np.bincount(folds, minlength=FOLDS).min() >= 30


def test_a_label_that_is_noise_is_not_told_to_its_own_text() -> None:
    random = np.random.default_rng(0)
    rare = random.permutation(np.arange(2000) // 2).reshape(200, 10)  # two texts have each word
    texts = words(*[[f"{number:04d}" for number in row] for row in rare])
    labels = random.integers(0, 2, 200)
    vocabulary = known_ngrams(texts)
    folds = assign_folds(np.arange(200))
    evidence = vocabulary.find(texts, folds)
    ratios = log_count_ratios(evidence, np.eye(2, dtype=bool)[labels], len(vocabulary))
    found = evidence.of(range(200))
    row = found.places.numpy() // 10
    for out_of_fold, least, most in ((folds, 0.0, 0.5 + 3 * 0.5 / 200**0.5), (-1, 0.95, 1.0)):
        evidence_of_texts = np.zeros((200, 2))
        counted = ratios[np.broadcast_to(out_of_fold, 200)[row], found.ids.numpy()]
        np.add.at(evidence_of_texts, row, counted)
        assert least <= (evidence_of_texts.argmax(axis=1) == labels).mean() <= most


def test_the_keys_are_kept_as_a_tensor_and_must_be_sorted() -> None:
    known = known_ngrams(words(*TEXTS))
    assert (KnownNgrams.of(known.tensor()).keys == known.keys).all()
    with pytest.raises(ValueError, match="expected sorted keys"):
        KnownNgrams.of(known.tensor().flip(0))


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_any_tokenizer_gives_tokens_with_evidence(tmp_path: Path, kind: str) -> None:
    pairs = [("The Cat sat", "on the mat."), ("ＴＨＥ cat", "吾輩は猫である"), ("a cat", "THE mat")]
    flat = [text for pair in pairs for text in pair]
    tokenizer = trained_tokenizer(flat, TokenizerConfig(kind, 300, 1), 64, tmp_path)
    texts = encode_texts(tokenizer, pairs, KnownNgrams(np.zeros(0, np.uint64))).words
    assert texts is not None
    encoded = encode_texts(tokenizer, pairs, known_ngrams(texts))
    assert encoded.evidence is not None
    found = encoded.evidence.of(range(3))
    assert len(found.ids) > 0
    at_special = [
        row * int(encoded.lengths.max()) + place
        for row, encoding in enumerate(tokenizer.encode_batch(pairs))
        for place, mask in enumerate(encoding.special_tokens_mask)
        if mask
    ]
    assert not set(at_special) & set(found.places.tolist())


def test_a_batch_put_below_itself_keeps_every_ngram_at_its_token() -> None:
    texts = words(*TEXTS)
    evidence = known_ngrams(texts).find(texts)
    once = evidence.of([1, 0])
    twice = once.repeated(3, 7)
    assert torch.equal(twice.ids, once.ids.repeat(3))
    assert torch.equal(twice.places, torch.cat([once.places, once.places + 14, once.places + 28]))
    assert len(twice.folds) == 6


def test_what_is_not_read_counts_at_the_last_token(tmp_path: Path) -> None:
    """The n-grams of the whole text are those of the cut one: those of the rest are at [SEP]."""
    texts = [("one two three four five six",), ("one two",)] * 4
    tokenizer = trained_tokenizer(
        [text for (text,) in texts], TokenizerConfig("words", 300, 1), 64, tmp_path
    )
    words = encode_texts(tokenizer, texts, KnownNgrams(np.zeros(0, np.uint64))).words
    assert words is not None
    known = known_ngrams(words)

    def ngrams(limit: int, row: int) -> list[tuple[int, int]]:
        tokenizer.enable_truncation(limit)
        encoded = encode_texts(tokenizer, texts, known)
        assert encoded.evidence is not None
        found = encoded.evidence.of([row])
        return sorted(zip(found.ids.tolist(), found.places.tolist(), strict=True))

    assert ngrams(64, 1) == ngrams(5, 1)  # a short one is read as it was
    wanted = [(ngram, min(place, 4)) for ngram, place in ngrams(64, 0)]
    assert ngrams(5, 0) == sorted(wanted)
    assert sum(place == 4 for _, place in wanted) > 8


def test_the_rest_of_a_text_is_spread_over_its_last_tokens(tmp_path: Path) -> None:
    """Of 20 tokens that are read and 42 that are left, 5 carry 47 words, the first of them 10."""
    texts = [(" ".join(f"w{number}" for number in range(60)),)] * 4
    tokenizer = trained_tokenizer(
        [text for (text,) in texts], TokenizerConfig("words", 300, 1), 64, tmp_path
    )
    tokenizer.enable_truncation(20)
    empty = KnownNgrams(np.zeros(0, np.uint64))
    words = encode_texts(tokenizer, texts, empty).words
    assert words is not None
    encoded = encode_texts(tokenizer, texts, known_ngrams(words))
    assert encoded.evidence is not None
    start, end = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    read = [tokenizer.token_to_id(f"w{number}") for number in range(14)]
    assert encoded.ids[:20].tolist() == [start, *read, *[end] * 5]
    carriers = sections(np.array([20]), np.array([42]))
    counted = tokens_of_words(np.array([20]), np.array([62]), carriers)
    assert counted[:15].tolist() == list(range(15))
    assert np.bincount(counted)[15:].tolist() == [10, 9, 10, 9, 9]
    assert set(encoded.evidence.of([0]).places.tolist()) == set(range(1, 20))
    (text,) = texts[0]
    *before, last = word_units().words_of(read_texts(tokenizer, [(text,)], counts_rest=True)[0])
    assert [word.name for word in before] == text.split()[:14]
    assert last == (REST, 15, 20)


def test_ngrams_of_a_wider_batch_stay_at_their_tokens() -> None:
    texts = words(*TEXTS)
    evidence = known_ngrams(texts).find(texts)
    once = evidence.of([1, 0])
    longest = int(np.diff(texts.starts)[:2].max())
    wider = evidence.of([1, 0], longest + 3)
    assert torch.equal(wider.ids, once.ids)
    assert torch.equal(wider.places, once.places + once.places // longest * 3)
