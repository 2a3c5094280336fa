"""Tiny sequence classifiers of transformers with tokenizers, and texts that a head has to read."""

import random
from typing import Any

import pytest
import transformers

import bert_family

# What looks into transformers' attention.
pytest.importorskip("headscope.heads.integrations.transformers_models")

NAMES = ("pad_token", "cls_token", "sep_token", "unk_token", "mask_token")
SPECIAL = dict(zip(NAMES, ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"), strict=True))
ROBERTA = dict(zip(NAMES, ("<pad>", "<s>", "</s>", "<unk>", "<mask>"), strict=True))
NOUNS = ["film", "book", "song", "soup", "day"]


def made_up(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Return texts such as "the soup was not good", and whether each is praise."""
    draw, texts, labels = random.Random(seed), [], []
    for _ in range(count):
        is_good, is_denied = draw.random() < 0.5, draw.random() < 0.5
        texts.append(
            f"the {draw.choice(NOUNS)} was{' not' * is_denied} {'good' if is_good else 'bad'}"
        )
        labels.append(int(is_good != is_denied))
    return texts, labels


def classifier(family: str = "bert", **options: Any) -> tuple[Any, Any]:
    """Return a model with random weights, in eval mode, with eager attention; and its tokenizer."""
    texts, _ = made_up(60)
    names = ROBERTA if "roberta" in family else SPECIAL
    made = bert_family.train_tokenizer(family, texts)
    inputs = (
        ["input_ids", "token_type_ids", "attention_mask"]
        if family == "bert"
        else ["input_ids", "attention_mask"]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_input_names=inputs, **names
    )
    sizes = {"hidden_size": 24, "vocab_size": len(tokenizer), "id2label": {0: "blame", 1: "praise"}}
    return bert_family.peer(family, "ForSequenceClassification", **(sizes | options)), tokenizer
