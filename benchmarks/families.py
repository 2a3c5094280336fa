"""What can be done with each sequence classifier of transformers: the table of docs/families.md.

    python benchmarks/families.py            # all; or the model types to look at

A small random model of each is looked at (`headscope.abilities`), shown, and trained for a step.
20 minutes on a busy CPU. Prints a table.
"""

import inspect
import sys
import warnings
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN,
)

import headscope
from headscope.ground.errors import first_line
from headscope.heads.integrations.abilities import Abilities, abilities
from headscope.model.pretrained import PretrainedClassifier

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
MOST_WEIGHTS = 10**7
OWN: dict[str, dict[str, Any]] = {  # of some families
    **dict.fromkeys(("axk1", "axk2", "deepseek_v2", "deepseek_v3"), ROTARY),
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


def row_of(kind: str) -> str:
    """Return a family's line of the table."""
    try:
        model = make_model(kind)
    except Exception as error:
        return f"| {kind} | not made: {type(error).__name__}: {first_line(error)[:90]} | | | | |"
    tokenizer = make_tokenizer()
    try:
        found = abilities(model, tokenizer, TEXT)
    except Exception as error:
        return f"| {kind} | TRACEBACK {type(error).__name__}: {first_line(error)} | | | | |"
    shown = ""
    if not found.explained or found.missed:
        try:
            headscope.show(model, tokenizer, TEXT)
        except Exception as error:
            shown = f"show: {type(error).__name__}: {first_line(error)}"
    trained = found.trained or train_step(model, tokenizer)
    return line(kind, found, trained, shown)


def line(kind: str, found: Abilities, trained: str, shown: str) -> str:
    """Return cells: yes, or why not."""
    explained = f"yes ({abs(found.missed):.0e})" if not found.explained else found.explained
    cells = [found.observed or "yes", found.ablated or "yes", explained, trained or "yes"]
    return f"| {kind} | {' | '.join(cell.replace('|', '/') for cell in cells)} | {shown} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    print(
        "| model_type | observed | ablated | explained (miss) | trained | |\n|---|---|---|---|---|---|"
    )
    for kind in sys.argv[1:] or sorted(KNOWN):
        print(row_of(kind), flush=True)
