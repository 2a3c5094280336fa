"""A trained network as `transformers` has it: the tensors and the config.json of BertForSequenceClassification."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headscope.config import ModelConfig
from headscope.model.classifier import TextClassifier
from headscope.model.pooling import Pooler
from headscope.model.pretrained import SEGMENTS, Architecture, names_in_checkpoint, names_of_pooler

POOLINGS = ("pooler", "first")  # what BERT's head can compute
TYPES = 2  # rows of the table of token types, at least: tokenizers of pairs speak of 0 and 1
LINEAR = 2.0**-12  # tanh(y) is y to float32's rounding for |y| up to this: y^2 / 3 < 2^-25


def bert_config(
    config: ModelConfig, architecture: Architecture, labels: list[str], padding_id: int | None,
    multi_label: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return config.json. Every family becomes BERT, whose layers are the same; dropout is that of the run.

    Args:
        config: of the run.
        architecture: of its encoder.
        labels: classes in the order of the logits.
        padding_id: what the tokenizer pads with.
        multi_label: whether a text has any number of labels, by a sigmoid each; `transformers` then does the same.
    """
    return {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "vocab_size": architecture.vocab_size,
        "hidden_size": architecture.d_model,
        "num_hidden_layers": architecture.num_layers,
        "num_attention_heads": architecture.num_heads,
        "intermediate_size": architecture.feedforward_size,
        "hidden_act": architecture.activation,
        "layer_norm_eps": architecture.norm_epsilon,
        "max_position_embeddings": architecture.max_positions,
        "type_vocab_size": max(TYPES, architecture.num_segments),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.dropout,
        "pad_token_id": padding_id,
        "problem_type": "multi_label_classification"
        if multi_label
        else "single_label_classification",
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


@torch.no_grad()
def bert_tensors(model: TextClassifier, architecture: Architecture) -> dict[str, Tensor]:
    """Return the tensors of a BertForSequenceClassification with the same logits, each with memory of its own.

    Places are counted from 0, whatever the checkpoint did. Where the encoder knows one token type or none, every type
    is that one, or zero, as it is in our forward pass.

    Args:
        model: with an encoder from a checkpoint and one of the poolings in `POOLINGS`. With "first", which BERT lacks,
            the logits are the same to rounding in float32; see `_linear_pooler`.
        architecture: of that encoder.
    """
    weights = dict(model.named_parameters())
    found: dict[str, Tensor] = {}
    for ours, theirs in names_in_checkpoint(replace(architecture, family="bert")):
        # [3D, D] -> query, key and value, [D, D] each; others are one tensor
        found |= dict(zip(theirs, weights[ours].chunk(len(theirs)), strict=True))
    if architecture.num_segments < TYPES:
        nothing = torch.zeros(1, architecture.d_model)
        found[SEGMENTS] = weights.get("embedding.segment.weight", nothing).expand(TYPES, -1)
    if isinstance(model.pool, Pooler):
        scale, pooler = 1.0, model.pool.dense
    else:
        scale, pooler = _linear_pooler(model.encoder.blocks[-1].feedforward_norm)  # type: ignore[arg-type]
    found |= {
        theirs: pooler.get_parameter(ours.rpartition(".")[2])
        for ours, (theirs,) in names_of_pooler()
    }
    head = {"classifier.weight": model.head.weight / scale, "classifier.bias": model.head.bias}
    named = {f"bert.{name}": tensor for name, tensor in found.items()} | head
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in named.items()
    }


def _linear_pooler(norm: nn.LayerNorm) -> tuple[float, nn.Linear]:
    """Return e and W = e I, b = 0, with which tanh(W x + b) / e is x to rounding in float32; x is what a norm gives.

    tanh(e x) / e = x (1 - (e x)^2 / 3 + ...), and |x| is at most g sqrt(D) + |b| for the norm's own g and b: e is so
    small that |e x| <= `LINEAR`. It is a power of two, so neither W nor the head divided by e is rounded.
    """
    largest = (norm.weight.abs() * math.sqrt(len(norm.weight)) + norm.bias.abs()).max().item()
    scale = 2.0 ** math.floor(math.log2(LINEAR / max(largest, 1.0)))
    pooler = nn.Linear(len(norm.weight), len(norm.weight))
    pooler.weight.copy_(scale * torch.eye(len(norm.weight)))
    pooler.bias.zero_()
    return scale, pooler
