"""Nothing decides but the heads, where a classifier is read out at [CLS], and what each put sums to the logits."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headscope.inspection.attribution import attribution
from headscope.inspection.intervention import headed_layers, intervene
from headscope.model.classifier import TextClassifier
from headscope.model.config import ModelConfig
from headscope.proof.claims import Claim, Terms

D, H, T, C, VOCABULARY, NGRAMS, TEXTS = 42, 3, 11, 5, 53, 31, 7
CLS = 2
KINDS: dict[str, dict[str, Any]] = {
    "the default, with evidence": {},
    "rotary positions, 1 layer": {"num_layers": 1, "evidence": False},
    "learned positions, 3 layers": {"num_layers": 3, "positions": "learned", "evidence": False},
    "pairs, 3 layers": {"num_layers": 3, "evidence": False},
}


def decided_claims(terms: Terms) -> Iterator[Claim]:
    """Check classifiers of random weights, norms and biases too, on texts of several lengths."""
    for name, options in KINDS.items():
        torch.manual_seed(29)
        is_pair = name.startswith("pairs")
        config = ModelConfig(d_model=D, num_heads=H, feedforward_size=17, **options)
        model = TextClassifier(config, VOCABULARY, C, T, num_segments=2 if is_pair else 1, num_ngrams=NGRAMS)
        if model.evidence is not None:
            torch.nn.init.normal_(model.evidence.ratio)
        terms.rounded(model).to(terms.device, terms.dtype).eval()
        texts = list(_texts(terms.device, is_pair, config.evidence))
        heads = {(layer, head): "zero" for layer in headed_layers(model) for head in range(H)}
        whole = _logits(model, texts)
        with intervene(model, heads):  # type: ignore[arg-type]
            none = _logits(model, texts)
        first = none[:1].expand_as(none)
        yield terms.claim(f"{name}: without heads all texts are alike", "the first text", [(none, first)], 0.0)
        equal = torch.stack([torch.tensor([torch.equal(one, other) for other in whole]) for one in whole]).double()
        expected = torch.eye(TEXTS, dtype=torch.float64)
        yield terms.claim(f"{name}: with heads no two are", "the text itself alone", [(equal, expected)], 0.0)
        sums = [(attribution(model, *text).total(), logits[None]) for text, logits in zip(texts, whole, strict=True)]
        yield terms.claim(f"{name}: what every part put sums to the logits", "the logits", sums)


def _texts(device: torch.device, is_pair: bool, has_evidence: bool) -> Iterator[tuple[Any, ...]]:
    """Yield texts of 2 to T tokens, padded to T so that all are computed alike to the last bit."""
    for length in torch.linspace(2, T, TEXTS).long().tolist():
        ids = torch.randint(CLS + 1, VOCABULARY, (1, T))
        ids[:, 0], padding = CLS, torch.arange(T)[None] >= length
        segments = (torch.arange(T)[None] > length // 2).long().to(device) if is_pair else None
        text = (ids.masked_fill(padding, 0).to(device), padding.to(device), segments)
        ngrams, places = torch.randint(NGRAMS, (4 * T,)), torch.randint(1, length, (4 * T,))  # none at [CLS]
        evidence = tuple(part.to(device) for part in (ngrams, places, torch.tensor([-1])))
        yield (*text, evidence) if has_evidence else text


def _logits(model: TextClassifier, texts: list[tuple[Any, ...]]) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(*text) for text in texts])
