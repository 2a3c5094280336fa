"""The settings of texts, tokenizer and batches."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headscope.extension import OrImportPath, is_import_path, missing_package
from headscope.settings import setting

SEGMENTERS = ("sudachi",)
TOKENIZERS = ("words", "bpe", "wordpiece", "unigram")
FILE_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")
EMBEDDED = "licenses"


def is_local(path: str) -> bool:
    """Tell a path on this machine from a Hub id (`name` or `organisation/name`)."""
    if is_import_path(path, ":"):
        return False
    looks_local = path.startswith((".", "/", "~")) or path.endswith(FILE_ENDINGS)
    return looks_local or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) or Path(path).exists()


@dataclass
class DataConfig:
    """Where texts and labels come from, and how they are cut into splits and batches."""

    path: str = setting(
        EMBEDDED,
        "'licenses' (embedded), a Hub id, a folder, a csv, tsv, json, jsonl, parquet or txt file, or the import path "
        "of a loader, my_package:load",
    )
    name: str | None = setting(None, "configuration of a Hub data set that has several")
    revision: str | None = setting(None, "branch, tag or commit of a Hub data set")
    validation_path: str | None = setting(None, "a separate file for validation, if path is a file")
    test_path: str | None = setting(None, "a separate file for the test, if path is a file")
    text_column: str = setting("text", "column with the text")
    text_pair_column: str | None = setting(None, "column with the second text of a pair")
    label_column: str = setting("label", "column with the label: integers, strings or a ClassLabel")
    multi_label: bool = setting(
        False, "a text has any number of labels: the column holds lists of them, or strings that are split"
    )
    label_separator: str = setting(
        ";", "with multi_label: what stands between the labels of a string; an empty one has no label"
    )
    train_split: str = setting("train", "split to train on")
    validation_split: str | None = setting("validation", "split to choose by; cut from train where the source has none")
    test_split: str | None = setting("test", "split to report on; cut from train where the source has none")
    validation_share: float = setting(0.1, "share of train that is cut off for validation", above=0, below=0.5)
    test_share: float = setting(0.1, "share of train that is cut off for the test", above=0, below=0.5)
    split_seed: int = setting(0, "seed of those cuts; apart from `seed`, so that runs can be compared", minimum=0)
    limit: int | None = setting(None, "keep at most so many texts of each split, drawn by split_seed", minimum=1)
    drop_empty: bool = setting(False, "drop rows whose text is empty or null, instead of refusing them")
    max_length: int = setting(256, "longest text in tokens; the rest is cut off", minimum=4)
    tokens_per_batch: int = setting(2048, "positions of a batch, padding included", minimum=1)
    cache_dir: str | None = setting(None, "where tokenizers and token ids are kept; the user's cache folder by default")

    def file_of(self, split: str) -> str:
        """Return what a split is read from, to name it in a message: its own file, or the path of the whole source."""
        files = {
            self.validation_split or "validation": self.validation_path,
            self.test_split or "test": self.test_path,
        }
        return files.get(split) or self.path

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        if not self.path:
            yield "path", "is missing; give it as data.path=<file, folder or Hub id>"
        if is_import_path(self.path, ":"):
            yield from missing_package("path", self.path)
        for key in ("path", "validation_path", "test_path"):
            path = getattr(self, key)
            if path and path != EMBEDDED and is_local(path) and not Path(path).expanduser().exists():
                yield (
                    key,
                    f"got {path!r}, takes a file or folder that exists (or a Hub id such as fancyzhx/ag_news)",
                )
            elif key != "path" and path is not None and not Path(self.path).expanduser().is_file():
                yield key, f"got {path!r}, takes a file only if data.path is a file too, and that is {self.path!r}"
        if self.tokens_per_batch < self.max_length:
            yield (
                "tokens_per_batch",
                f"got {self.tokens_per_batch}, takes at least data.max_length={self.max_length}: one text must fit",
            )
        named = [split for split in (self.train_split, self.validation_split, self.test_split) if split]
        if len(set(named)) < len(named):
            yield "test_split", f"train, validation and test must be three splits, got {', '.join(named)}"
        if not self.label_separator:
            yield "label_separator", "is empty; takes what stands between two labels, such as ';'"
        yield from self._repeated_columns()

    def _repeated_columns(self) -> Iterator[tuple[str, str]]:
        taken: dict[str | None, str] = {}
        for key in ("text_column", "text_pair_column", "label_column"):
            column = getattr(self, key)
            if column is not None and column in taken:
                yield key, f"got {column!r}, which is data.{taken[column]} too; takes a column of its own"
            taken.setdefault(column, key)


@dataclass
class TokenizerConfig:
    """A tokenizer trained on the training split alone."""

    kind: str = setting(
        "words", "whole words, byte-level BPE, WordPiece, Unigram, or an import path", choices=OrImportPath(TOKENIZERS)
    )
    vocab_size: int = setting(8000, "words or pieces with a vector of their own, special tokens included", minimum=300)
    min_frequency: int = setting(2, "how often a word or piece must occur to be kept (not Unigram)", minimum=1)
    lowercase: bool = setting(True, "lower-case texts after NFKC")
    segmenter: str | None = setting(
        None,
        "what finds words in Japanese, with kind=words: sudachi (pip install 'headscope[japanese]'); null: characters",
        choices=SEGMENTERS,
    )

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield what no single key can say."""
        yield from missing_package("kind", self.kind)
        if self.segmenter is not None and self.kind != "words":
            yield "segmenter", f"got {self.segmenter!r}, takes null with tokenizer.kind={self.kind}: it finds words"
