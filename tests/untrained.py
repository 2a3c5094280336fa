"""Run folders whose networks have random weights: what is said of a run does not ask whether it has learned."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from headscope.data.batching import TextBatches, encode_texts
from headscope.data.evidence import KnownNgrams, WordTexts, known_ngrams
from headscope.data.tokenizer import train_tokenizer
from headscope.runs.folder import save_model
from headscope.runs.setup import Chosen, Setup
from headscope.settings.config import DataConfig, ModelConfig, TokenizerConfig, TrainConfig

LABELS = ["good", "bad", "so so"]


def words_of(tokenizer: Tokenizer, rows: Sequence[tuple[str, ...]]) -> WordTexts:
    """Return the words of texts or pairs, as training counts them."""
    words = encode_texts(tokenizer, rows, KnownNgrams(np.zeros(0, np.uint64))).words
    assert words is not None
    return words


def untrained(
    folder: Path,
    texts: Sequence[str],
    data: DataConfig,
    labels: list[str] = LABELS,
    kind: str = "words",
    **model: Any,
) -> Path:
    """Write a run whose every weight, bias and ratio is random, and large enough to tell texts apart."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "num_layers": 2, "feedforward_size": 24}
    config = TrainConfig(
        data=data,
        tokenizer=TokenizerConfig(kind, vocab_size=500, min_frequency=1),
        model=ModelConfig(**(sizes | model)),
    )
    tokenizer = train_tokenizer(iter(texts), config.tokenizer)
    tokenizer.enable_truncation(data.most_tokens)
    rows = [(text,) for text in texts] * 4  # an n-gram of characters is known from four texts on
    known = known_ngrams(words_of(tokenizer, rows)) if config.model.has_evidence else None
    setup = Setup(config, labels, tokenizer, {}, evidence=known)
    network = setup.build().eval()
    for weight in network.state_dict().values():
        weight += torch.randn_like(weight) * (0.15 if weight.dim() == 2 else 0.3)
    parts = [(text,) * (2 if data.text_pair_column else 1) for text in texts]
    batch = TextBatches(encode_texts(tokenizer, parts, known))[list(range(len(texts)))]
    with torch.no_grad():  # else most texts would have the same class
        network.head.bias -= 0.9 * network(*batch.inputs).mean(dim=0)
    chosen = Chosen(temperature=1.7)
    if data.multi_label:
        chosen = Chosen(thresholds=[0.2, 0.5, 0.9])
    save_model(folder, setup, network, chosen)
    return folder
