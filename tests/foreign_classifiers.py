"""Tiny sequence classifiers of transformers with tokenizers, and texts that a head has to read."""

import random
from typing import Any

import bert_family

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
    tokenizer = bert_family.fast_tokenizer(family, texts)
    sizes = {
        "hidden_size": 24,
        "attn_implementation": "eager",
        "vocab_size": len(tokenizer),
        "id2label": {0: "blame", 1: "praise"},
    }
    return bert_family.peer(family, "ForSequenceClassification", **(sizes | options)), tokenizer
