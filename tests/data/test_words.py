"""Which tokens make up a word: pieces are joined, words without spaces are cut, special tokens are none."""

import ast
import re
import sys
from functools import cache
from itertools import accumulate
from pathlib import Path

import budoux
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from headscope.data import units as module
from headscope.data.tokenizer import shown_tokens, train_tokenizer, word_units
from headscope.data.units import ReadText, Word
from headscope.settings.config import TokenizerConfig

TEXTS = [
    "I don't want a refund: it's 3.14 or 1,000.",
    "カードが二重に請求されました。10月3日にGoogleで公開",
    "我被重复扣款两次，请退款",
    "한국어 단어",
    "👨‍👩‍👧 🇯🇵 👍🏽!",
]
WORDS = [
    ["I", "don't", "want", "a", "refund", ":", "it's", "3.14", "or", "1,000", "."],
    ["カードが", "二重に", "請求されました", "。", "10月3日に", "Googleで", "公開"],
    ["我", "被", "重复", "扣款", "两", "次", "，", "请", "退款"],
    ["한국어", "단어"],
    ["👨<U+200D>👩<U+200D>👧", "🇯🇵", "👍🏽", "!"],
]
FRAME = {"single": "<s> $A </s>", "pair": "<s> $A </s> $B </s>"}


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    """A tokenizer of a kind of transformers' models, with pieces of few letters; or one of ours."""
    if kind in ("words", "bpe"):
        return train_tokenizer(iter(TEXTS), TokenizerConfig(kind=kind, vocab_size=300))
    letters = sorted({*"".join(TEXTS)} - {" "})
    special = ["<s>", "</s>", "<unk>"]
    if kind == "wordpiece":
        names = [*special, "ref", "##und", "ᄒ", *letters, *(f"##{letter}" for letter in letters)]
        vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=special, unk_token="<unk>", show_progress=False
        )
        tokenizer.train_from_iterator(TEXTS * 3, trainer)
    else:  # byte-level, with the space before a word as its first letter, as GPT-2
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            special_tokens=special, initial_alphabet=alphabet, show_progress=False, vocab_size=265
        )
        tokenizer.train_from_iterator(TEXTS, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(**FRAME, special_tokens=ids)
    return tokenizer


def words_of(tokenizer: Tokenizer, *texts: str) -> list[Word]:
    return word_units().words_of(ReadText(tokenizer.encode(*texts), texts))


def words(kind: str, *texts: str) -> list[str]:
    return [word.name for word in words_of(tokenizer_of(kind), *texts)]


@pytest.mark.parametrize("kind", ["words", "bpe", "wordpiece", "unigram", "gpt"])
@pytest.mark.parametrize("place", range(len(TEXTS)))
def test_pieces_of_every_kind_of_tokenizer_are_joined_into_the_same_words(
    kind: str, place: int
) -> None:
    found = words(kind, TEXTS[place])
    if kind == "wordpiece" and place == 4:  # a word of unknown signs is one token
        assert "".join(found) == "".join(WORDS[place])
    else:
        assert found == WORDS[place]


@pytest.mark.parametrize("kind", ["words", "bpe", "wordpiece", "unigram", "gpt"])
def test_the_words_of_a_pair_are_of_one_text_and_special_tokens_are_no_words(kind: str) -> None:
    encoding = tokenizer_of(kind).encode("a refund", "refund or")
    found = word_units().words_of(ReadText(encoding, ("a refund", "refund or")))
    assert [word.name for word in found] == ["a", "refund", "refund", "or"]
    covered = {at for word in found for at in range(word.start, word.end)}
    special = {at for at, side in enumerate(encoding.sequence_ids) if side is None}
    assert special
    assert covered == {*range(len(encoding.ids))} - special


def test_a_space_that_is_a_token_goes_with_the_word_after_it() -> None:
    vocabulary = {"<unk>": 0, "▁": 1, "請求": 2, "に": 3}
    tokenizer = Tokenizer(models.Unigram([(name, 0.0) for name in vocabulary], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert tokenizer.encode("請求に 請求").tokens == ["▁", "請求", "に", "▁", "請求"]
    found = [tuple(word) for word in words_of(tokenizer, "請求に 請求")]
    assert found == [("請求に", 0, 3), ("請求", 3, 5)]


def test_what_is_left_out_of_a_long_text_changes_no_word() -> None:
    tokenizer = train_tokenizer(iter(TEXTS), TokenizerConfig(vocab_size=300))
    tokenizer.enable_truncation(6)
    both = [word.name for word in words_of(tokenizer, "請求 退款 a b c", "あ")]
    assert both == ["請求", "あ"]
    alone = words_of(tokenizer, "二重に請求")  # what is read alone chooses the language, and words
    assert [word.name for word in alone] == ["二重に", "請"]


# As macOS names files, and with Katakana of half width: é, ガ, 각, パ of two characters or three.
JOINED = ["cafe\u0301", "e\u0301t\u00e9", "か\u3099", "\u1100\u1161\u11a8", "ﾊﾟ", "e\u0323\u0301"]


@pytest.mark.parametrize("kind", ["words", "bpe", "gpt"])
@pytest.mark.parametrize("word", JOINED)
def test_what_is_joined_to_the_last_letter_is_of_its_token(kind: str, word: str) -> None:
    assert words(kind, f"a {word} b") == ["a", word, "b"]
    text = f"{word} a {word}"
    read = ReadText(tokenizer_of(kind).encode(text), (text,))
    if kind == "words":
        assert [*read.pieces()] == [None, word, "a", word, None]  # what n-grams are counted of
        assert shown_tokens(read) == ["[CLS]", word, "a", word, "[SEP]"]


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=30), st.none() | st.text(max_size=12))
@pytest.mark.parametrize("kind", ["words", "bpe", "gpt"])
def test_whatever_the_text_each_token_is_in_one_word_and_each_name_is_of_the_text(
    kind: str, first: str, second: str | None
) -> None:
    texts = (first,) if second is None else (first, second)
    encoding = tokenizer_of(kind).encode(*texts)
    read = ReadText(encoding, texts)
    found = word_units().words_of(read)
    covered = [at for word in found for at in range(word.start, word.end)]
    assert covered == [at for at, side in enumerate(encoding.sequence_ids) if side is not None]
    assert all(word.name for word in found)
    for (start, end), side in zip(read.places, read.sides, strict=True):
        assert 0 <= start <= end <= (0 if side is None else len(texts[side]))


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=40))
def test_units_are_runs_that_hold_every_character_once(text: str) -> None:
    numbers = word_units().of(text)
    assert len(numbers) == len(text)
    assert numbers == sorted(numbers)
    assert {*numbers} == {*range(len({*numbers}))}
    for at in range(1, len(text)):
        if re.fullmatch("[A-Za-z0-9]{2}", text[at - 1 : at + 1]):
            assert numbers[at - 1] == numbers[at], "letters and digits are never cut"


@settings(deadline=None, max_examples=200)
@given(st.text("請求に被扣款カーดีมากไทย。、0aé", max_size=30))
def test_texts_are_cut_where_budoux_cuts_them(text: str) -> None:
    load = {
        "ja": budoux.load_default_japanese_parser,
        "zh-hans": budoux.load_default_simplified_chinese_parser,
        "th": budoux.load_default_thai_parser,
    }
    for language, phrases in word_units().phrases.items():
        starts = [0, *accumulate(map(len, load[language]().parse(text)))][1:-1]
        assert [at for at in range(1, len(text)) if phrases.begins_at(text, at)] == starts


def test_the_file_that_is_copied_beside_an_export_needs_tokenizers_alone() -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"tokenizers"}
