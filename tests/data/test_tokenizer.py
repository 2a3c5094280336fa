"""Tokenizers: text comes back as it was, special tokens are never made from a text, and tokens are shown as written."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from headscope.data import tokenizer as module
from headscope.data.tokenizer import (
    SPECIAL_TOKENS,
    shown_tokens,
    train_tokenizer,
    trained_tokenizer,
)
from headscope.data.units import ReadText, visible
from headscope.settings.config import TokenizerConfig

TEXTS = [
    "吾輩は猫である。名前はまだ無い。",
    "我是一只猫。还没有名字，我不知道我出生在哪里。",
    "The cat (a tabby) doesn't have a name yet, and [SEP] is no separator [PAD][MASK].",
    "ｶﾀｶﾅ and ＡＢＣ are wide and narrow; ①②",
] * 5


@pytest.fixture(scope="module", params=["words", "bpe"])
def config(request: pytest.FixtureRequest) -> TokenizerConfig:
    return TokenizerConfig(kind=request.param, vocab_size=400, lowercase=False)


def trained(
    config: TokenizerConfig, folder: Path, texts: list[str] = TEXTS, max_length: int = 128
) -> module.Tokenizer:
    return trained_tokenizer(texts, config, max_length, folder)


def test_a_text_comes_back_as_nfkc_makes_it(tmp_path: Path, config: TokenizerConfig) -> None:
    tokenizer = trained(config, tmp_path)
    for text in TEXTS[:4]:
        encoding = tokenizer.encode(text)
        found, wanted = tokenizer.decode(encoding.ids), unicodedata.normalize("NFKC", text)
        if config.kind == "words":  # which forget where spaces stood
            found, wanted = "".join(found.split()), "".join(wanted.split())
        assert found == wanted
        assert "[UNK]" not in encoding.tokens
        assert len(encoding.ids) >= 7  # without spaces too
    assert tokenizer.encode("ＡＢＣ カタカナ").ids == tokenizer.encode("ABC ｶﾀｶﾅ").ids


def test_padding_is_0_and_every_text_stands_between_class_and_separator(
    tmp_path: Path, config: TokenizerConfig
) -> None:
    tokenizer = trained(config, tmp_path)
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    single, pair = tokenizer.encode("a cat"), tokenizer.encode("a cat", "a name")
    assert (single.ids[0], single.ids[-1]) == (2, 3)
    assert [place for place, token in enumerate(pair.ids) if token == 3] == [
        len(single.ids) - 1,
        len(pair.ids) - 1,
    ]
    assert pair.type_ids == [0] * len(single.ids) + [1] * (len(pair.ids) - len(single.ids))


def test_the_letters_of_a_special_token_are_letters(
    tmp_path: Path, config: TokenizerConfig
) -> None:
    for tokenizer in (train_tokenizer(iter(TEXTS), config), trained(config, tmp_path)):
        for text in [*SPECIAL_TOKENS, "a [SEP] b[CLS] x [MASK]y"]:
            first, *inner, last = tokenizer.encode(text).ids
            assert (first, last) == (2, 3)
            assert inner
            assert not {0, 2, 3, 4} & set(inner)
            assert shown(tokenizer, text)[1:-1].count("[SEP]") == 0


def test_longer_texts_are_cut_to_max_length_separators_included(
    tmp_path: Path, config: TokenizerConfig
) -> None:
    tokenizer = trained(config, tmp_path, max_length=7)
    for encoding in (tokenizer.encode(TEXTS[2]), tokenizer.encode(TEXTS[2], TEXTS[1])):
        assert (len(encoding.ids), encoding.ids[0], encoding.ids[-1]) == (7, 2, 3)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_the_vocabulary_has_the_size_asked_for_without_rare_pieces(
    tmp_path: Path, kind: str
) -> None:
    words = [f"word{number:03} {number * 7919}" for number in range(500)]
    config = TokenizerConfig(kind=kind, vocab_size=333, min_frequency=1)
    assert trained(config, tmp_path, words).get_vocab_size() == 333
    texts = ["common word", "common word", "rare"]
    tokens = trained(TokenizerConfig(kind=kind, min_frequency=2), tmp_path, texts).get_vocab()
    assert "common" in tokens
    assert "rare" not in tokens


def test_lower_case_is_a_choice(tmp_path: Path, config: TokenizerConfig) -> None:
    for lowercase in (True, False):
        chosen = TokenizerConfig(kind=config.kind, vocab_size=400, lowercase=lowercase)
        tokenizer = trained(chosen, tmp_path)
        is_same = tokenizer.encode("The CAT").ids == tokenizer.encode("the cat").ids
        assert is_same == lowercase


def test_every_text_setting_and_length_has_a_file_of_its_own(tmp_path: Path) -> None:
    config = TokenizerConfig("bpe", 300)
    for texts, chosen, length in (
        (TEXTS, config, 128),
        (TEXTS[:-1], config, 128),
        ([*TEXTS[1:], TEXTS[0]], config, 128),
        (TEXTS, TokenizerConfig(kind="words", vocab_size=300), 128),
        (TEXTS, config, 64),
        (TEXTS, config, 128),
    ):
        trained_tokenizer(texts, chosen, length, tmp_path)
    assert len(list((tmp_path / "tokenizers").iterdir())) == 5


# --- a token is shown as the letters that it stands for, and nothing in a text can hide or turn what is shown ---


SHOWN = ["the cat and the dog", "猫である。犬である。"] * 20


@pytest.fixture(scope="module")
def by_kind() -> dict[str, Tokenizer]:
    configs = [
        TokenizerConfig(kind=kind, vocab_size=400, lowercase=False) for kind in ("words", "bpe")
    ]
    return {config.kind: train_tokenizer(iter(SHOWN), config) for config in configs}


def shown(tokenizer: Tokenizer, *texts: str) -> list[str]:
    return shown_tokens(ReadText(tokenizer.encode(*texts), texts))


def test_what_cannot_be_seen_is_shown_as_a_sign_and_letters_as_they_are() -> None:
    unseen = " \n\t\r\x00\x1b\x7f\x85\u200b\u202e\u2066\u2028\ufeff\U000e0041\ud800"
    signs = "␣ ⏎ ⇥ ␍ ␀ ␛ ␡ <U+0085> <U+200B> <U+202E> <U+2066> <U+2028> <U+FEFF> <U+E0041> <U+D800>"
    seen = ["Ġ", "Ċ", "▁", "猫é<b>"]
    for text, sign in zip([*unseen, *seen], [*signs.split(), *seen], strict=True):
        assert visible(f"a{text}b{text}") == f"a{sign}b{sign}"


@settings(deadline=None)
@given(st.text())
def test_no_control_character_and_no_change_of_direction_is_left(text: str) -> None:
    ranges = (0, 0x21), (0x7F, 0xA0), (0x200B, 0x2010), (0x2028, 0x202F), (0x2066, 0x206A)
    controls = [code for start, stop in ranges for code in range(start, stop)]
    assert not set(visible(text)) & set(map(chr, controls))


def test_pieces_put_together_are_the_text(by_kind: dict[str, Tokenizer]) -> None:
    wanted = {"words": "thedog.猫である。", "bpe": "the␣dog.␣猫である。"}
    for kind, tokenizer in by_kind.items():
        assert "".join(shown(tokenizer, "the dog. 猫である。")[1:-1]) == wanted[kind]


def test_tokens_are_shown_as_written_not_as_nfkc_makes_them_and_bytes_are_numbered(
    by_kind: dict[str, Tokenizer],
) -> None:
    for text, tokens in (
        ("鬱🦔", "鬱₁ 鬱₂ 鬱₃ 🦔₁ 🦔₂ 🦔₃ 🦔₄"),
        ("鬱鬱", "鬱₁ 鬱₂ 鬱₃ 鬱₁ 鬱₂ 鬱₃"),
        ("ｄ①", "ｄ ①"),
        ("㍿", "㍿₁ ㍿₂ ㍿₃ ㍿₄ ㍿₅ ㍿₆ ㍿₇ ㍿₈ ㍿₉ ㍿₁₀ ㍿₁₁ ㍿₁₂"),
    ):
        assert shown(by_kind["bpe"], text) == ["[CLS]", *tokens.split(), "[SEP]"]


def test_an_unknown_word_is_shown_by_its_letters_and_a_pair_from_both_texts(
    by_kind: dict[str, Tokenizer],
) -> None:
    assert by_kind["words"].encode("the zebra").tokens[2] == "[UNK]"
    assert shown(by_kind["words"], "the zebra") == ["[CLS]", "the", "zebra", "[SEP]"]
    pair = " ".join(shown(by_kind["bpe"], "the cat", "鬱 dog"))
    assert pair == "[CLS] the ␣cat [SEP] 鬱₁ 鬱₂ 鬱₃ ␣dog [SEP]"


@settings(max_examples=30, deadline=None)
@given(first=st.text(max_size=20), second=st.none() | st.text(max_size=20))
@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_there_are_as_many_shown_tokens_as_ids(
    by_kind: dict[str, Tokenizer], kind: str, first: str, second: str | None
) -> None:
    texts = (first,) if second is None else (first, second)
    tokens = shown(by_kind[kind], *texts)
    assert len(tokens) == len(by_kind[kind].encode(*texts).ids)
    assert all(tokens)
