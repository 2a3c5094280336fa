"""Tiny models of transformers with random weights, and tokenizers of four kinds, as checkpoints on disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

VOCABULARY, WIDTH, HEADS, LAYERS, HIDDEN, PLACES = 53, 36, 3, 3, 37, 31
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": PLACES,
}
DISTILBERT_SIZES = {
    "vocab_size": VOCABULARY,
    "dim": WIDTH,
    "n_heads": HEADS,
    "n_layers": LAYERS,
    "hidden_dim": HIDDEN,
    "max_position_embeddings": PLACES,
}
# RoBERTa's places begin at 2: its table has as many rows more, for texts of the same length.
ROBERTA_SIZES = {**SIZES, "max_position_embeddings": PLACES + 2, "type_vocab_size": 1}
MODERN = {"pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "japanese": ("Bert", SIZES),
    "electra": ("Electra", {**SIZES, "embedding_size": WIDTH}),
    "distilbert": ("DistilBert", DISTILBERT_SIZES),
    "deberta": ("DebertaV2", {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "roberta": ("Roberta", ROBERTA_SIZES),
    "camembert": ("Camembert", ROBERTA_SIZES),
    "xlm-roberta": ("XLMRoberta", {**ROBERTA_SIZES, "layer_norm_eps": 1e-5}),
    "modernbert": ("ModernBert", {**SIZES, **MODERN, "eos_token_id": 2, "local_attention": 8}),
}
NAMES = ("pad_token", "cls_token", "sep_token", "unk_token", "mask_token")
BERT_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
ROBERTA_TOKENS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")


def peer(family: str, head: str = "Model", **options: Any) -> Any:
    """Return a model with random weights, biases and norms, in eval mode."""
    name, sizes = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**(sizes | options))
    model = getattr(transformers, f"{name}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def write_checkpoint(
    folder: Path, family: str, texts: Sequence[str], head: str = "Model", **options: Any
) -> Path:
    """Write a checkpoint with a tokenizer trained on these texts, and return its folder."""
    tokenizer = fast_tokenizer(family, texts)
    tokenizer.backend_tokenizer.enable_padding()  # as the files of many checkpoints have it
    tokenizer.backend_tokenizer.enable_truncation(7)
    tokenizer.save_pretrained(folder)
    peer(family, head, **({"vocab_size": len(tokenizer)} | options)).save_pretrained(folder)
    return folder


def fast_tokenizer(family: str, texts: Sequence[str]) -> Any:
    """Return the tokenizer of `train_tokenizer` as one of transformers."""
    tokens = ROBERTA_TOKENS if _has_roberta_tokens(family) else BERT_TOKENS
    names = dict(zip(NAMES, tokens, strict=True))
    made = train_tokenizer(family, texts)
    inputs = ["input_ids", *["token_type_ids"] * (family == "bert"), "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_input_names=inputs, **names
    )


def _has_roberta_tokens(family: str) -> bool:
    return "roberta" in family or family == "modernbert"


def train_tokenizer(family: str, texts: Sequence[str]) -> Tokenizer:
    """Return WordPiece for BERT, characters in Japanese, BPE for RoBERTa, Unigram for XLM-RoBERTa."""
    if not _has_roberta_tokens(family):
        return _wordpiece(texts, is_japanese=family == "japanese")
    # In the order in which those models have them.
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    start, end = ("<s>", 0), ("</s>", 2)
    if family != "xlm-roberta":
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


def _wordpiece(texts: Sequence[str], is_japanese: bool) -> Tokenizer:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFKC() if is_japanese else normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if is_japanese:  # a token for each character
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer
