"""Tiny checkpoints of each family with random weights, made and saved by `transformers`."""

from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY, WIDTH, HEADS, LAYERS, HIDDEN, PLACES = 53, 33, 3, 3, 37, 31
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": HIDDEN,
}
DISTILBERT_SIZES = {"vocab_size": VOCABULARY, "dim": WIDTH, "n_heads": HEADS, "n_layers": LAYERS, "hidden_dim": HIDDEN}
# RoBERTa's places begin at 2: its table has as many rows more, for texts of the same length.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {**SIZES, "max_position_embeddings": PLACES}),
    "distilbert": ("DistilBert", {**DISTILBERT_SIZES, "max_position_embeddings": PLACES}),
    "roberta": ("Roberta", {**SIZES, "max_position_embeddings": PLACES + 2, "type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta": (
        "XLMRoberta",
        {**SIZES, "max_position_embeddings": PLACES + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def peer(family: str, head: str = "Model", **options: Any) -> Any:
    """Return a model of `transformers` with random weights, in eval mode, whose biases and norms are random too."""
    name, sizes = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(sizes | options), attn_implementation="eager")
    model = getattr(transformers, f"{name}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(model: Any, folder: Path) -> Path:
    """Save a model as `transformers` does, and return the folder."""
    model.save_pretrained(folder)
    return folder
