"""A numerical property of attention or of a classifier, checked in one type on one device.

What is checked is computed in that type on that device. Its reference is computed in float64 on the
CPU, from the same weights and inputs rounded to that type, so that a difference is rounding and
nothing else. All sizes are different primes: a swapped axis cannot go unnoticed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.heads.capture import ablate, headed_layers
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.settings.config import ModelConfig

# Largest absolute difference, for numbers up to 1. Larger numbers may differ by the same share,
# except in float64.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Claim:
    """A numerical property, what it is compared with, and how well it holds."""

    name: str
    reference: str
    absolute: float  # largest difference
    relative: float  # the same as a share of the largest expected number
    tolerance: float  # largest absolute difference that is allowed

    @property
    def holds(self) -> bool:
        """Whether the claim holds; NaN does not."""
        return self.absolute <= self.tolerance


@dataclass(frozen=True)
class Precision:
    """The type, device and layer that are checked; the tests pass layers that are wrong."""

    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    layer: type[MultiHeadAttention] = MultiHeadAttention

    def draw(self, *shape: int) -> Tensor:
        """Draw float64 numbers that the checked type holds exactly; they require gradients."""
        return torch.randn(*shape, dtype=torch.float64).to(self.dtype).double().requires_grad_()

    def cast(self, tensor: Tensor) -> Tensor:
        """Return a reference's tensor in the checked type and place; masks keep their type."""
        dtype = self.dtype if tensor.is_floating_point() else None
        return tensor.detach().to(self.device, dtype).requires_grad_(tensor.requires_grad)

    def draw_weights(self, module: nn.Module) -> nn.Module:
        """Draw a reference's parameters, biases too: float64, but held exactly by the type."""
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_((0.3 * torch.randn_like(parameter)).to(self.dtype))
        return module

    def claim(
        self,
        name: str,
        reference: str,
        computed: Sequence[Tensor],
        expected: Sequence[Tensor],
        tolerance: float | None = None,
    ) -> Claim:
        """Compare pair by pair; the worst pair counts. ValueError if two shapes differ."""
        differences = []
        sizes = []
        for ours, theirs in zip(computed, expected, strict=True):
            if ours.shape != theirs.shape:
                raise ValueError(f"{name}: expected {list(theirs.shape)}, got {list(ours.shape)}")
            exact = theirs.detach().cpu().double()
            differences.append((ours.detach().cpu().double() - exact).abs().max())
            sizes.append(exact.abs().max())
        scale = torch.stack(sizes).clamp(min=1.0)
        worst = int((torch.stack(differences) / scale).argmax())  # a NaN, if there is one
        if tolerance is None:
            share = 1.0 if self.dtype == torch.float64 else scale[worst].item()
            tolerance = TOLERANCES[self.dtype] * share
        absolute = differences[worst].item()
        size = sizes[worst].item()
        return Claim(name, reference, absolute, absolute / size if size else absolute, tolerance)


# A classifier read out at [CLS]: only its heads tell texts apart

CLASSIFIERS: dict[str, dict[str, Any]] = {
    "2 layers": {"num_layers": 2},
    "rotary positions, 1 layer": {"num_layers": 1, "evidence": False},
    "learned positions, 3 layers": {"num_layers": 3, "positions": "learned", "evidence": False},
    "pairs, 3 layers": {"num_layers": 3},
}
CLS = 2
LENGTH = 11
VOCABULARY = 53
NGRAMS = 31
TEXTS = 7
CLASSES = 5


def classifier_claims(precision: Precision) -> Iterator[Claim]:
    """Check that without heads all texts are alike, and with heads none are."""
    for name, options in CLASSIFIERS.items():
        model, texts = draw_classifier(precision, is_pair=name.startswith("pairs"), **options)
        heads = {(layer, head): "zero" for layer in headed_layers(model) for head in range(3)}
        with torch.no_grad():
            logits = torch.cat([model(*text) for text in texts])  # [TEXTS, CLASSES]
            with ablate(model, heads):  # type: ignore[arg-type]
                ablated = torch.cat([model(*text) for text in texts])
        first = ablated[:1].expand_as(ablated)
        title = f"{name}: without heads all texts are alike"
        yield precision.claim(title, "the first text", [ablated], [first], 0.0)
        is_equal = (logits[:, None] == logits).all(dim=-1).double()  # [TEXTS, TEXTS]
        title = f"{name}: with heads no two are"
        yield precision.claim(title, "the text itself alone", [is_equal], [torch.eye(TEXTS)], 0.0)


def draw_classifier(
    precision: Precision, is_pair: bool = False, **options: Any
) -> tuple[TextClassifier, list[tuple[Any, ...]]]:
    """Return a classifier of random weights, norms and biases, and texts of several lengths."""
    torch.manual_seed(29)
    config = ModelConfig(d_model=42, num_heads=3, feedforward_size=17, **options)
    model = TextClassifier(
        architecture_from(config, VOCABULARY, LENGTH, 2 if is_pair else 1), CLASSES, NGRAMS
    )
    if model.evidence is not None:
        nn.init.normal_(model.evidence.ratio)
    precision.draw_weights(model).to(precision.device, precision.dtype).eval()
    return model, list(_draw_texts(precision.device, is_pair, config.has_evidence))


def _draw_texts(
    device: torch.device, is_pair: bool, has_evidence: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield texts of 2 to LENGTH tokens, all padded to LENGTH, so that all are computed alike."""
    places = torch.arange(LENGTH)[None]  # [1, T]
    for length in torch.linspace(2, LENGTH, TEXTS).long().tolist():
        token_ids = torch.randint(CLS + 1, VOCABULARY, (1, LENGTH))
        token_ids[:, 0] = CLS
        padding = places >= length
        segments = (places > length // 2).long().to(device) if is_pair else None
        ngrams = torch.randint(NGRAMS, (4 * LENGTH,))
        positions = torch.randint(1, length, (4 * LENGTH,))  # none at [CLS]
        text = (token_ids.masked_fill(padding, 0).to(device), padding.to(device), segments)
        evidence = (ngrams.to(device), positions.to(device), torch.tensor([-1], device=device))
        yield (*text, evidence) if has_evidence else text
