"""What can be done with each sequence classifier of transformers: a table.

    python benchmarks/families.py rows.jsonl    # all; or the model types to look at behind it

A small random model of each is looked at (`headscope.abilities`), shown, and trained for a step.
A minute, or 20 minutes on a busy CPU. Rows that the file has already are kept. Prints a table.
"""

import inspect
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN,
)

import headscope
from headscope.foreign.abilities import abilities
from headscope.foreign.pretrained import PretrainedClassifier
from headscope.ground.errors import first_line

TEXT = "the film was not good"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES: dict[int, str] = {
    48: "vocab_size",
    32: "hidden_size d_model n_embd dim emb_dim embedding_size word_embed_proj_dim "
    "kv_lora_rank q_lora_rank",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers "
    "num_decoder_layers num_experts_per_tok num_key_value_heads num_kv_heads",
    4: "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads "
    "num_heads num_local_experts num_experts n_routed_experts",
    64: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim d_inner n_inner "
    "max_position_embeddings n_positions moe_intermediate_size",
    8: "head_dim d_kv v_head_dim qk_nope_head_dim qk_rope_head_dim d_head",
}
IDS = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3}
IDS |= {"sep_token_id": 3, "decoder_start_token_id": 2}
ROTARY = {"qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "head_dim": 4}
ROTARY |= {"num_key_value_heads": 4}
LAYER_TYPES = ["linear_attention", "full_attention"]
MOST_WEIGHTS = 10**7
NO_HEADS = "does not use transformers' AttentionInterface"  # as `abilities` says it
OWN: dict[str, dict[str, Any]] = {  # of some families
    **dict.fromkeys(("axk1", "axk2", "deepseek_v2", "deepseek_v3", "minicpm3"), ROTARY),
    **{key: {"layer_types": LAYER_TYPES} for key in ("qwen3_5_text", "qwen3_next")},
    "gptj": {"rotary_dim": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "visual_embed": False},
    "lilt": {"hidden_size": 48},
    "luke": {"entity_vocab_size": 16},
    "mistral4": ROTARY,
    "roc_bert": {"shape_vocab_size": 48, "pronunciation_vocab_size": 48},
    "xmod": {"default_language": "en_XX"},
    "longformer": {"attention_window": 4},
    "mpt": {"d_model": 32, "max_seq_len": 64},
    "reformer": {
        "attention_head_size": 8,
        "axial_pos_shape": (8, 8),
        "axial_pos_embds_dim": (16, 16),
        "num_buckets": 4,
        "is_decoder": False,
    },
    "esmc": {"num_key_value_heads": 4},
}


def make_tokenizer() -> Any:
    """Return a tokenizer of whole words, with [CLS] and [SEP] around a text."""
    words = [*SPECIAL, *TEXT.split(), *(f"word{number}" for number in range(30))]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True
        )
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def make_model(kind: str) -> Any:
    """Return a small classifier of a family with random weights."""
    made = transformers.AutoConfig.for_model(kind)
    if hasattr(made, "vision_config"):
        raise ValueError("reads images too")
    sizes = {name: size for size, names in SIZES.items() for name in names.split()}
    known = (
        {*inspect.signature(type(made).__init__).parameters}
        | {*vars(made)}
        | {*type(made).attribute_map}
    )
    options = {name: value for name, value in (sizes | IDS).items() if name in known}
    config = transformers.AutoConfig.for_model(kind, **(options | OWN.get(kind, {})), num_labels=2)
    if getattr(made, "is_encoder_decoder", False):
        config.decoder_start_token_id = IDS["decoder_start_token_id"]
    with torch.device("meta"):
        draft = transformers.AutoModelForSequenceClassification.from_config(config)
    if sum(weight.numel() for weight in draft.parameters()) > MOST_WEIGHTS:
        raise ValueError("no small one is made by these sizes")
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def train_step(model: Any, tokenizer: Any) -> str:
    """Return why a model gets no gradient from two texts of unlike length; "" if it does."""
    ids = [tokenizer(text)["input_ids"] for text in (TEXT, "good")]
    batch = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    try:
        logits = PretrainedClassifier(model.train())(batch, batch == 0)
        torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def row_of(kind: str) -> list[str]:
    """Return a family's cells: its name, the four abilities, and the note of `show`.

    Of one that is not looked at: its name and why.
    """
    try:
        model = make_model(kind)
    except Exception as error:
        return [kind, f"{type(error).__name__}: {first_line(error)}"]
    tokenizer = make_tokenizer()
    try:
        found = abilities(model, tokenizer, TEXT)
    except Exception as error:
        return [kind, *[f"TRACEBACK {type(error).__name__}: {first_line(error)}"] * 4, ""]
    shown = ""
    if not found.explained or found.missed:
        try:
            headscope.show(model, tokenizer, TEXT)
        except Exception as error:
            shown = f"show: {type(error).__name__}: {first_line(error)}"
    explained = found.explained or f"yes ({abs(found.missed):.0e})"
    reasons = (found.observed, found.ablated, explained, found.trained)
    if not found.trained:
        reasons = (*reasons[:3], train_step(model, tokenizer))
    return [kind, *(cell(reason) for reason in reasons), shown]


