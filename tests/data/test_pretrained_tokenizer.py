"""The tokenizer of a checkpoint: what `transformers` makes of the same files, and what is refused."""

import json
from pathlib import Path

import pytest
import transformers

from bert_family import FAMILIES, train_tokenizer
from headscope.data.tokenizer import pretrained_tokenizer
from headscope.errors import ConfigError

TEXTS = [
    "the film was lovely and quite warm",
    "A Café, déjà vu: naïve über-fans!",
    "a book about 東京 and rain",
    "it was, so they say, the warmest day in years; nobody knows why",
]
LONG = 64


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(request.param, TEXTS * 5)
    tokenizer.enable_padding()
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_ids_are_those_of_transformers(folder: Path) -> None:
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ours = pretrained_tokenizer(folder, LONG, 1000)
    found = ours.encode_batch(TEXTS)
    assert [encoding.ids for encoding in found] == [theirs(text)["input_ids"] for text in TEXTS]
    assert len({len(encoding.ids) for encoding in found}) > 1  # not padded
    assert max(len(encoding.ids) for encoding in found) > 7


def test_texts_are_cut_where_the_configuration_says(folder: Path) -> None:
    encoding = pretrained_tokenizer(folder, 6, 1000).encode(TEXTS[-1])
    assert len(encoding.ids) == 6
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 0, 1]


def test_ids_that_the_encoder_lacks_raise_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"has ids up to .*, but its encoder has 20 tokens"):
        pretrained_tokenizer(folder, LONG, 20)


@pytest.mark.parametrize(
    "settings",
    [
        None,
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
    ids=str,
)
def test_a_vocabulary_alone_gives_what_it_gives_in_transformers(
    settings: dict[str, bool] | None, tmp_path: Path
) -> None:
    letters = sorted(set("".join(TEXTS)) - {" "})
    words = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += ["the", "film", "Caf", "caf", "##é", "東京"]
    words += [*letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", encoding="utf-8")
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, **(settings or {}))
    ours = pretrained_tokenizer(tmp_path, LONG, 1000)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"]
    one, two = TEXTS[:2]
    pair = ours.encode(one, two)
    assert (pair.ids, pair.type_ids) == (
        theirs(one, two)["input_ids"],
        theirs(one, two)["token_type_ids"],
    )
    assert ours.encode("[SEP]").ids.count(ours.token_to_id("[SEP]")) == 1  # the letters are letters


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("sentencepiece.bpe.model", "", "has neither tokenizer.json nor vocab.txt"),
        ("tokenizer.json", "{}", "is not a tokenizer.json"),
        ("vocab.txt", "a\nb\n", "is not a vocabulary of BERT"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=words) as refusal:
        pretrained_tokenizer(tmp_path, LONG, 1000)
    assert str(tmp_path) in str(refusal.value)


def test_a_tokenizer_that_marks_no_start_raises_an_error(tmp_path: Path) -> None:
    tokenizer = json.loads(train_tokenizer("bert", TEXTS * 5).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    with pytest.raises(
        ConfigError, match=r"adds no token before and after a text, such as \[CLS\]"
    ):
        pretrained_tokenizer(tmp_path, LONG, 1000)
