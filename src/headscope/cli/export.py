"""export(config): write a run as a folder that `transformers` loads, with the same logits.

It becomes a BertForSequenceClassification:

    config.json            sizes, classes, dropout
    model.safetensors      weights, in float32
    tokenizer.json         the run's own
    tokenizer_config.json  what AutoTokenizer cannot read from that

`transformers` is not needed to write it, and nothing of it is a pickle.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from headscope.config import ModelConfig
from headscope.errors import RunError
from headscope.files import replacing_folder, write_atomic
from headscope.heads.study import special_tokens
from headscope.model.classifier import TextClassifier
from headscope.model.pooling import Pooler
from headscope.model.pretrained import SEGMENTS, Architecture, names_in_checkpoint, names_of_pooler
from headscope.options import ExportConfig
from headscope.run import load_encoder, load_run, save_json, save_tokenizer
from headscope.terminal import terminal

POOLINGS = ("pooler", "first")  # what BERT's head can compute
MIN_TYPES = 2  # rows of the table of token types, at least: tokenizers of pairs speak of 0 and 1
LINEAR = 2.0**-12  # tanh(y) is y to float32's rounding for |y| up to this: y^2 / 3 < 2^-25
# Names in checkpoints of BERT's family; those of [CLS] and [SEP] are asked of the tokenizer.
NAMES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run that began with a checkpoint as a folder for `transformers`.

    Raises:
        RunError: if `transformers` has no such network, or the folder cannot be written; it is
            written whole or not at all.
    """
    output = Path(config.output)
    run = load_run(Path(config.run))
    model = run.config.model
    multi_label = run.config.data.multi_label
    architecture = load_encoder(run.folder, run.config)
    if architecture is None:
        raise RunError(
            f"run={run.folder}: expected a run with model.path=... and model.pooling=pooler, got one "
            "trained from scratch, a network that transformers lacks (norms before each branch, "
            f"{model.positions} positions)"
        )
    if model.pooling not in POOLINGS:
        raise RunError(
            f"run={run.folder}: expected a run trained with model.pooling=pooler or first, got "
            f"{model.pooling}; BERT's head reads the first token only"
        )
    settings = tokenizer_settings(
        run.tokenizer, architecture.max_positions, with_types=architecture.num_segments > 1
    )
    padding_id = run.tokenizer.token_to_id(settings["pad_token"])
    tensors = bert_tensors(run.model, architecture)
    try:
        with replacing_folder(output.resolve()) as folder:
            save_json(
                folder / "config.json",
                bert_config(model, architecture, run.labels, padding_id, multi_label),
            )
            save_tokenizer(folder, run.tokenizer)
            save_json(folder / "tokenizer_config.json", settings)
            # Without this entry `transformers` refuses the file: it might be another library's.
            write_atomic(
                folder / "model.safetensors",
                lambda path: save_file(tensors, path, {"format": "pt"}),
            )
    except (OSError, SafetensorError) as error:
        raise RunError(f"output={output}: cannot be written: {error}") from error
    lines = [
        f"{len(run.labels)} classes, {architecture.num_layers} layers, written to {output}; load by:",
        f"transformers.AutoModelForSequenceClassification.from_pretrained({str(output)!r})",
    ]
    if model.pooling != "pooler":
        lines.append(
            "note: model.pooling=first is written as a pooler that is linear to rounding in float32 "
            "and bfloat16; for float16, or to train on in transformers, use model.pooling=pooler"
        )
    if multi_label:
        kept = run.folder / "thresholds.json"
        lines.append(
            f"note: the classes' thresholds stay in {kept}; what transformers loads has none"
        )
    terminal(console).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return output


def tokenizer_settings(
    tokenizer: Tokenizer, max_positions: int, with_types: bool
) -> dict[str, Any]:
    """Return tokenizer_config.json.

    Texts are cut where ours are, if asked (`truncation=True`). The letters "[SEP]" in a text stay
    letters, as they are
    here: split_special_tokens says so. A tokenizer without a token to pad with pads with the one
        that ends a text, as what stands at padding is hidden.

    Args:
        tokenizer: of the run.
        max_positions: most tokens that the network takes, where the tokenizer does not cut shorter.
        with_types: whether the network tells the texts of a pair apart by their token types.
    """
    around = [tokenizer.id_to_token(number) for number in special_tokens(tokenizer).fixed]
    known = {
        role: next((name for name in names if tokenizer.token_to_id(name) is not None), None)
        for role, names in NAMES.items()
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json of any family
        "model_max_length": (tokenizer.truncation or {"max_length": max_positions})["max_length"],
        "model_input_names": [
            "input_ids",
            *(["token_type_ids"] if with_types else []),
            "attention_mask",
        ],
        "padding_side": "right",
        "truncation_side": "right",
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        **{"cls_token": around[0], "sep_token": around[-1], "pad_token": around[-1]},
        **{role: name for role, name in known.items() if name is not None},
    }


def bert_config(
    config: ModelConfig, architecture: Architecture, labels: list[str], padding_id: int | None,
    multi_label: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return config.json. Every family becomes BERT, whose layers are the same.

    Args:
        config: of the run.
        architecture: of its encoder.
        labels: classes in the order of the logits.
        padding_id: what the tokenizer pads with.
        multi_label: whether a text has any number of labels, by a sigmoid each; `transformers` then
            does the same.
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
        "type_vocab_size": max(MIN_TYPES, architecture.num_segments),
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
    """Return the tensors of a BertForSequenceClassification with the same logits.

    Places are counted from 0, whatever the checkpoint did. Where the encoder knows one token type
    or none, every type is that one, or zero, as it is in our forward pass.

    Args:
        model: with an encoder from a checkpoint and one of the poolings in `POOLINGS`. With
            "first", which BERT lacks, the logits are the same to rounding in float32; see
            `_linear_pooler`.
        architecture: of that encoder.
    """
    weights = dict(model.named_parameters())
    found: dict[str, Tensor] = {}
    for ours, theirs in names_in_checkpoint(replace(architecture, family="bert")):
        # [3D, D] -> query, key and value, [D, D] each; others are one tensor
        found |= dict(zip(theirs, weights[ours].chunk(len(theirs)), strict=True))
    if architecture.num_segments < MIN_TYPES:
        nothing = torch.zeros(1, architecture.d_model)
        found[SEGMENTS] = weights.get("embedding.segment.weight", nothing).expand(MIN_TYPES, -1)
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
    """Return e and W = e I, b = 0 so that tanh(W x + b) / e is x, a norm's output, in float32.

    tanh(e x) / e = x (1 - (e x)^2 / 3 + ...), and |x| is at most g sqrt(D) + |b| for the norm's own
    g and b: e is so small that |e x| <= `LINEAR`. It is a power of two, so neither W nor the head
    divided by e is rounded.
    """
    largest = (norm.weight.abs() * math.sqrt(len(norm.weight)) + norm.bias.abs()).max().item()
    scale = 2.0 ** math.floor(math.log2(LINEAR / max(largest, 1.0)))
    pooler = nn.Linear(len(norm.weight), len(norm.weight))
    pooler.weight.copy_(scale * torch.eye(len(norm.weight)))
    pooler.bias.zero_()
    return scale, pooler
