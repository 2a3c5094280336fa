"""Token ids on disk are those of each text encoded by itself, named by what they were made from."""

from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, Value, concatenate_datasets
from safetensors import SafetensorError
from tokenizers import Tokenizer

from headscope.data.batching import EncodedTexts
from headscope.data.datamodule import encode
from headscope.data.tokenizer import train_tokenizer
from headscope.data.units import ReadText
from headscope.ground.files import cache_folder
from headscope.settings.config import TokenizerConfig

TEXTS = ["the cat", "吾輩は猫である。名前はまだ無い。", "a [SEP] b", "", "x" * 50]
TEXTS += ["the dog and the cat " * 9, "鬱🦔"]
DATASET = Dataset.from_dict({"text": TEXTS, "label": [0, 1] * 3 + [0]})
PAIRS = Dataset.from_dict({"text": TEXTS, "text_pair": TEXTS[::-1], "label": [0] * 7})


def make_tokenizer(kind: str = "bpe", max_length: int = 16) -> Tokenizer:
    tokenizer = train_tokenizer(iter(TEXTS * 3), TokenizerConfig(kind=kind, vocab_size=350))
    tokenizer.enable_truncation(max_length)
    return tokenizer


def ids_of(texts: EncodedTexts) -> list[list[int]]:
    return [row.tolist() for row in np.split(texts.ids, texts.starts[1:-1])]


@pytest.mark.parametrize("dataset", [DATASET, PAIRS], ids=["texts", "pairs"])
@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_texts_are_encoded_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dataset: Dataset
) -> None:
    monkeypatch.setattr("headscope.data.datamodule.TEXTS_AT_ONCE", 2)
    tokenizer = make_tokenizer(kind)
    texts = encode(tokenizer, dataset, tmp_path, with_words=kind == "bpe")
    columns = [dataset[name] for name in ("text", "text_pair") if name in dataset.column_names]
    wanted = [tokenizer.encode(*row) for row in zip(*columns, strict=True)]
    ids = [encoding.ids for encoding in wanted]
    if kind == "bpe":
        ids = [ReadText(encoding, (), counts_rest=True).ids for encoding in wanted]
    assert ids_of(texts) == ids
    assert texts.lengths.tolist() == [len(encoding.ids) for encoding in wanted]
    assert texts.num_cut == sum(bool(encoding.overflowing) for encoding in wanted) > 0
    types = [segment for encoding in wanted for segment in encoding.type_ids]
    assert texts.segments is None if dataset is DATASET else texts.segments.tolist() == types
    if texts.words is None:
        return
    # Words of all tokens, those that are not read too; of a pair of those that are.
    assert texts.words.lengths.tolist() == texts.lengths.tolist()
    whole = make_tokenizer(kind, 1000 if dataset is DATASET else 16)
    of_words = [len(whole.encode(*row).ids) for row in zip(*columns, strict=True)]
    assert np.diff(texts.words.starts).tolist() == of_words


def name_of(dataset: Dataset, cache: Path, tokenizer: Tokenizer) -> str:
    """Return the name of the file that the texts' ids are kept in."""
    before = set((cache / "encoded").glob("*"))
    encode(tokenizer, dataset, cache)
    (path,) = set((cache / "encoded").iterdir()) - before
    path.unlink()
    return path.name


def test_the_name_changes_with_any_text_where_it_ends_and_its_place(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tables = [
        {"text": ["ab", "c"]},
        {"text": ["ab", "d"]},
        {"text": ["a", "bc"]},
        {"text": ["c", "ab"]},
        {"text": ["ab", "c", ""]},
        {"text": ["", "ab", "c"]},
        {"text": ["abc"]},
        {"text": ["ab", "c"], "text_pair": ["", ""]},
        {"text": ["ab", "c"], "text_pair": ["ab", "c"]},
        {"text": ["ab", "c"], "text_pair": ["c", "ab"]},
        {"text": ["c", "ab"], "text_pair": ["ab", "c"]},
        {"text": ["ab", ""], "text_pair": ["c", ""]},
    ]
    names = {name_of(Dataset.from_dict(table), tmp_path, tokenizer) for table in tables}
    assert len(names) == len(tables)
    others = [make_tokenizer(max_length=17), make_tokenizer("words"), make_tokenizer()]
    others[2].encode_special_tokens = False  # no tokenizer.json keeps this
    names |= {name_of(Dataset.from_dict(tables[0]), tmp_path, other) for other in others}
    assert len(names) == len(tables) + 3


def test_the_name_is_that_of_the_texts_however_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, rows = make_tokenizer(), range(len(TEXTS))
    PAIRS.to_parquet(tmp_path / "pairs.parquet")
    stored = [
        PAIRS,
        concatenate_datasets([PAIRS.select(rows[:2]), PAIRS.select(rows[2:])]),
        concatenate_datasets([PAIRS.select([0, 1]), PAIRS.select([6, 5, 4, 3, 2])]).select(
            [0, 1, 6, 5, 4, 3, 2]
        ),
        PAIRS.select(rows[::-1]).select(rows[::-1]),
        concatenate_datasets([PAIRS, PAIRS]).select(range(3, 14)).select(range(4, 11)),
        PAIRS.select_columns(["label", "text_pair", "text"]),
        PAIRS.cast_column("text", Value("large_string")),
        Dataset.from_parquet(str(tmp_path / "pairs.parquet"), cache_dir=str(tmp_path)),
    ]
    assert all(dataset["text"][:] == dataset["text_pair"][::-1] == TEXTS for dataset in stored)
    names = {name_of(dataset, tmp_path, tokenizer) for dataset in stored}
    monkeypatch.setattr("headscope.data.columns.ROWS_AT_ONCE", 2)
    names |= {name_of(dataset, tmp_path, tokenizer) for dataset in stored}
    assert len(names) == 1


def test_what_was_encoded_is_read_again_and_what_was_half_written_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer()

    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"{")
        raise SafetensorError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr("headscope.ground.arrays.save_file", full)
        encode(tokenizer, DATASET, tmp_path)
    assert list((tmp_path / "encoded").iterdir()) == []
    relabelled = DATASET.remove_columns("label").add_column("label", np.zeros(7, np.int64))
    wanted = [tokenizer.encode(text).ids for text in TEXTS]
    kept = []
    for dataset in (DATASET, relabelled):
        assert ids_of(encode(tokenizer, dataset, tmp_path)) == wanted
        kept.append([path.stat().st_mtime_ns for path in (tmp_path / "encoded").iterdir()])
    assert kept[0] == kept[1]  # what was there is not written again


def test_words_may_need_more_bytes_than_a_header_of_safetensors_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [f"{number}{'я' * 2**20}" for number in range(50)]  # 105 MB
    monkeypatch.setattr("headscope.data.evidence.Vocabulary.words", long)
    for _ in range(2):
        words = encode(make_tokenizer(), DATASET, tmp_path, with_words=True).words
        assert words is not None
        assert words.words == long


def test_a_configured_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder(str(tmp_path / "deep" / "cache")) == tmp_path / "deep" / "cache"
    assert (tmp_path / "deep" / "cache").is_dir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder("~/mine") == tmp_path / "mine"
