"""The page's tokenizers cut any text as `tokenizers` does: the same ids, at the same places of the text."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Encoding,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from charsmaps import charsmap
from headscope.data.tokenizer import tokenizer_of, train_tokenizer, unknown_ids
from headscope.data.units import ReadText
from headscope.ground.errors import LivePageError
from headscope.heads.step import text_of
from headscope.pages.tokenizer import page_tokenizer
from headscope.settings.config import TokenizerConfig
from headscope.tab.html import bundled
from hostile_texts import SENTENCES, hostile_texts

ALPHABET = pre_tokenizers.ByteLevel.alphabet()
LIMIT = 24
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# What SentencePiece's nmt_nfkc does, in small. What a grapheme becomes is decided by its beginning.
WRITTEN = {
    "ﬁ": "fi",
    "Ａ": "A",
    "ｚ": "z",
    "１": "1",
    "㌔": "キロ",
    "½": "1⁄2",
    "ｱ": "ア",
    "①": "1",
    "İ": "I",
}
WRITTEN |= dict.fromkeys("\t\n\r\x85\xa0\u2009\u2028\u200b\ufeff\u3000", " ")
WRITTEN |= dict.fromkeys("\x07\x1c\xad\u200c", "")
WRITTEN |= {"e\u0301": "é", "A\u0323": "Ạ", "ｶﾞ": "ガ", "ﾊﾟ": "パ", "a": "ɑ", "\r\n": "␍"}
CUT = """given => {
  const [content, rows] = JSON.parse(given);
  const tokenizer = new modules.tokenizer.Tokenizer(content);
  const idOf = row => content.ids[row];
  const tokenOf = ({ id, start, end }) => [idOf(id), start, end];
  return JSON.stringify(rows.map(row => {
    const { ids, rest, ...read } = tokenizer.encode(row);
    return [row.map(text => tokenizer.tokensOf(text).map(tokenOf)), { ids: ids.map(idOf), ...read }];
  }));
}"""


def framed(tokenizer: Tokenizer, single: str, pair: str, first: str, last: str) -> Tokenizer:
    ids = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    frame = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    tokenizer.post_processor = frame
    return tokenizer


def word_piece(lowercase: bool) -> Tokenizer:
    """As BERT's, DistilBERT's and ELECTRA's."""
    letters = sorted({*"".join(SENTENCES).lower()} - {" ", "q", "カ"})
    names = [
        *BERT,
        *letters,
        *(f"##{letter}" for letter in letters),
        "the",
        "##own",
        "es",
        "fox",
        "lazy",
        "Th",
    ]
    names += ["##dog", "स", "##्", "ก", "café", "##▁"]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    return framed(tokenizer, "[CLS] $A [SEP]", pair, "[CLS]", "[SEP]")


