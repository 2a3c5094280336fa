"""What an encoder of the BERT family looks like, read from the config.json of its checkpoint."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headscope.errors import ConfigError

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# What DistilBERT calls otherwise than the rest of the family.
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
# Keys of config.json that would make another network than the one that is built here, and the value that would not.
PLAIN = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}


@dataclass(frozen=True)
class Architecture:
    """The sizes of an encoder and the few choices by which the families differ.

    Attributes:
        family: what config.json calls model_type.
        vocab_size: number of token ids.
        d_model: D, width of every token's vector.
        num_heads: attention heads in each layer.
        num_layers: encoder blocks.
        feedforward_size: width of the hidden layer of a block.
        max_positions: most tokens of a text.
        position_offset: rows of the checkpoint's table of places before that of the first token: RoBERTa counts on
            from the id of its padding token (Ott et al. 2019, fairseq, whose tables it took over).
        num_segments: rows of the table of token types; 0 where the family has none (Sanh et al. 2019, DistilBERT).
        activation: between the two matrices of a block.
        norm_epsilon: added to the variance in every norm.
    """

    family: str
    vocab_size: int
    d_model: int
    num_heads: int
    num_layers: int
    feedforward_size: int
    max_positions: int
    position_offset: int
    num_segments: int
    activation: str
    norm_epsilon: float


def read_architecture(path: Path) -> Architecture:
    """Read a checkpoint's config.json.

    Raises:
        ConfigError: if it cannot be read, or describes a network that is not supported; the message names what.
    """
    if not path.exists():
        found = sorted([*path.parent.glob("*/config.json"), *path.parent.glob("*/*/config.json")])
        hint = f"; there is one in {found[0].parent}" if found else ""
        raise ConfigError(
            f"model.path: {path.parent} has no config.json; takes the folder of a checkpoint, with config.json, "
            f"model.safetensors and tokenizer.json or vocab.txt{hint}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path: {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"model.path: {path} is not the config.json of a model")
    _refuse_others(content, path)
    try:
        return _architecture(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"model.path: {path} lacks a size, or it is no number: {error}") from error


def _refuse_others(content: dict[str, Any], path: Path) -> None:
    family = content.get("model_type")
    if family not in FAMILIES:
        raise ConfigError(f"model.path: {path} describes a model of type {family!r}; takes {', '.join(FAMILIES)}")
    for key, plain in PLAIN.items():
        if content.get(key, plain) not in (plain, None):
            raise ConfigError(f"model.path: {path} has {key}={content[key]!r}, which is not supported; takes {plain!r}")
    activation = content.get(_name(family, "hidden_act"), "gelu")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"model.path: {path} has the activation {activation!r}; takes {', '.join(ACTIVATIONS)}")


def _name(family: str, key: str) -> str:
    return DISTILBERT_NAMES.get(key, key) if family == "distilbert" else key


def _architecture(content: dict[str, Any]) -> Architecture:
    family = content["model_type"]

    def size(key: str) -> int:
        return int(content[_name(family, key)])

    # Where a checkpoint leaves these out, `transformers` takes padding_idx = 1 for RoBERTa and 2 types for BERT.
    offset = int(content.get("pad_token_id", 1)) + 1 if "roberta" in family else 0
    return Architecture(
        family=family,
        vocab_size=size("vocab_size"),
        d_model=size("hidden_size"),
        num_heads=size("num_attention_heads"),
        num_layers=size("num_hidden_layers"),
        feedforward_size=size("intermediate_size"),
        max_positions=size("max_position_embeddings") - offset,
        position_offset=offset,
        num_segments=0 if family == "distilbert" else int(content.get("type_vocab_size", 2)),
        activation=content.get(_name(family, "hidden_act"), "gelu"),
        norm_epsilon=1e-12 if family == "distilbert" else float(content.get("layer_norm_eps", 1e-12)),
    )


def architecture_json(architecture: Architecture) -> dict[str, Any]:
    """Return what a run folder's encoder.json holds, from which `load_architecture` makes the same again."""
    return asdict(architecture)


def load_architecture(path: Path) -> Architecture:
    """Read a run folder's encoder.json.

    Raises:
        ValueError: if it is not one.
    """
    try:
        return Architecture(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: does not describe an encoder: {error}") from error
