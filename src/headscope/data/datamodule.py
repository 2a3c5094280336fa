"""Everything about the texts of a run: splits, tokenizer, ids and loaders."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import torch.distributed as dist
from datasets import Dataset
from lightning.pytorch import LightningDataModule
from tokenizers import Tokenizer

from headscope.data.batching import (
    BUCKET,
    BatchLoader,
    EncodedTexts,
    TextBatches,
    TokenBudgetSampler,
    encode_rows,
)
from headscope.data.columns import TextsOf, column_digests, numbers, texts_among
from headscope.data.corpus import Corpus, groups_of, load_corpus
from headscope.data.evidence import (
    MAX_NGRAMS,
    MAX_WEIGHTS,
    KnownNgrams,
    NgramTexts,
    Vocabulary,
    WordTexts,
    assign_folds,
    cached_ngrams,
    cached_ratios,
)
from headscope.data.features import Advance, StatesOf, hidden_states
from headscope.data.tokenizer import copied, trained_tokenizer
from headscope.data.units import beginning
from headscope.ground.arrays import cached_arrays
from headscope.ground.errors import ConfigError, warn
from headscope.ground.files import cache_folder, digest
from headscope.ground.mecab import write_tokenizer_json
from headscope.settings.config import LEAST_AUTO, ROLES, DataConfig, TokenizerConfig

RECIPE = 5  # raise it when files hold something else, so that no old one is read
TEXTS_AT_ONCE = 4_000  # encoded together
UNREAD = "share of tokens not read"  # among the facts
SAMPLE = 2_000  # training texts whose whole length is counted
Phase = Callable[[str], AbstractContextManager[Any]]


class TextDataModule(LightningDataModule):
    """Load, check, split, tokenize and batch the texts.

    Args:
        config: source and batches.
        tokenizer_config: what tokenizer to train, on the training split alone.
        seed: of the order of batches.
        tokenizer: one that is trained already, such as a run folder's.
        evidence: whether n-grams are found at each token; those that are known already, such as a
            run folder's, or True for those of the training split.
        phase: shows the name of what is being done while a block runs.
    """

    def __init__(
        self,
        config: DataConfig,
        tokenizer_config: TokenizerConfig,
        seed: int,
        tokenizer: Tokenizer | None = None,
        evidence: KnownNgrams | bool = False,
        phase: Phase = nullcontext,
    ) -> None:
        super().__init__()
        self.config = config
        self.seed = seed
        self.passes = 1  # over the training texts in an epoch
        self.shares: np.ndarray | None = None  # in which training texts are drawn
        self.cache = cache_folder(config.cache_dir, config.cache_gb)
        with phase("reading texts"):
            self.corpus: Corpus = load_corpus(config)
        train = TextsOf(self.corpus.splits["train"])
        with phase("training the tokenizer"):
            self.tokenizer = tokenizer or trained_tokenizer(
                train, tokenizer_config, config.most_tokens, self.cache
            )
        self.rest_counts = evidence is not False and config.text_pair_column is None
        self._settle_length()
        self.encoded: dict[str, EncodedTexts] = {}
        self.evidence = None if isinstance(evidence, bool) else evidence
        for role in ROLES:
            with phase(f"encoding {role} texts"):
                split = self.corpus.splits[role]
                texts = encode(self.tokenizer, split, self.cache, evidence is not False)
            if texts.words is not None:
                with phase(f"counting n-grams of {role} texts"):
                    texts = replace(texts, evidence=self._evidence_of(role, texts.words))
            self.encoded[role] = texts

    def _settle_length(self) -> None:
        """Replace max_length=auto by a number, for the tokenizer too."""
        if self.config.max_length != "auto":
            return
        most = (self.tokenizer.truncation or {}).get("max_length", self.config.most_tokens)
        usual = LEAST_AUTO if self.rest_counts else usual_length(self.whole_lengths)
        length = min(most, max(LEAST_AUTO, usual))
        self.tokenizer.enable_truncation(length)
        self.config = replace(self.config, max_length=length)

    @cached_property
    def whole_lengths(self) -> np.ndarray:
        """The tokens that training texts would have if none were cut; of a sample, or of all."""
        if self.rest_counts:
            words = self.encoded["train"].words
            assert words is not None, "of each token, where n-grams are read"
            return np.diff(words.starts)
        return whole_lengths(self.tokenizer, self.corpus.splits["train"])

    def _evidence_of(self, role: str, words: WordTexts) -> NgramTexts:
        """Return the known n-grams of a split; those of train, the first, become known."""
        most = min(MAX_NGRAMS, MAX_WEIGHTS // len(self.corpus.labels))
        groups = None
        if role == "train":
            groups = self.corpus.groups  # known after a cut
            groups = groups_of(self.corpus.rows[role]) if groups is None else groups
        of_ngrams = groups if self.config.group_column else None
        self.evidence, ngrams = cached_ngrams(words, self.evidence, most, self.cache, of_ngrams)
        if groups is None:
            return ngrams
        if len(self.evidence) == most < MAX_NGRAMS:
            number = f"the {most} most frequent n-grams for {len(self.corpus.labels)} classes"
            warn(f"model.evidence: {number}; more would need more than 1.5 GB")
        return replace(ngrams, folds=assign_folds(groups))

    def add_features(
        self,
        encoder: StatesOf,
        width: int,
        settings: str,
        device: torch.device,
        advance: Advance,
        roles: Sequence[str] = ROLES,
    ) -> None:
        """Add the hidden states of frozen layers to the texts; see `hidden_states`."""
        for role in roles:
            texts = self.encoded[role]
            states = hidden_states(encoder, width, settings, texts, self.cache, device, advance)
            self.encoded[role] = replace(texts, features=states)

    def drop_features(self) -> None:
        """Let the network compute its hidden states."""
        for role, texts in self.encoded.items():
            self.encoded[role] = replace(texts, features=None)

    def labels(self, role: str) -> np.ndarray:
        """Return the class of each text, [N], or, with multi_label, 1 at each class, [N, C]."""
        return numbers(self.corpus.splits[role], "label")

    def ratios(self, classes: np.ndarray) -> np.ndarray:
        """Return `log_count_ratios` of the training texts, whose classes are [N, C]."""
        evidence = self.encoded["train"].evidence
        if evidence is None or self.evidence is None:
            raise ValueError("no n-grams are known")
        return cached_ratios(evidence, classes, len(self.evidence), self.cache)

    def sampler(self, role: str) -> TokenBudgetSampler:
        """Return what makes batches of a split for this process; those of train are shuffled.

        Of a split with fewer batches than processes each takes all: Lightning would not validate
        without a batch, and every mean stays what it is.
        """
        lengths = self.encoded[role].lengths
        budget = self.config.tokens_per_batch
        place = (0, 1)  # rank and number of processes
        if dist.is_available() and dist.is_initialized():
            place = (dist.get_rank(), dist.get_world_size())
        seed = self.seed if role == "train" else None
        passes = self.passes if role == "train" else 1
        shares = self.shares if role == "train" else None
        sampler = TokenBudgetSampler(lengths, budget, seed, *place, passes, shares)
        num_batches = len(sampler.cuts) - 1
        if num_batches >= sampler.world_size:
            return sampler
        if role == "train":
            raise ConfigError(
                f"torchrun --nproc-per-node: expected at most {num_batches} processes in all, one "
                f"a batch, got {sampler.world_size}; lower it or data.tokens_per_batch"
            )
        return TokenBudgetSampler(lengths, budget)

    def batches(self, role: str, multiple: int = 1) -> TextBatches:
        """Return the texts of a split, with their labels."""
        return TextBatches(self.encoded[role], self.labels(role), multiple)

    def loader(self, role: str) -> BatchLoader:
        """Return all batches of a split, whether or not other processes train too."""
        sampler = TokenBudgetSampler(self.encoded[role].lengths, self.config.tokens_per_batch)
        return BatchLoader(self.batches(role), sampler)

    def train_dataloader(self) -> BatchLoader:
        """Return the training batches; Lightning calls this."""
        return BatchLoader(self.batches("train", BUCKET), self.sampler("train"))

    def val_dataloader(self) -> BatchLoader:
        """Return this process's share of the validation batches; Lightning calls this."""
        return BatchLoader(self.batches("validation", BUCKET), self.sampler("validation"))

    def facts(self) -> dict[str, object]:
        """Return what a reader of the results should know about the texts."""
        return {
            **self.corpus.facts,
            "classes": self.corpus.labels,
            "vocabulary": self.tokenizer.get_vocab_size(),
            **({} if self.evidence is None else {"n-grams": len(self.evidence)}),
            "mean tokens": round(float(self.encoded["train"].lengths.mean()), 1),
            "maximum tokens": self.config.most_tokens,
            "share of texts cut": {
                role: texts.num_cut / len(texts.lengths) for role, texts in self.encoded.items()
            },
            UNREAD: self.unread,
        }

    @property
    def unread(self) -> float:
        """The share of the training texts' tokens beyond max_length."""
        read = np.minimum(self.whole_lengths, self.config.most_tokens)
        return float(1 - read.sum() / self.whole_lengths.sum())


