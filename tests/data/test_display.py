"""A token is shown as the letters that it stands for, and nothing in a text can hide or turn what is shown."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from headscope.data.config import TOKENIZERS, TokenizerConfig
from headscope.data.display import shown_tokens, visible
from headscope.data.tokenizer import train_tokenizer, trained_tokenizer

TEXTS = ["the cat and the dog", "猫である。犬である。"] * 20


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {
        kind: train_tokenizer(iter(TEXTS), TokenizerConfig(kind=kind, vocab_size=400, lowercase=False))
        for kind in TOKENIZERS
    }


def shown(tokenizer: Tokenizer, *texts: str) -> list[str]:
    return shown_tokens(tokenizer, tokenizer.encode(*texts), texts)


def test_what_cannot_be_seen_is_shown_as_a_sign_and_letters_as_they_are() -> None:
    unseen = " \n\t\r\x00\x1b\x7f\x85\u200b\u202e\u2066\u2028\ufeff\U000e0041\ud800"
    signs = [
        "␣",
        "⏎",
        "⇥",
        "␍",
        "␀",
        "␛",
        "␡",
        "<U+0085>",
        "<U+200B>",
        "<U+202E>",
        "<U+2066>",
        "<U+2028>",
        "<U+FEFF>",
        "<U+E0041>",
        "<U+D800>",
    ]
    for text, sign in zip([*unseen, "Ġ", "Ċ", "▁", "猫é<b>"], [*signs, "Ġ", "Ċ", "▁", "猫é<b>"], strict=True):
        assert visible(f"a{text}b{text}") == f"a{sign}b{sign}"


@settings(deadline=None)
@given(st.text())
def test_no_control_character_and_no_change_of_direction_is_left(text: str) -> None:
    controls = [
        *range(0x21),
        *range(0x7F, 0xA0),
        *range(0x200B, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    ]
    assert not set(visible(text)) & set(map(chr, controls))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_pieces_put_together_are_the_text(trained: dict[str, Tokenizer], kind: str) -> None:
    text = "the dog. 猫である。"
    pieces = "".join(shown(trained[kind], text)[1:-1])
    wanted = {
        "words": "thedog.猫である。",
        "bpe": "the␣dog.␣猫である。",
        "wordpiece": "thedog.猫である。",
        "unigram": "␣the␣dog.␣猫である。",
    }
    assert pieces == wanted[kind]


def test_a_character_split_into_bytes_is_numbered(trained: dict[str, Tokenizer]) -> None:
    assert shown(trained["bpe"], "鬱🦔") == ["[CLS]", "鬱₁", "鬱₂", "鬱₃", "🦔₁", "🦔₂", "🦔₃", "🦔₄", "[SEP]"]
    assert shown(trained["bpe"], "鬱鬱") == ["[CLS]", "鬱₁", "鬱₂", "鬱₃", "鬱₁", "鬱₂", "鬱₃", "[SEP]"]


def test_a_text_is_shown_as_it_was_written_and_not_as_nfkc_makes_it(trained: dict[str, Tokenizer]) -> None:
    assert shown(trained["bpe"], "ｄ①") == ["[CLS]", "ｄ", "①", "[SEP]"]
    assert shown(trained["bpe"], "㍿") == [
        "[CLS]",
        *(f"㍿{sign}" for sign in "₁₂₃₄₅₆₇₈₉"),
        "㍿₁₀",
        "㍿₁₁",
        "㍿₁₂",
        "[SEP]",
    ]


def test_an_unknown_word_is_shown_by_its_letters(trained: dict[str, Tokenizer]) -> None:
    encoding = trained["wordpiece"].encode("the zebra")
    assert encoding.tokens == ["[CLS]", "the", "[UNK]", "[SEP]"]
    assert shown(trained["wordpiece"], "the zebra") == ["[CLS]", "the", "zebra", "[SEP]"]


def test_each_token_of_a_pair_is_shown_from_its_own_text(trained: dict[str, Tokenizer]) -> None:
    assert shown(trained["bpe"], "the cat", "cat dog") == ["[CLS]", "the", "␣cat", "[SEP]", "cat", "␣dog", "[SEP]"]
    assert shown(trained["bpe"], "鬱", "鬱")[1:4] == ["鬱₁", "鬱₂", "鬱₃"] == shown(trained["bpe"], "鬱", "鬱")[5:8]


def test_the_letters_of_a_separator_are_not_shown_as_one(tmp_path: Path) -> None:
    for kind in TOKENIZERS:
        tokenizer = trained_tokenizer(["a [SEP] b"] * 5, TokenizerConfig(kind=kind), 64, tmp_path)
        assert shown(tokenizer, "a [SEP] b").count("[SEP]") == 1


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(first=st.text(max_size=20), second=st.none() | st.text(max_size=20))
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_there_are_as_many_shown_tokens_as_ids(
    trained: dict[str, Tokenizer], kind: str, first: str, second: str | None
) -> None:
    texts = (first,) if second is None else (first, second)
    tokens = shown(trained[kind], *texts)
    assert len(tokens) == len(trained[kind].encode(*texts).ids)
    assert all(tokens)
