"""A run as a folder that `transformers` loads, with the same logits.

It becomes a BertForSequenceClassification: config.json, model.safetensors in float32, the run's
tokenizer.json, and tokenizer_config.json. Writing it does not need `transformers`.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.config import ModelConfig
from headscope.errors import RunError
from headscope.files import replacing_folder
from headscope.heads.study import special_tokens
from headscope.model.classifier import TextClassifier
from headscope.model.pooling import Pooler
from headscope.model.pretrained import BERT_KEYS, SEGMENTS, Architecture, names_in_checkpoint
from headscope.run import Run
from headscope.run_folder import load_encoder, save_json, save_tokenizer

POOLINGS = ("pooler", "first")  # what BERT's head can compute
MIN_TYPES = 2  # rows of the token type table, at least: tokenizers use 0 and 1 for pairs
LINEAR = 2.0**-12  # tanh(y) is y to float32's rounding for |y| up to this: y^2 / 3 < 2^-25
# Names in checkpoints of BERT's family; those of [CLS] and [SEP] are read from the tokenizer.
SPECIAL_NAMES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def write_bert(run: Run, output: Path) -> list[str]:
    """Write a run that started from a checkpoint as a folder for `transformers`; return notes.

    Raises:
        RunError: if `transformers` has no such network.
    """
    model = run.config.model
    architecture = load_encoder(run.folder, run.config)
    if architecture is None or model.pooling not in POOLINGS:
        started = "model.path=..." if architecture else "training from scratch"
        raise RunError(
            f"run={run.folder}: expected a run with model.path=... and model.pooling=pooler or "
            f"first, got {started} and model.pooling={model.pooling}; transformers has no such "
            "network: export with format=onnx"
        )
    settings = tokenizer_settings(run.tokenizer, architecture)
    sizes = bert_config(model, architecture)
    sizes["pad_token_id"] = run.tokenizer.token_to_id(settings["pad_token"])
    sizes["id2label"] = {str(number): label for number, label in enumerate(run.labels)}
    sizes["label2id"] = {label: number for number, label in enumerate(run.labels)}
    multi_label = run.config.data.multi_label
    kind = "multi_label" if multi_label else "single_label"
    sizes["problem_type"] = f"{kind}_classification"
    tensors = bert_tensors(run.model, architecture)
    with replacing_folder(output.resolve()) as folder:
        save_json(folder / "config.json", sizes)
        save_tokenizer(folder, run.tokenizer)
        save_json(folder / "tokenizer_config.json", settings)
        # transformers requires this metadata.
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    lines = [
        f"{len(run.labels)} classes, {architecture.num_layers} layers, written to {output}; load:",
        f"transformers.AutoModelForSequenceClassification.from_pretrained({str(output)!r})",
    ]
    if model.pooling != "pooler":
        lines.append(
            "note: model.pooling=first is written as a pooler that is linear to rounding in "
            "float32 and bfloat16; for float16 or further training use model.pooling=pooler"
        )
    if multi_label:
        lines.append(
            "note: transformers has no thresholds; those of the classes are in "
            f"{run.folder / 'thresholds.json'}"
        )
    return lines


def tokenizer_settings(tokenizer: Tokenizer, architecture: Architecture) -> dict[str, Any]:
    """Return tokenizer_config.json.

    Texts are truncated as in headscope, if asked (`truncation=True`). split_special_tokens keeps
    the letters "[SEP]" in a text as letters. A tokenizer without a padding token pads with the one
    that ends a text, which is hidden anyway.
    """
    around = [tokenizer.id_to_token(number) for number in special_tokens(tokenizer).fixed]
    truncation = tokenizer.truncation or {"max_length": architecture.max_positions}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    if architecture.num_segments <= 1:
        inputs.remove("token_type_ids")
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json of any family
        "model_max_length": truncation["max_length"],
        "model_input_names": inputs,
        "padding_side": "right",
        "truncation_side": "right",
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "cls_token": around[0],
        "sep_token": around[-1],
        "pad_token": around[-1],
    }
    for role, names in SPECIAL_NAMES.items():
        for name in names:
            if tokenizer.token_to_id(name) is not None:
                settings[role] = name
    return settings


def bert_config(config: ModelConfig, architecture: Architecture) -> dict[str, Any]:
    """Return the sizes in config.json. Every family becomes BERT, whose layers are the same."""
    sizes = {theirs: getattr(architecture, ours) for ours, theirs in BERT_KEYS.items()}
    return sizes | {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "type_vocab_size": max(MIN_TYPES, architecture.num_segments),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.dropout,
    }


@torch.no_grad()
def bert_tensors(model: TextClassifier, architecture: Architecture) -> dict[str, Tensor]:
    """Return the tensors of a BertForSequenceClassification with the same logits.

    Positions are counted from 0. Where the encoder has one token type or none, all types are that
    one, or zero. With model.pooling=first, which BERT lacks, the logits are equal to rounding in
    float32 (`linear_pooler`).
    """
    weights = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {}
    for ours, theirs in names_in_checkpoint(replace(architecture, family="bert")).items():
        # [3D, D] -> query, key and value, [D, D] each; others are one tensor
        tensors |= dict(zip(theirs, weights[ours].chunk(len(theirs)), strict=True))
    if architecture.num_segments < MIN_TYPES:
        zeros = torch.zeros(1, architecture.d_model)
        tensors[SEGMENTS] = weights.get("embedding.segment.weight", zeros).expand(MIN_TYPES, -1)
    scale = 1.0
    if isinstance(model.pool, Pooler):
        pooler = model.pool.dense
    else:
        scale, pooler = linear_pooler(model.encoder.blocks[-1].feedforward_norm)  # type: ignore[arg-type]
    for kind in ("weight", "bias"):
        tensors[f"pooler.dense.{kind}"] = pooler.get_parameter(kind)
    tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    tensors["classifier.weight"] = model.head.weight / scale
    tensors["classifier.bias"] = model.head.bias
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def linear_pooler(norm: nn.LayerNorm) -> tuple[float, nn.Linear]:
    """Return e and W = e I, b = 0 so that tanh(W x + b) / e is x, a norm's output, in float32.

    tanh(e x) / e = x (1 - (e x)^2 / 3 + ...), and |x| is at most g sqrt(D) + |b| for the norm's
    gain g and bias b: e is so small that |e x| <= `LINEAR`. It is a power of two, so neither W nor
    the head divided by e is rounded.
    """
    D = len(norm.weight)
    largest = (norm.weight.abs() * math.sqrt(D) + norm.bias.abs()).max().item()
    scale = 2.0 ** math.floor(math.log2(LINEAR / max(largest, 1.0)))
    pooler = nn.Linear(D, D)
    pooler.weight.copy_(scale * torch.eye(D))
    pooler.bias.zero_()
    return scale, pooler
