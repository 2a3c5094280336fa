"""A checkpoint on this machine or on the Hub, and its weights put into our encoder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from headscope.errors import ConfigError
from headscope.model.pretrained.architecture import Architecture, read_architecture
from headscope.model.pretrained.names import POSITIONS, TOKENS, block_folder, names_in_checkpoint

WEIGHTS = "model.safetensors"
FILES = ("config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json", "vocab.txt")  # all that is ever read
# The names that the first BERT had, in TensorFlow; its checkpoints keep them to this day.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class Checkpoint:
    """A folder with config.json and model.safetensors, and what the former says."""

    folder: Path
    architecture: Architecture


def find_checkpoint(path: str) -> Checkpoint:
    """Return the checkpoint in a folder or, if there is no such folder, of that id on the Hub.

    Raises:
        ConfigError: if it cannot be had, its network is not supported, or its weights are pickled alone.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        folder = _downloaded(path)
    architecture = read_architecture(folder / "config.json")
    if not (folder / WEIGHTS).is_file():
        raise ConfigError(_without_weights(path, folder))
    return Checkpoint(folder, architecture)


def _downloaded(path: str) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(path, allow_patterns=list(FILES)))
    except Exception as error:  # a dozen classes, of HTTP, of the cache and of the Hub; each means it cannot be had
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise ConfigError(
            f"model.path={path}: there is no such folder, and it cannot be had from the Hub: {reason}"
        ) from error


def _without_weights(path: str, folder: Path) -> str:
    pickled = sorted(file.name for file in folder.glob("*.bin"))
    found = f"only {', '.join(pickled)}" if pickled else "perhaps pickled ones alone"
    return (
        f"model.path={path}: has no {WEIGHTS} ({found}). Pickled weights are not read, since reading them can run any "
        'code. Where you trust them, convert them once: python -c "from transformers import AutoModel, AutoTokenizer; '
        f"[kind.from_pretrained('{path}').save_pretrained('converted') for kind in (AutoModel, AutoTokenizer)]\", "
        "then model.path=converted"
    )


def load_weights(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Fill `embedding` and `encoder` of a model with a checkpoint's weights, in the model's own type.

    What else the model has, such as its head, stays as it is; what else the checkpoint has, such as BERT's pooler, is
    passed over, but not blocks, or parts of blocks, that the model lacks.

    Raises:
        ConfigError: if a tensor is missing, of another shape or no floating-point one, or a block has more of them.
    """
    path = checkpoint.folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            _fill(model, _Tensors(file, path), checkpoint.architecture)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error


class _Tensors:
    """The tensors of a file by their names without prefix, as they are called today."""

    def __init__(self, file: Any, path: Path) -> None:
        self.file, self.path = file, path
        stored = list(file.keys())
        prefix = next((name.removesuffix(TOKENS) for name in stored if name.endswith(TOKENS)), "")
        self.stored = {_today(name.removeprefix(prefix)): name for name in stored if name.startswith(prefix)}

    def joined(self, names: tuple[str, ...]) -> Tensor:
        """Return the tensors of these names, one below the other."""
        return torch.cat([self._tensor(name) for name in names]) if len(names) > 1 else self._tensor(names[0])

    def _tensor(self, name: str) -> Tensor:
        if name not in self.stored:
            raise ConfigError(f"model.path: {self.path} has no tensor {name}")
        tensor: Tensor = self.file.get_tensor(self.stored[name])
        if not tensor.is_floating_point():
            raise ConfigError(f"model.path: {self.path}: {name} holds {tensor.dtype}; takes floating-point weights")
        return tensor


def _today(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = re.sub(rf"{re.escape(old)}$", new, name)
    return name


@torch.no_grad()
def _fill(model: nn.Module, tensors: _Tensors, architecture: Architecture) -> None:
    wanted = dict(names_in_checkpoint(architecture))
    folder, known = (
        block_folder(architecture.family == "distilbert"),
        {name for names in wanted.values() for name in names},
    )
    if others := sorted(name for name in tensors.stored if name.startswith(folder) and name not in known):
        raise ConfigError(f"model.path: {tensors.path} has {others[0]}, which its config.json does not speak of")
    parameters: Mapping[str, Tensor] = dict(model.named_parameters())
    for ours, theirs in wanted.items():
        tensor = tensors.joined(theirs)
        if theirs == (POSITIONS,):
            tensor = tensor[architecture.position_offset :]
        if tensor.shape != parameters[ours].shape:
            shapes = f"{list(tensor.shape)}, not {list(parameters[ours].shape)} as its config.json says"
            raise ConfigError(f"model.path: {tensors.path}: {theirs[0]} is {shapes}")
        parameters[ours].copy_(tensor)