def cell(reason: str) -> str:
    """Return a reason as a sentence: an error of the family's own code is the small model's."""
    if re.match(r"\w+Error: ", reason):
        reason = f"the small model that was made raises {reason}"
    return " ".join((reason or "yes").replace("|", "/").split())


def table(rows: list[list[str]]) -> str:
    """Return the Markdown of all rows: families that can do all, all but ablation, the others."""
    looked = [row for row in rows if len(row) > 2]
    can = {row[0]: [text.startswith("yes") for text in row[1:5]] for row in looked}
    whole = [row for row in looked if all(can[row[0]]) and not row[5]]
    fixed = [
        row for row in looked if can[row[0]] == [True, False, True, True] and NO_HEADS in row[2]
    ]
    fixed = [row for row in fixed if not row[5]]
    others = [row for row in looked if row not in whole and row not in fixed]
    lines = [
        f"**All four**, {len(whole)} families, the miss at most {most_missed(whole)}: {named(whole)}.",
        "",
        "**All but ablation**, since they do not use transformers' AttentionInterface, "
        f"{len(fixed)} families, the miss at most {most_missed(fixed)}: {named(fixed)}.",
        "",
        "| the others | observed | ablated | explained | trained |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(shortened(row))} |" for row in others),
        "",
        "(1) does not use transformers' AttentionInterface.",
        "",
        "Not looked at: "
        + "; ".join(f"{kind} ({why})" for kind, why in (row for row in rows if len(row) == 2))
        + ".",
    ]
    return "\n".join(lines) + "\n"


def most_missed(rows: list[list[str]]) -> str:
    """Return the largest miss of families that are explained."""
    return max((row[3][5:-1] for row in rows), key=float, default="0")


def named(rows: list[list[str]]) -> str:
    """Return the names of families."""
    return ", ".join(row[0] for row in rows)


def shortened(row: list[str]) -> list[str]:
    """Return a row's cells, each reason once."""
    kind, *cells, note = row
    seen: list[str] = []
    for place, text in enumerate(cells):
        is_known = not text.startswith("yes") and text in cells[:place]
        seen.append("no, as before" if is_known else "no (1)" if text == NO_HEADS else text)
    if note:
        seen[2] += f"; {note}"
    return [kind, *seen]


def main(path: Path, kinds: list[str]) -> None:
    """Append the rows that a file lacks, and print the table of all."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    for kind in kinds or sorted(KNOWN):
        if kind not in {row[0] for row in rows}:
            rows.append(row_of(kind))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(sorted(rows)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    main(Path(sys.argv[1]), sys.argv[2:])
