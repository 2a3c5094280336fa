"""Tokenizers of three kinds: text comes back as it was, special tokens are never made from a text, files are reused."""

import unicodedata
from pathlib import Path

import pytest

from headscope.data import tokenizer as module
from headscope.data.config import TOKENIZERS, TokenizerConfig
from headscope.data.tokenizer import SPECIAL_TOKENS, train_tokenizer, trained_tokenizer
from headscope.errors import ConfigError

TEXTS = [
    "吾輩は猫である。名前はまだ無い。",
    "我是一只猫。还没有名字，我不知道我出生在哪里。",
    "The cat (a tabby) doesn't have a name yet, and [SEP] is no separator [PAD][MASK].",
    "ｶﾀｶﾅ and ＡＢＣ are wide and narrow; ①②",
] * 5


def without_spaces(text: str) -> str:
    return "".join(text.split())


@pytest.fixture(scope="module", params=TOKENIZERS)
def config(request: pytest.FixtureRequest) -> TokenizerConfig:
    return TokenizerConfig(kind=request.param, vocab_size=400, lowercase=False)


def trained(config: TokenizerConfig, folder: Path, texts: list[str] = TEXTS, max_length: int = 128) -> module.Tokenizer:
    return trained_tokenizer(texts, config, max_length, folder)


@pytest.mark.parametrize("text", TEXTS[:4])
def test_a_text_comes_back_as_nfkc_makes_it(tmp_path: Path, config: TokenizerConfig, text: str) -> None:
    tokenizer = trained(config, tmp_path)
    encoding = tokenizer.encode(text)
    found, wanted = tokenizer.decode(encoding.ids), unicodedata.normalize("NFKC", text)
    if config.kind in ("wordpiece", "words"):  # which forget where spaces stood
        found, wanted = without_spaces(found), without_spaces(wanted)
    assert found == wanted
    assert "[UNK]" not in encoding.tokens


@pytest.mark.parametrize("text", TEXTS[:2])
def test_text_without_spaces_is_cut_into_several_pieces(tmp_path: Path, config: TokenizerConfig, text: str) -> None:
    assert len(trained(config, tmp_path).encode(text).ids) >= 7


def test_bytes_stand_for_what_was_never_seen(tmp_path: Path) -> None:
    unseen = "Ελληνικά 🦔 \x00\x07 ไทย"
    tokenizer = trained(TokenizerConfig("bpe", 300, lowercase=False), tmp_path)
    encoding = tokenizer.encode(unseen)
    assert tokenizer.decode(encoding.ids) == unicodedata.normalize("NFKC", unseen)
    assert "[UNK]" not in encoding.tokens


def test_wide_and_narrow_forms_are_one(tmp_path: Path, config: TokenizerConfig) -> None:
    tokenizer = trained(config, tmp_path)
    assert tokenizer.encode("ＡＢＣ カタカナ").ids == tokenizer.encode("ABC ｶﾀｶﾅ").ids


def test_padding_is_0_and_every_text_stands_between_class_and_separator(
    tmp_path: Path, config: TokenizerConfig
) -> None:
    tokenizer = trained(config, tmp_path)
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    single, pair = tokenizer.encode("a cat"), tokenizer.encode("a cat", "a name")
    assert (single.ids[0], single.ids[-1]) == (2, 3)
    assert [place for place, token in enumerate(pair.ids) if token == 3] == [len(single.ids) - 1, len(pair.ids) - 1]
    assert pair.type_ids == [0] * len(single.ids) + [1] * (len(pair.ids) - len(single.ids))


@pytest.mark.parametrize("text", [*SPECIAL_TOKENS, "a [SEP] b", "a[CLS]b", "[PAD] [PAD]", "x [MASK]y"])
def test_the_letters_of_a_special_token_are_letters(tmp_path: Path, config: TokenizerConfig, text: str) -> None:
    for tokenizer in (train_tokenizer(iter(TEXTS), config), trained(config, tmp_path), trained(config, tmp_path)):
        first, *inner, last = tokenizer.encode(text).ids
        assert (first, last) == (2, 3)
        assert inner
        assert not {0, 2, 3, 4} & set(inner)


def test_longer_texts_are_cut_to_max_length_separators_included(tmp_path: Path, config: TokenizerConfig) -> None:
    tokenizer = trained(config, tmp_path, max_length=7)
    for encoding in (tokenizer.encode(TEXTS[2]), tokenizer.encode(TEXTS[2], TEXTS[1])):
        assert (len(encoding.ids), encoding.ids[0], encoding.ids[-1]) == (7, 2, 3)


def test_the_vocabulary_is_as_large_as_wished_where_texts_suffice(tmp_path: Path) -> None:
    words = [f"word{number:03} {number * 7919}" for number in range(500)]
    for kind in ("words", "bpe", "wordpiece"):
        config = TokenizerConfig(kind=kind, vocab_size=333, min_frequency=1)
        assert trained(config, tmp_path, words).get_vocab_size() == 333


def test_pieces_that_are_too_rare_are_not_kept(tmp_path: Path) -> None:
    texts = ["common word", "common word", "rare"]
    for kind in ("words", "bpe", "wordpiece"):
        tokens = trained(TokenizerConfig(kind=kind, min_frequency=2), tmp_path, texts).get_vocab()
        assert "common" in tokens
        assert "rare" not in tokens


def test_lower_case_is_a_choice(tmp_path: Path, config: TokenizerConfig) -> None:
    lower = TokenizerConfig(kind=config.kind, vocab_size=400, lowercase=True)
    assert trained(lower, tmp_path).encode("The CAT").ids == trained(lower, tmp_path).encode("the cat").ids
    assert trained(config, tmp_path).encode("The CAT").ids != trained(config, tmp_path).encode("the cat").ids


def test_every_text_setting_and_length_has_a_file_of_its_own(tmp_path: Path) -> None:
    config = TokenizerConfig("bpe", 300)
    for settings in (
        (TEXTS, config, 128),
        (TEXTS[:-1], config, 128),
        ([*TEXTS[1:], TEXTS[0]], config, 128),
        (TEXTS, TokenizerConfig("bpe", 301), 128),
        (TEXTS, TokenizerConfig(kind="wordpiece", vocab_size=300), 128),
        (TEXTS, TokenizerConfig("bpe", 300, lowercase=False), 128),
        (TEXTS, config, 64),
        (TEXTS, config, 128),
    ):
        trained_tokenizer(*settings, tmp_path)
    assert len(list((tmp_path / "tokenizers").iterdir())) == 7


def test_a_vocabulary_too_small_for_the_characters_is_refused_with_advice(tmp_path: Path) -> None:
    ideographs = ["".join(map(chr, range(start, start + 50))) for start in range(0x4E00, 0x4E00 + 500, 50)]
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: got 300, .*tokenizer=bpe"):
        trained(TokenizerConfig(kind="unigram", vocab_size=300), tmp_path, ideographs)
    assert not (tmp_path / "tokenizers").exists()
    tokenizer = trained(TokenizerConfig(kind="bpe", vocab_size=300), tmp_path, ideographs)
    assert tokenizer.decode(tokenizer.encode(ideographs[3]).ids) == ideographs[3]
