"""export(config): a folder that `transformers` loads as BertForSequenceClassification, with the same logits.

    config.json            sizes, classes, dropout
    model.safetensors      weights, in float32
    tokenizer.json         the run's own
    tokenizer_config.json  what AutoTokenizer cannot read from that

`transformers` is not needed to write it, and nothing of it is a pickle.
"""

from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer

from headscope.errors import RunError
from headscope.files import replacing_folder, write_atomic
from headscope.heads.study import special_tokens
from headscope.model.export import POOLINGS, bert_config, bert_tensors
from headscope.options import ExportConfig
from headscope.run import load_encoder, load_run, save_json, save_tokenizer
from headscope.terminal import terminal

# What checkpoints of BERT's family call these; those around a text are asked of the tokenizer itself.
NAMES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def export(config: ExportConfig, console: Console | None = None) -> Path:
    """Write a finished run, which began with a checkpoint, as a folder for `transformers`; return the folder.

    Raises:
        RunError: if `transformers` has no such network, or the folder cannot be written; nothing is left of it then.
    """
    output, run = Path(config.output), load_run(Path(config.run))
    model, multi_label = run.config.model, run.config.data.multi_label
    architecture = load_encoder(run.folder, run.config)
    if architecture is None:
        raise RunError(
            f"run={run.folder}: was trained from scratch, as a network that transformers lacks (norms before each "
            f"branch, {model.positions} positions); takes a run with model.path=... and model.pooling=pooler"
        )
    if model.pooling not in POOLINGS:
        raise RunError(
            f"run={run.folder}: has model.pooling={model.pooling}, and BERT's head reads the first token alone; "
            "takes a run that was trained with model.pooling=pooler, or first"
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
        f"{len(run.labels)} classes, {architecture.num_layers} layers, written to {output}; in Python:",
        f"transformers.AutoModelForSequenceClassification.from_pretrained({str(output)!r})",
    ]
    if model.pooling != "pooler":
        lines.append(
            "note: model.pooling=first is written as a pooler that is linear to rounding in float32 and bfloat16; "
            "for float16, or to train on in transformers, train with model.pooling=pooler"
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

    Texts are cut where ours are, if asked (`truncation=True`). The letters "[SEP]" in a text stay letters, as they are
    here: split_special_tokens says so. A tokenizer without a token to pad with pads with the one that ends a text, as
    what stands at padding is hidden.

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
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json as it is, whatever the family
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