def whole_lengths(tokenizer: Tokenizer, dataset: Dataset) -> np.ndarray:
    """Return how many tokens each text of a sample would have if none were cut.

    The sample is every k-th text, 2,000 at most; of each the first 100,000 characters count.
    """
    whole = copied(tokenizer)
    whole.no_truncation()
    rows = range(0, len(dataset), -(-len(dataset) // SAMPLE))
    lengths = []
    for batch in dataset.select(rows).iter(TEXTS_AT_ONCE // 40):
        texts = zip(*(batch[name] for name in texts_among(dataset.column_names)), strict=True)
        cut = [tuple(beginning(text, 0) for text in parts) for parts in texts]
        lengths.append(encode_rows(whole, cut).lengths)
    return np.concatenate(lengths)


def usual_length(lengths: np.ndarray) -> int:
    """Return the number of tokens that nine in ten texts do not exceed, in steps of 64."""
    return 64 * int(np.ceil(np.quantile(lengths, 0.9) / 64))


def encode(
    tokenizer: Tokenizer, dataset: Dataset, cache: Path, with_words: bool = False
) -> EncodedTexts:
    """Return the token ids of a split from a file that is mapped into memory.

    It is written once, named by the texts and the tokenizer, whatever data set the texts came in.
    `with_words` adds the word that each token shows, for `headscope.data.evidence`.
    """
    columns = texts_among(dataset.column_names)
    settings = f"{RECIPE} {tokenizers.__version__} {write_tokenizer_json(tokenizer)} "
    settings += f"{tokenizer.encode_special_tokens} {with_words}"
    key = digest([settings, *columns, *column_digests(dataset, columns)]).hex()
    arrays = cached_arrays(
        cache / "encoded" / f"{key}.safetensors",
        lambda: _encoded_arrays(tokenizer, dataset, with_words),
    )
    facts = json.loads(arrays["facts"].tobytes())
    words = None
    if with_words:
        read = np.diff(arrays["starts"])
        words = WordTexts(facts["words"], arrays["words"], arrays["word_starts"], read)
    segments = arrays.get("segments")
    return EncodedTexts(arrays["ids"], arrays["starts"], segments, facts["num_cut"], words)


def _encoded_arrays(
    tokenizer: Tokenizer, dataset: Dataset, with_words: bool
) -> dict[str, np.ndarray]:
    """Encode a split some rows at a time."""
    vocabulary = Vocabulary() if with_words else None
    columns = texts_among(dataset.column_names)
    parts = defaultdict(list, starts=[np.zeros(1, np.int64)])
    num_cut = 0
    # One batch after the other: on two cores, a thread that encodes ahead slows the tokenizer's
    # own threads.
    for batch in dataset.iter(TEXTS_AT_ONCE):
        rows = list(zip(*(batch[column] for column in columns), strict=True))
        texts = encode_rows(tokenizer, rows, vocabulary)
        parts["ids"].append(texts.ids)
        parts["starts"].append(texts.lengths)
        if texts.segments is not None:
            parts["segments"].append(texts.segments)
        if texts.words is not None:
            parts["words"].append(texts.words.word_ids)
            parts["word_starts"].append(np.diff(texts.words.starts))
        num_cut += texts.num_cut
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    arrays["starts"] = np.cumsum(arrays["starts"])
    if vocabulary is not None:
        arrays["word_starts"] = np.cumsum([0, *arrays["word_starts"]])
    words = [] if vocabulary is None else vocabulary.words
    facts = json.dumps({"num_cut": num_cut, "words": words}, ensure_ascii=False)
    # An array of bytes: a header of safetensors has 100 MB at most.
    return {**arrays, "facts": np.frombuffer(bytearray(facts, "utf-8"), np.uint8)}
