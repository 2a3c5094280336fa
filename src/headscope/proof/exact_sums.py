"""That the parts of `headscope.heads.contributions` are what they are called, and sum to logits.

Checked are networks of random weights: against the network itself, against the same network cut at
the heads of a layer, and against the formulas written out, without gradients, for one block.

Shape letters: T tokens, H heads, E head width, D width, C classes.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscope.heads.capture import capture, headed_layers, intervene
from headscope.heads.contributions import Contributions, decompose
from headscope.heads.fixed_gates import FixedGates
from headscope.model.classifier import TextClassifier
from headscope.proof.claims import LENGTH, Claim, Precision, draw_classifier

NETWORKS: dict[str, dict[str, Any]] = {
    "1 layer": {"num_layers": 1},
    "3 layers": {"num_layers": 3},
    "3 layers, grouped heads, a window": {"num_layers": 3, "num_kv_heads": 1, "window": 3},
    "2 layers, mean pooling": {"num_layers": 2, "pooling": "mean"},
    "2 layers, max pooling": {"num_layers": 2, "pooling": "max"},
    "2 layers, additive pooling": {"num_layers": 2, "pooling": "additive"},
    "2 layers, learned positions, causal, mean pooling": {
        "num_layers": 2,
        "positions": "learned",
        "causal": True,
        "pooling": "mean",
    },
}


def exact_sum_claims(precision: Precision) -> Iterator[Claim]:
    """Check networks of several kinds and depths, on texts of several lengths."""
    for name, options in NETWORKS.items():
        model, texts = draw_classifier(precision, **options)
        parts = [_contributions(model, text) for text in texts]
        logits = [model(*text).detach() for text in texts]
        sums = [part.words.sum(dim=1) + part.biases.sum(dim=1) for part in parts]
        yield precision.claim(f"{name}: words and biases sum to the logits", "logits", sums, logits)
        for layer in range(options["num_layers"]):
            expected = [_cut(model, text, layer) for text in texts]
            title = f"{name}: what goes past layer {layer} is what is left without its heads"
            past = [part.past[:, layer] for part in parts]
            yield precision.claim(title, "the network cut there", past, expected)
        yield from _invariances(precision, name, model, texts[-1])
    yield from _written_out_claims(precision)


def _contributions(model: TextClassifier, text: tuple[Any, ...]) -> Contributions:
    return decompose(model, text, LENGTH, lambda logits: logits)


def _cut(model: TextClassifier, text: tuple[Any, ...], layer: int) -> Float[Tensor, "1 C"]:
    """Return what reaches the logits from below the heads of a layer, but not through them."""

    class WithoutHeads(FixedGates):
        def attended(self, weights: Tensor, values: Tensor, head_outputs: Tensor) -> Tensor:
            outputs = super().attended(weights, values, head_outputs).clone()
            if len(self.calls) == layer + 1:
                outputs.register_hook(torch.zeros_like)  # no gradient passes
            return outputs

    gates = WithoutHeads(1, LENGTH)
    with gates:
        logits = model(*text)
    below = [*gates.words, *(leaf for place, leaf in gates.biases if place <= layer)]
    past = torch.zeros_like(logits)
    for number, logit in enumerate(logits[0]):
        if logit.requires_grad:
            found = torch.autograd.grad(logit, below, retain_graph=True, allow_unused=True)
            for leaf, gradient in zip(below, found, strict=True):
                past[0, number] += 0 if gradient is None else (leaf * gradient).sum()
    return past.detach()


def _invariances(
    precision: Precision, name: str, model: TextClassifier, text: tuple[Any, ...]
) -> Iterator[Claim]:
    """Check what must not change anything, and a head without values."""
    first = decompose(model, text, LENGTH, lambda logits: logits[:, :1] - logits[:, 1:2])
    swapped = decompose(model, text, LENGTH, lambda logits: logits[:, 1:2] - logits[:, :1])
    title = f"{name}: two classes swapped change the sign"
    yield precision.claim(title, "the other", [-swapped.words], [first.words], 0.0)
    token_ids, padding, segments, *evidence = text
    doubled = [token_ids.repeat(2, 1), padding.repeat(2, 1), segments]
    if evidence:
        ngrams, places, folds = evidence[0]
        again = (ngrams.repeat(2), torch.cat([places, places + LENGTH]), folds.repeat(2))
        doubled.append(again)
    batch = decompose(model, doubled, LENGTH, lambda logits: logits[:, :1] - logits[:, 1:2])
    title = f"{name}: a batch of texts is split as each text alone"
    rows = [batch.words[:1], batch.words[1:], batch.biases[1:], batch.heads[-1][1:]]
    alone = [first.words, first.words, first.biases, first.heads[-1]]
    yield precision.claim(title, "the text alone", rows, alone)
    with intervene(model, {(next(iter(headed_layers(model))), 0): "zero"}):
        passed = _contributions(model, text).heads[0][:, 0]
    title = f"{name}: a head whose output is 0 passes 0"
    yield precision.claim(title, "0", [passed], [torch.zeros_like(passed)], 0.0)


def _written_out_claims(precision: Precision) -> Iterator[Claim]:
    """Check one block against its formulas: a network is linear once its gates are numbers."""
    model, texts = draw_classifier(precision, num_layers=1, evidence=False)
    text = texts[-1]
    found = _contributions(model, text)
    model = model.cpu().double()
    gates = _Gates(model, text[0].cpu())
    nothing = torch.zeros_like(gates.vectors)
    words = []
    for token in range(LENGTH):
        alone = nothing.clone()
        alone[token] = gates.vectors[token]
        words.append(gates.logits(alone, has_biases=False))
    title = "one block, written out: a word is what the network makes of its vector alone"
    yield precision.claim(title, "the formulas", [found.words[0]], [torch.stack(words)])
    biases = gates.logits(nothing, has_biases=True)
    title = "one block, written out: biases are what it makes of no vector"
    yield precision.claim(title, "the formulas", [found.biases[0].sum(dim=0)], [biases])
    heads = torch.stack(
        [
            torch.stack([gates.through(head, token) for token in range(LENGTH)])
            for head in range(gates.layer.num_heads)
        ]
    )
    title = "one block, written out: what passes through each head from each position"
    yield precision.claim(title, "the formulas", [found.heads[0][0]], [heads])


class _Gates:
    """One pre-norm block read at [CLS], whose weights, scales and gates are the numbers of a text.

    x' = x + W^O [z_1 ... z_H] + b^O,  z_hq = sum_k a_hqk (W^V_h n(x_k) + b^V_h)
    y = x' + W_2 (g * (W_1 n(x') + b_1)) + b_2,  logits = W n(y_0) + b,  n(x) = gamma (x - mean) s
    """

    def __init__(self, model: TextClassifier, token_ids: Tensor) -> None:
        self.head = model.head
        self.last_norm: Any = model.encoder.norm
        self.block: Any = model.encoder.blocks[0]
        self.layer: Any = self.block.attention
        with torch.no_grad(), capture(model) as maps:
            self.vectors = model.embedding(token_ids)[0]  # [T, D]
            model(token_ids)
        self.weights = next(iter(maps.values()))[0].double()  # [H, T, T]
        self.scales: dict[Any, Tensor] = {}
        self.gate: Tensor | None = None
        self.logits(self.vectors, has_biases=True)  # sets scales and gate, once

    def normed(self, norm: Any, vectors: Tensor, has_biases: bool) -> Any:
        """Return gamma (x - mean) s, with s as it was for the text."""
        centered = vectors - vectors.mean(dim=-1, keepdim=True)
        variance = centered.square().mean(dim=-1, keepdim=True)
        scale = self.scales.setdefault(norm, (variance + norm.eps).rsqrt())
        return centered * scale * norm.weight + has_biases * norm.bias

    def values(self, vectors: Tensor, has_biases: bool) -> Any:
        """Return the values of each head."""
        D = self.layer.embed_dim
        normed = self.normed(self.block.attention_norm, vectors, has_biases)
        values = normed @ self.layer.in_proj_weight[-D:].T
        values = values + has_biases * self.layer.in_proj_bias[-D:]
        return values.unflatten(-1, (self.layer.num_heads, -1)).transpose(0, 1)

    @torch.no_grad()
    def logits(self, vectors: Float[Tensor, "T D"], has_biases: bool) -> Any:
        """Return the logits of these vectors under the text's gates."""
        outputs = self.weights @ self.values(vectors, has_biases)  # [H, T, E]
        return self.above(vectors, outputs, has_biases)

    def above(self, vectors: Tensor, outputs: Float[Tensor, "H T E"], has_biases: bool) -> Any:
        """Return the logits of the residual stream and the head outputs of the layer."""
        projection: Any = self.layer.output_projection
        merged = outputs.transpose(0, 1).flatten(1)  # [T, D]
        vectors = vectors + merged @ projection.weight.T + has_biases * projection.bias
        first, _, second = self.block.feedforward
        normed = self.normed(self.block.feedforward_norm, vectors, has_biases)
        hidden = normed @ first.weight.T + has_biases * first.bias
        if self.gate is None:
            self.gate = F.gelu(hidden) / hidden
        added = (self.gate * hidden) @ second.weight.T + has_biases * second.bias
        normed = self.normed(self.last_norm, (vectors + added)[:1], has_biases)
        return normed[0] @ self.head.weight.T + has_biases * self.head.bias

    @torch.no_grad()
    def through(self, head: int, token: int) -> Any:
        """Return the logits of what one head takes from one position, and nothing else."""
        values = self.values(self.vectors, has_biases=True)[head, token]  # [E]
        outputs = torch.zeros(*self.weights.shape[:2], len(values), dtype=torch.float64)
        outputs[head] = self.weights[head, :, token, None] * values
        return self.above(torch.zeros_like(self.vectors), outputs, has_biases=False)
