"""The whole stage: a tokenizer that knows the training split alone, three splits of batches, and facts about them."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from headscope.data.columns import TextsOf
from headscope.data.corpus import load_corpus
from headscope.data.datamodule import TextDataModule
from headscope.data.tokenizer import trained_tokenizer
from headscope.ground.errors import UserWarningMessage
from headscope.settings.config import DataConfig, TokenizerConfig


def table(word: str, rows: int, **columns: list[str]) -> Dataset:
    texts = [
        f"{word} {'abcdefghij'[row % 10]} {'and on ' * (row % 7)}{'x' * (row // 10)}"
        for row in range(rows)
    ]
    return Dataset.from_dict({"text": texts, "label": ["no", "yes"] * (rows // 2), **columns})


def make(folder: Path, train: Dataset, seed: int = 0, **settings: Any) -> TextDataModule:
    splits = {"path": train, "validation_path": table("lion", 10), "test_path": table("bear", 10)}
    if "answer" in train.column_names:
        splits = {
            key: split.add_column("answer", ["why"] * len(split)) if key != "path" else split
            for key, split in splits.items()
        }
    for key, split in splits.items():
        settings[key] = str(folder / f"{key}.parquet")
        split.to_parquet(settings[key])
    config = DataConfig(
        cache_dir=str(folder), tokens_per_batch=128, **({"max_length": 64} | settings)
    )
    return TextDataModule(config, TokenizerConfig("bpe", 400, min_frequency=1), seed)


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40))
    vocabulary = data.tokenizer.get_vocab()
    assert "wolf" in vocabulary
    assert not {"lion", "bear"} & set(vocabulary)
    assert data.encoded["test"].lengths.mean() > data.encoded["train"].lengths[:10].mean()


def test_batches_hold_ids_and_labels_of_their_rows(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40))
    for role, size in (("train", 40), ("validation", 10), ("test", 10)):
        split, rows = data.corpus.splits[role], []
        for batch in data.loader(role):
            for place, row in enumerate(batch.rows.tolist()):
                ids = data.tokenizer.encode(split[row]["text"]).ids
                assert batch.token_ids[place].tolist() == ids + [0] * (
                    batch.token_ids.shape[1] - len(ids)
                )
                assert batch.labels[place] == split[row]["label"] == data.labels(role)[row]
                rows.append(row)
        assert sorted(rows) == list(range(size))


def test_train_alone_is_shuffled_by_the_seed(tmp_path: Path) -> None:
    orders = {
        role: [list(make(tmp_path, table("wolf", 40), seed).sampler(role)) for seed in (0, 1)]
        for role in ("train", "validation")
    }
    assert orders["train"][0] != orders["train"][1]
    assert orders["validation"][0] == orders["validation"][1]


def test_pairs_have_two_segments(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40, answer=["unicorn"] * 40), text_pair_column="answer")
    assert "unicorn" in data.tokenizer.get_vocab()  # both texts train the tokenizer
    batch = next(iter(data.val_dataloader()))
    assert batch.segment_ids is not None
    separators = batch.token_ids == data.tokenizer.token_to_id("[SEP]")
    after_the_first = separators.cumsum(1) - separators.long()
    assert torch.equal(batch.segment_ids[batch.token_ids > 0], after_the_first[batch.token_ids > 0])


def test_the_facts_are_what_can_be_counted(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40), max_length=12)
    full = make(tmp_path, table("wolf", 40), max_length=64)
    long = {role: full.encoded[role].lengths > 12 for role in ("train", "validation", "test")}
    facts = data.facts()
    assert facts["sizes"] == {"train": 40, "validation": 10, "test": 10}
    assert facts["classes"] == ["no", "yes"]
    assert facts["vocabulary"] == data.tokenizer.get_vocab_size()
    assert facts["mean tokens"] == pytest.approx(data.encoded["train"].lengths.mean(), abs=0.05)
    assert facts["share of texts cut"] == {role: cut.mean() for role, cut in long.items()}
    assert 0 < long["train"].mean() < 1
    masks = [batch.key_padding_mask for batch in data.train_dataloader()]
    positions = sum(batch.token_ids.numel() for batch in data.train_dataloader())
    assert facts["share of padding"] == pytest.approx(
        sum(int(mask.sum()) for mask in masks if mask is not None) / positions
    )


@pytest.mark.slow
def test_no_split_is_ever_whole_in_memory_as_python_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.data.columns.ROWS_AT_ONCE", 50)
    rows = 4000
    texts = [
        f"{word(row)} {word(row * 7)} and some more words that every text has {'x' * 400}"
        for row in range(rows)
    ]
    train = Dataset.from_dict({"text": texts, "label": ["no", "yes"] * (rows // 2)})
    small = train.select(range(100))

    def read(train: Dataset, name: str) -> None:
        splits = {"path": train, "validation_path": small, "test_path": small}
        paths = {key: str(tmp_path / f"{name}-{key}.parquet") for key in splits}
        for key, split in splits.items():
            split.to_parquet(paths[key])
        with pytest.warns(UserWarningMessage):
            corpus = load_corpus(DataConfig(cache_dir=str(tmp_path), **paths))
        trained_tokenizer(
            TextsOf(corpus.splits["train"], ["text"]), TokenizerConfig(), 64, tmp_path
        )

    read(small, "small")  # imports what is imported late
    tracemalloc.start()
    read(train, "large")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < sum(map(len, texts)) / 2


def word(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(3))
