"""Small models of transformers of every family, by the names of their classes."""

from typing import Any

import torch
import transformers

H, D, VOCABULARY = 4, 32, 97
WORDS = {"vocab_size": VOCABULARY}
SIZES = WORDS | {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H}
BERT = SIZES | {"intermediate_size": 37, "max_position_embeddings": 64, "pad_token_id": 0}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
LLAMA = BERT | ENDS | {"num_key_value_heads": 2}
WINDOW = LLAMA | {"sliding_window": 3}
SMALL_HEADS = WINDOW | {"head_dim": 8}
BOTH = {f"{side}_{name}": value for side in ("encoder", "decoder")
        for name, value in {"layers": 2, "attention_heads": H, "ffn_dim": 37}.items()}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Bert", "Roberta", "XLMRoberta"), BERT),
    "DistilBert": WORDS | {"dim": D, "n_layers": 2, "n_heads": H, "hidden_dim": 37},
    **dict.fromkeys(("Electra", "Albert"), BERT | {"embedding_size": 16}),
    "GPT2": WORDS | ENDS | {"n_embd": D, "n_layer": 2, "n_head": H, "n_positions": 64},
    "GPTNeoX": BERT | ENDS,
    "OPT": SIZES | {"ffn_dim": 37, "max_position_embeddings": 64, "word_embed_proj_dim": D},
    **dict.fromkeys(("Llama", "Qwen2", "Phi3"), LLAMA),
    "Mistral": WINDOW,
    "Qwen3": LLAMA | {"head_dim": 8},
    "Gemma2": SMALL_HEADS | {"attn_logit_softcapping": 2.0},
    "Gemma3Text": SMALL_HEADS | {"query_pre_attn_scalar": 8},
    "ModernBert": BERT | ENDS | {"local_attention": 4, "cls_token_id": 1, "sep_token_id": 2},
    "EuroBert": LLAMA | {"mask_token_id": 3},
    "Bart": WORDS | BOTH | {"d_model": D, "max_position_embeddings": 64},
    "T5": WORDS | {"d_model": D, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": H},
    "GptOss": SMALL_HEADS
    | {"intermediate_size": 40, "num_local_experts": 2, "num_experts_per_tok": 1},
}
# Outside of the registry of attention functions.
OUTSIDE: dict[str, dict[str, Any]] = {
    "DebertaV2": BERT,
    "MPNet": BERT,
    "Bloom": {"vocab_size": VOCABULARY, "hidden_size": D, "n_layer": 2, "n_head": H},
    "Falcon": SIZES,
}


def made(kind: str, task: str = "Model", **options: Any) -> Any:
    """Return a model whose every parameter is random, so that no map is flat."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**((MODELS | OUTSIDE).get(kind, {}) | options))
    model = getattr(transformers, f"{kind}{task}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model
