"""A checkpoint on this machine or on the Hub, and its weights put into our encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from headscope.errors import ConfigError
from headscope.model.pretrained.architecture import Architecture, read_architecture
from headscope.model.pretrained.names import POSITIONS, block_folder, names_in_checkpoint, names_of_pooler
from headscope.model.pretrained.tensors import INDEX, SHARDS, WEIGHTS, Tensors, open_tensors

FILES = (  # all that is ever read
    *("config.json", WEIGHTS, INDEX, SHARDS),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
)


@dataclass(frozen=True)
class Checkpoint:
    """A folder with config.json and weights in safetensors, in one file or in several, and what the former says."""

    folder: Path
    architecture: Architecture


def find_checkpoint(path: str, revision: str | None = None) -> Checkpoint:
    """Return the checkpoint in a folder or, if there is no such folder, of that id on the Hub.

    Args:
        path: folder or Hub id.
        revision: branch, tag or commit on the Hub; None for its main branch.

    Raises:
        ConfigError: if it cannot be had, its network is not supported, or its weights are pickled alone; or if a
            revision is asked of a folder.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        folder = _downloaded(path, revision)
    elif revision is not None:
        raise ConfigError(
            f"model.revision: got {revision!r}, but model.path={path} is a folder, which has no revisions; leave it out"
        )
    architecture = read_architecture(folder / "config.json")
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        raise ConfigError(_without_weights(path, folder))
    return Checkpoint(folder, architecture)


def _downloaded(path: str, revision: str | None) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(path, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # a dozen classes, of HTTP, of the cache and of the Hub; each means it cannot be had
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        asked = f"model.path={path}" + (f" model.revision={revision}" if revision else "")
        raise ConfigError(f"{asked}: there is no such folder, and it cannot be had from the Hub: {reason}") from error


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

    So is a `Pooler`, where the checkpoint has its weights. What else the model has, such as its head, stays as it is;
    what else the checkpoint has is passed over, but not blocks, or parts of blocks, that the model lacks.

    Raises:
        ConfigError: if a file or a tensor is missing, of another shape or no floating-point one, or a block has more of
            them.
    """
    with open_tensors(checkpoint.folder) as tensors:
        _fill(model, tensors, checkpoint.architecture)


@torch.no_grad()
def _fill(model: nn.Module, tensors: Tensors, architecture: Architecture) -> None:
    wanted = dict(names_in_checkpoint(architecture))
    folder, known = (
        block_folder(architecture.family == "distilbert"),
        {name for names in wanted.values() for name in names},
    )
    if others := sorted(name for name in tensors.stored if name.startswith(folder) and name not in known):
        raise ConfigError(f"model.path: {tensors.path} has {others[0]}, which its config.json does not speak of")
    parameters: Mapping[str, Tensor] = dict(model.named_parameters())
    pooler = dict(names_of_pooler())
    if pooler.keys() <= parameters.keys() and any(name in tensors.stored for (name,) in pooler.values()):
        wanted |= pooler
    for ours, theirs in wanted.items():
        tensor = tensors.joined(theirs)
        if theirs == (POSITIONS,):
            tensor = tensor[architecture.position_offset :]
        if tensor.shape != parameters[ours].shape:
            shapes = f"{list(tensor.shape)}, not {list(parameters[ours].shape)} as its config.json says"
            raise ConfigError(f"model.path: {tensors.path}: {theirs[0]} is {shapes}")
        parameters[ours].copy_(tensor)