def byte_pairs(prefix: bool) -> Tokenizer:
    """As RoBERTa's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    options: Any = {"special_tokens": SPECIAL, "initial_alphabet": ALPHABET, "show_progress": False}
    tokenizer.train_from_iterator(SENTENCES * 3, trainers.BpeTrainer(vocab_size=600, **options))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, prefix)
    return tokenizer


def modern_bert() -> Tokenizer:
    """As ModernBERT's: NFC, tokens that stand for spaces, a model that knows whole words first."""
    parts = json.loads(byte_pairs(prefix=False).to_str())
    parts["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(
        ["[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True, special=True)]
    )
    tokenizer.add_tokens(
        [AddedToken(text) for text in ("  ", "   ", "|||IP|||", "e\u0301", "P|||[CLS]")]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("\t\t", "\u0301\u0323")])
    return framed(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", "[CLS]", "[SEP]")


def unigram(bytes_too: bool) -> Tokenizer:
    """As XLM-R's, multilingual-e5's and CamemBERT's; with bytes in place of <unk> as Japanese ones."""
    normal = normalizers.Precompiled(charsmap(WRITTEN))
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normal
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=260, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text for text in SENTENCES * 3 if "ไทย" not in text], trainer)
    if bytes_too:
        parts = json.loads(tokenizer.to_str())
        parts["model"]["vocab"] += [[f"<0x{byte:02X}>", -12.0] for byte in range(256)]
        parts["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(parts))
        spaces = normalizers.Replace(Regex(" {2,}"), " ")
        ends = normalizers.Strip(left=False, right=True)
        tokenizer.normalizer = normalizers.Sequence([normal, spaces, ends])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return framed(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>", "<s>", "</s>")


def from_scratch(kind: Any) -> Tokenizer:
    config = TokenizerConfig(kind, vocab_size=600, min_frequency=1)
    return train_tokenizer(iter(SENTENCES * 2), config)


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "WordPiece, lower case without accents": partial(word_piece, lowercase=True),
    "WordPiece, cased": partial(word_piece, lowercase=False),
    "byte-level BPE": partial(byte_pairs, prefix=False),
    "byte-level BPE, a space before": partial(byte_pairs, prefix=True),
    "byte-level BPE of ModernBERT": modern_bert,
    "Unigram": partial(unigram, bytes_too=False),
    "Unigram with bytes": partial(unigram, bytes_too=True),
    "words from scratch": partial(from_scratch, "words"),
    "BPE from scratch": partial(from_scratch, "bpe"),
}


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """Return a tab that has the page's modules and nothing else."""
    with browser.new_context() as context:
        page = context.new_page()
        page.evaluate(f"{bundled('classifier.js')};window.modules = modules;0")
        yield page


def read_by(tokenizer: Tokenizer, limit: int | None = LIMIT) -> Tokenizer:
    """Return a tokenizer as headscope reads it from its file."""
    read = tokenizer_of(tokenizer.to_str())
    if limit is not None:
        read.enable_truncation(limit)
    return read


def tokens_of(encoding: Encoding, text: str) -> list[list[int]]:
    """Return the id of each token of a text, and its place in units of UTF-16."""
    units = [0]
    for character in text:
        units.append(units[-1] + 1 + (ord(character) > 0xFFFF))
    tokens = zip(encoding.ids, encoding.offsets, encoding.sequence_ids, strict=True)
    return [[id_, units[start], units[end]] for id_, (start, end), side in tokens if side == 0]


def cut_by_page(tab: Any, content: dict[str, Any], rows: Sequence[Sequence[str]]) -> Any:
    """Return the tokens of each text of a row, and all that the page says of the row."""
    return json.loads(tab.evaluate(CUT, json.dumps([content, rows])))


def shown(tokenizer: Tokenizer, row: Sequence[str]) -> dict[str, Any]:
    """Return all that the page says of a text or pair, as Python has it."""
    encoding = tokenizer.encode(*row)
    read = ReadText(encoding, tuple(row))
    text = text_of(read, unknown_ids(tokenizer))
    return {
        "ids": encoding.ids,
        "pieces": [*read.pieces()],
        "tokens": text.tokens,
        "segments": encoding.type_ids,
        "sides": encoding.sequence_ids,
        "special": text.special,
        "words": [[*word] for word in text.words or []],
        "places": [[*place] for place in text.places or []],
        "unknown": text.unknown or [],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_3000_hostile_texts_have_the_same_ids_and_places(tab: Any, name: str) -> None:
    texts = hostile_texts(3000)
    made = TOKENIZERS[name]()
    whole = read_by(made, limit=None)
    cut = read_by(made)
    rows = [(text,) for text in texts] + [*zip(texts[:200], reversed(texts), strict=False)]
    found = cut_by_page(tab, page_tokenizer(cut, LIMIT), rows)
    assert sum(len(tokens) for (tokens, *_), _ in found) > 30_000
    for number, (row, (tokens, read)) in enumerate(zip(rows, found, strict=True)):
        if len(row) == 1:
            assert tokens == [tokens_of(whole.encode(*row), *row)], ascii(row)
        if number % 10 == 0 or len(row) == 2:
            assert read == shown(cut, row), ascii(row)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_of_kept_pieces_are_cut_in_the_same_way_by_a_smaller_vocabulary(
    tab: Any, name: str
) -> None:
    texts = hostile_texts(300, seed=1)[100:]
    tokenizer = read_by(TOKENIZERS[name]())
    kept = {number for text in texts for number in tokenizer.encode(text).ids}
    content = page_tokenizer(tokenizer, LIMIT, kept)
    assert kept <= {*content["ids"]}
    assert len(content["ids"]) < tokenizer.get_vocab_size()
    found = cut_by_page(tab, content, [[text] for text in texts])
    for text, (_, read) in zip(texts, found, strict=True):
        assert read == shown(tokenizer, [text]), ascii(text)


def with_part(**parts: Any) -> Tokenizer:
    tokenizer = byte_pairs(prefix=False)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def with_added(**options: Any) -> Tokenizer:
    tokenizer = byte_pairs(prefix=False)
    tokenizer.add_tokens([AddedToken("lone", **options)])
    return tokenizer


REJECTED: list[tuple[Callable[[], Tokenizer], str]] = [
    (
        lambda: with_part(normalizer=normalizers.Nmt()),
        "normalizer: expected BertNormalizer, .*Replace, got Nmt",
    ),
    (
        lambda: with_part(normalizer=normalizers.Replace(Regex("[ab]"), "")),
        r"normalizer: Replace: .*got \[ab\]",
    ),
    (
        lambda: with_part(
            pre_tokenizer=pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]
            )
        ),
        "pre_tokenizer: expected BertPreTokenizer, .*Metaspace, got Digits",
    ),
    (
        lambda: with_part(pre_tokenizer=pre_tokenizers.Metaspace()),
        "model: expected a BPE of all 256 bytes, got another BPE",
    ),
    (
        lambda: with_part(model=models.BPE(vocab={"a": 0}, merges=[], dropout=0.1)),
        "model: dropout: expected none, got 0.1",
    ),
    (lambda: with_added(single_word=True), "added token 'lone': single_word: expected false"),
]


@pytest.mark.parametrize(("made", "message"), REJECTED)
def test_a_part_without_code_in_the_page_is_named(
    made: Callable[[], Tokenizer], message: str
) -> None:
    with pytest.raises(LivePageError, match=f"^tokenizer: {message}"):
        page_tokenizer(read_by(made()), LIMIT)
