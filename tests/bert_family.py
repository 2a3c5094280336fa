"""Tiny checkpoints of each family with random weights, made and saved by `transformers`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

VOCABULARY, WIDTH, HEADS, LAYERS, HIDDEN, PLACES = 53, 33, 3, 3, 37, 31
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": HIDDEN,
}
DISTILBERT_SIZES = {
    "vocab_size": VOCABULARY,
    "dim": WIDTH,
    "n_heads": HEADS,
    "n_layers": LAYERS,
    "hidden_dim": HIDDEN,
}
# RoBERTa's places begin at 2: its table has as many rows more, for texts of the same length.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {**SIZES, "max_position_embeddings": PLACES}),
    "distilbert": ("DistilBert", {**DISTILBERT_SIZES, "max_position_embeddings": PLACES}),
    "roberta": (
        "Roberta",
        {**SIZES, "max_position_embeddings": PLACES + 2, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "xlm-roberta": (
        "XLMRoberta",
        {
            **SIZES,
            "max_position_embeddings": PLACES + 2,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
        },
    ),
}


def peer(family: str, head: str = "Model", **options: Any) -> Any:
    """Return a model with random weights, biases and norms, in eval mode."""
    name, sizes = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        **(sizes | options), attn_implementation="eager"
    )
    model = getattr(transformers, f"{name}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def save(model: Any, folder: Path) -> Path:
    """Save a model as `transformers` does, and return the folder."""
    model.save_pretrained(folder)
    return folder


def write_checkpoint(folder: Path, family: str, texts: Sequence[str], **options: Any) -> Path:
    """Write a checkpoint with a tokenizer trained on these texts, and return its folder."""
    tokenizer = train_tokenizer(family, texts)
    save(peer(family, **({"vocab_size": tokenizer.get_vocab_size()} | options)), folder)
    tokenizer.enable_padding()  # as the files of many checkpoints have it
    tokenizer.enable_truncation(7)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def train_tokenizer(family: str, texts: Sequence[str]) -> Tokenizer:
    """Return WordPiece for BERT and DistilBERT, BPE for RoBERTa, Unigram for XLM-RoBERTa."""
    if "roberta" not in family:
        return _wordpiece(texts)
    # In the order in which those models have them.
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    start, end = ("<s>", 0), ("</s>", 2)
    if family == "roberta":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.post_processor = processors.RobertaProcessing(end, start)
        return tokenizer
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=names, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end]
    )
    return tokenizer


def _wordpiece(texts: Sequence[str]) -> Tokenizer:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer
