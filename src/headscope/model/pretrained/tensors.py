"""The tensors of a checkpoint in safetensors, in one file or in several, by the names that they have today."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headscope.errors import ConfigError
from headscope.model.pretrained.names import TOKENS

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"  # says which of several files has which tensor
SHARDS = "model-*.safetensors"  # what `transformers` calls those
# The names that the first BERT had, in TensorFlow; its checkpoints keep them to this day.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class Tensors:
    """The tensors of open files, each read when it is asked for.

    Args:
        path: of the file that has them or, where there are several, of their index; for messages.
        files: the open file of each tensor, by the name under which it is stored.

    Attributes:
        stored: the name under which a tensor is stored, by today's name without the prefix that a model with a head
            has, such as "bert.".
    """

    def __init__(self, path: Path, files: Mapping[str, Any]) -> None:
        self.path, self._files = path, files
        prefix = next((name.removesuffix(TOKENS) for name in files if name.endswith(TOKENS)), "")
        self.stored = {_today(name.removeprefix(prefix)): name for name in files if name.startswith(prefix)}

    def joined(self, names: tuple[str, ...]) -> Tensor:
        """Return the tensors of these names, one below the other.

        Raises:
            ConfigError: if one is missing or holds no floating-point numbers.
        """
        return torch.cat([self._tensor(name) for name in names]) if len(names) > 1 else self._tensor(names[0])

    def _tensor(self, name: str) -> Tensor:
        if name not in self.stored:
            raise ConfigError(f"model.path: {self.path} has no tensor {name}")
        stored = self.stored[name]
        try:
            tensor: Tensor = self._files[stored].get_tensor(stored)
        except SafetensorError as error:
            raise ConfigError(f"model.path: {self.path}: {stored} cannot be read: {error}") from error
        if not tensor.is_floating_point():
            raise ConfigError(f"model.path: {self.path}: {name} holds {tensor.dtype}; takes floating-point weights")
        return tensor


def _today(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = re.sub(rf"{re.escape(old)}$", new, name)
    return name


@contextmanager
def open_tensors(folder: Path) -> Iterator[Tensors]:
    """Give the tensors of a checkpoint's folder, whose files are open within the block.

    Raises:
        ConfigError: if a file cannot be read; the message names it.
    """
    path = folder / WEIGHTS
    with ExitStack() as opened:
        if path.is_file():
            file = _open(path, opened)
            yield Tensors(path, dict.fromkeys(file.keys(), file))
        else:
            path = folder / INDEX
            named = _file_names(path)
            files = {name: _open(folder / name, opened) for name in sorted(set(named.values()))}
            yield Tensors(path, {tensor: files[name] for tensor, name in named.items()})


def _open(path: Path, opened: ExitStack) -> Any:
    try:
        return opened.enter_context(safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error


def _file_names(path: Path) -> dict[str, str]:
    """Return the name of the file of each tensor, as an index has it; none that leads out of its folder."""
    try:
        named = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
        if others := [
            name for name in named.values() if Path(name).name != name or Path(name).suffix != ".safetensors"
        ]:
            raise ValueError(f"it names {others[0]!r}, which is no .safetensors file beside it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    return named
