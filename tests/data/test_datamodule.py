"""The whole stage: a tokenizer that knows the training split alone, three splits of batches, and facts about them."""

import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from headscope.data.datamodule import TextDataModule
from headscope.ground.errors import UserWarningMessage
from headscope.settings.config import DataConfig, TokenizerConfig


def table(word: str, rows: int) -> Dataset:
    texts = [
        f"{word} {'abcdefghij'[row % 10]} {'and on ' * (row % 7)}{'x' * (row // 10)}"
        for row in range(rows)
    ]
    return Dataset.from_dict({"text": texts, "label": ["no", "yes"] * (rows // 2)})


def make(
    folder: Path, train: Dataset, seed: int = 0, evidence: bool = False, **settings: Any
) -> TextDataModule:
    splits = {"path": train, "validation_path": table("lion", 10), "test_path": table("bear", 10)}
    for key, split in splits.items():
        settings[key] = str(folder / f"{key}.parquet")
        split.to_parquet(settings[key])
    config = DataConfig(
        cache_dir=str(folder), **({"tokens_per_batch": 128, "max_length": 64} | settings)
    )
    tokenizer = TokenizerConfig("bpe", 400, min_frequency=1)
    return TextDataModule(config, tokenizer, seed, evidence=evidence)


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40))
    vocabulary = data.tokenizer.get_vocab()
    assert "wolf" in vocabulary
    assert not {"lion", "bear"} & set(vocabulary)


def test_batches_hold_ids_and_labels_of_their_rows_and_train_is_shuffled(tmp_path: Path) -> None:
    data = make(tmp_path, table("wolf", 40))
    loaders = {"train": data.train_dataloader(), "validation": data.val_dataloader()}
    for role, loader in {**loaders, "test": data.loader("test")}.items():
        split = data.corpus.splits[role]
        found = []
        for batch in loader:
            for ids, label, row in zip(batch.token_ids, batch.labels, batch.rows, strict=True):
                assert ids[ids > 0].tolist() == data.tokenizer.encode(split[int(row)]["text"]).ids
                assert label == split[int(row)]["label"] == data.labels(role)[row]
                found.append(len(ids))
        assert len(found) == len(split)
        assert (found == sorted(found)) == (role != "train")


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


@pytest.mark.parametrize(
    ("words", "long", "length"),
    [(300, 5, 320), (300, 4, 256), (9, 40, 256), (900, 40, 512)],
    ids=["nine in ten and a bit", "not a tenth is longer", "short", "longer than auto reads"],
)
def test_auto_is_the_length_of_nine_in_ten_texts_from_256_to_512(
    tmp_path: Path, words: int, long: int, length: int
) -> None:
    texts = [f"{row} " + "w " * (words if row < long else 5) for row in range(40)]
    train = Dataset.from_dict({"text": texts, "label": ["no", "yes"] * 20})
    data = make(tmp_path, train, max_length="auto", tokens_per_batch=1024)
    assert data.config.max_length == length
    assert data.tokenizer.truncation["max_length"] == length
    assert data.facts()["maximum tokens"] == length
    whole = data.whole_lengths
    assert data.unread == pytest.approx((whole - whole.clip(max=length)).sum() / whole.sum())
    assert (data.unread > 0) == (words > length)
    counted = TextDataModule(
        replace(data.config, max_length="auto"), TokenizerConfig("bpe", 400), 0, evidence=True
    )
    assert counted.config.max_length == 256  # the rest counts too


def kept(folder: Path, labels: list[str] | None = None, **settings: Any) -> tuple[Any, ...]:
    """Return all that is prepared, with n-grams and their ratios, from a cache in the folder."""
    train = table("wolf", 40)
    if labels is not None:
        train = train.remove_columns("label").add_column("label", labels)
    data = make(folder, train, evidence=True, **settings)
    arrays = []
    for role, texts in data.encoded.items():
        assert texts.words is not None
        assert texts.evidence is not None
        found = texts.evidence
        arrays += [texts.ids, texts.starts, texts.words.word_ids, found.folds, data.labels(role)]
        arrays += [found.context_ngrams, found.ngrams_of_words, found.word_starts]
        arrays += [data.corpus.learned(), texts.words.words]
    ratios = data.ratios(np.eye(2, dtype=bool)[data.labels("train")])
    assert data.evidence is not None
    return *arrays, data.evidence.keys, data.corpus.facts, ratios


MADE = (
    "headscope.data.splits.text_keys",
    "headscope.data.tokenizer.train_tokenizer",
    "headscope.data.datamodule.encode_rows",
    "headscope.data.evidence.known_ngrams",
    "headscope.data.evidence.log_count_ratios",
)


def test_a_second_run_of_the_same_texts_makes_nothing_again_and_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept(tmp_path)
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        function = pkgutil.resolve_name(name)
        return lambda *given, **named: calls.update([name]) or function(*given, **named)

    for name in MADE:
        monkeypatch.setattr(name, counted(name))
    assert_equal(kept(tmp_path), first)
    assert not calls
    other = kept(tmp_path, ["yes"] * 19 + ["no"] * 21)
    assert_equal(other[:4], first[:4])
    assert {*calls} == {MADE[-1]}
    assert (other[-1] != first[-1]).any()
    with monkeypatch.context() as patch:
        patch.setattr("headscope.data.datamodule.MAX_WEIGHTS", 40)
        with pytest.warns(UserWarningMessage, match="the 20 most frequent n-grams for 2 classes"):
            assert kept(tmp_path)[-1].shape == (11, 20, 2)
    files = [path for path in tmp_path.glob("*/*.safetensors") if path.parent.name != "rows"]
    assert {path.parent.name for path in files} == {"keys", "encoded", "ngrams"}
    for path in files:
        damaged = path.read_bytes()[:-1] + b"!"
        path.unlink()  # others have it mapped
        path.write_bytes(damaged)
    calls.clear()
    assert_equal(kept(tmp_path), first)
    assert {*calls} == {*MADE} - {MADE[1]}
    assert_equal(kept(tmp_path, cache_gb=0), first)


def assert_equal(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_equal(mine, theirs)
