"""That the parts of `headscope.heads.contributions` are what they are called, and sum to logits.

Checked are networks of random weights: against the network itself, against the same network cut at
some heads and positions of a layer, and blocks against their formulas, without gradients: shares
of heads against a loop over all paths, and as Shapley values over all subsets of heads.

Shape letters: T tokens, D model width, H heads, K key positions, E head width, C classes.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.heads.capture import capture
from headscope.heads.contributions import Contributions, decompose, share_among_heads
from headscope.model.classifier import TextClassifier
from headscope.model.others import others
from headscope.proof.claims import CLASSES, LENGTH, Claim, Precision, draw_classifier

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
        model, drawn = draw_classifier(precision, **options)
        texts = drawn[::3]
        parts = [_contributions(model, *text) for text in texts]
        logits = [model(*text).detach() for text in texts]
        sums = [part.words.sum(dim=1) + part.biases.sum(dim=1) for part in parts]
        yield precision.claim(f"{name}: words and biases sum to the logits", "logits", sums, logits)
        yield _table_claim(precision, name, model, texts)
        for layer in range(options["num_layers"]):
            kept = torch.rand(parts[0].heads[layer].shape[1:3]) < 0.5  # [H, K]
            found = [
                part.past[:, layer] + part.heads[layer][:, kept].sum(dim=1)  # [1, C]
                for part in parts
            ]
            expected = [_cut(model, text, layer, kept) for text in texts]
            title = f"{name}: past layer {layer}, and through half of its heads and positions"
            yield precision.claim(title, "the network cut there", found, expected)
    yield from _written_out_claims(precision)
    yield from _twin_claims(precision)


def _table_claim(
    precision: Precision, name: str, model: TextClassifier, texts: list[tuple[Any, ...]]
) -> Claim:
    """Check that what heads share, and what passes through none, are words and biases."""
    found = []
    expected = []
    for text in texts:
        parts = _contributions(model, *text)
        shares = share_among_heads(model, text, LENGTH, lambda logits: logits)
        through = [of_layer.sum(dim=(2)) for of_layer in parts.heads]
        found += [shares.past + sum(of_layer.sum(dim=1) for of_layer in shares.heads)]
        biases = sum(of_layer.sum(dim=1) for of_layer in shares.head_biases)
        found += [shares.past_biases + biases]
        expected += [parts.words, parts.biases.sum(dim=1)]
        if len(through) == 1:  # no path passes two heads
            found += [shares.heads[0].sum(dim=2) + shares.head_biases[0]]
            expected += through
    title = f"{name}: heads and what passes through none sum to words, and to biases"
    return precision.claim(title, "words and biases", found, expected)


def _twin_claims(precision: Precision) -> Iterator[Claim]:
    """Check a head that is equal to another, and one that passes nothing."""
    model, texts = draw_classifier(precision, num_layers=3)
    layer: Any = model.encoder.blocks[1].attention
    E = layer.head_dim
    D = layer.embed_dim
    with torch.no_grad():
        for start in (0, D, 2 * D):  # queries, keys, values
            for tensor in (layer.in_proj_weight, layer.in_proj_bias):
                tensor[start + E : start + 2 * E] = tensor[start : start + E]
        layer.out_proj.weight[:, E : 2 * E] = layer.out_proj.weight[:, :E]
        layer.in_proj_weight[2 * D + 2 * E :] = 0.0
        layer.in_proj_bias[2 * D + 2 * E :] = 0.0
    shares = share_among_heads(model, texts[-1], LENGTH, lambda logits: logits)
    first, second, third = shares.heads[1][0]
    yield precision.claim("two equal heads have equal shares", "the other", [first], [second])
    nothing = torch.zeros_like(third)
    yield precision.claim("a head of zero values has none", "zero", [third], [nothing], 0.0)


def _contributions(model: TextClassifier, *text: Any) -> Contributions:
    return decompose(model, text, LENGTH, lambda logits: logits)


def _cut(
    model: TextClassifier, text: tuple[Any, ...], layer: int, kept: Bool[Tensor, "H K"]
) -> Float[Tensor, "1 C"]:
    """Return what reaches the logits from below a layer, past it and by some heads' positions."""
    by_gradients = others().fixed_gates

    class Cut(by_gradients.FixedGates):  # type: ignore[name-defined]
        def attended(self, weights: Tensor, values: Tensor, head_outputs: Tensor) -> Tensor:
            before = len(self.calls)
            outputs: Tensor = super().attended(weights, values, head_outputs)
            if before != layer or len(self.calls) == before:  # another layer, or a pooling
                return outputs
            through: Tensor = (weights * kept[:, None].to(weights)) @ values  # [1, H, Q, E]
            return outputs.detach() + through - through.detach()

    gates = Cut(1, LENGTH)
    with gates:
        logits = model(*by_gradients.given(text[:3], text[1]), *text[3:])
    below = [*gates.words, *(leaf for place, leaf in gates.biases if place <= layer)]
    found = torch.zeros_like(logits)
    for number, logit in enumerate(logits[0]):
        gradients = torch.autograd.grad(logit, below, retain_graph=True, materialize_grads=True)
        for leaf, gradient in zip(below, gradients, strict=True):
            found[0, number] += (leaf * gradient).sum()
    return found.detach()


def _written_out_claims(precision: Precision) -> Iterator[Claim]:
    """Check blocks against their formulas: a network is linear once its gates are numbers."""
    for num_layers, name in enumerate(("1 layer", "2 layers", "3 layers", "4 layers"), 1):
        model, texts = draw_classifier(precision, num_layers=num_layers, evidence=False)
        text = texts[-1]
        parts = _contributions(model, *text)
        shares = share_among_heads(model, text, LENGTH, lambda logits: logits)
        heads = torch.stack(shares.heads, dim=1)[0]  # [L, H, T, C]
        linear = WrittenOut(model.cpu().double(), text[0].cpu())
        title = f"{name} written out: a word is what the network makes of it alone"
        yield precision.claim(title, "the formulas", [parts.words[0]], [linear.words()])
        title = f"{name} written out: biases are what it makes of no vector"
        biases = [parts.biases[0].sum(dim=0)]
        yield precision.claim(title, "the formulas", biases, [linear.biases()])
        title = f"{name}: the heads of each path share it alike"
        found = [heads, shares.past[0]]
        yield precision.claim(title, "a loop over all paths", found, _by_paths(linear))
        if num_layers in (2, 3):
            title = f"{name}: shares are Shapley values of words and biases"
            found = [heads, torch.stack(shares.head_biases, dim=1)[0]]
            yield precision.claim(title, "all subsets of heads", found, _by_subsets(linear))


def _by_paths(linear: "WrittenOut") -> list[Tensor]:
    """Return shares of words, and what passes through no head, by a loop over paths."""
    shares = torch.zeros(linear.L, linear.H, LENGTH, CLASSES, dtype=torch.float64)
    past = torch.zeros(LENGTH, CLASSES, dtype=torch.float64)
    for path in itertools.product([None, *range(linear.H)], repeat=linear.L):
        amounts = linear.words([(head is None, [head]) for head in path])  # [T, C]
        passed = [(layer, head) for layer, head in enumerate(path) if head is not None]
        for place in passed:
            shares[place] += amounts / len(passed)
        if not passed:
            past = amounts
    return [shares, past]


def _by_subsets(linear: "WrittenOut") -> list[Tensor]:
    """Return the Shapley values of heads, for words and for biases.

    The mean, over the orders in which heads may join, of what a head adds to those before it.
    """
    heads = [*itertools.product(range(linear.L), range(linear.H))]
    n = len(heads)
    values = {}
    for kept in itertools.product((False, True), repeat=n):
        own = [head for head, is_kept in zip(heads, kept, strict=True) if is_kept]
        layers = [(True, [h for at, h in own if at == layer]) for layer in range(linear.L)]
        values[frozenset(own)] = linear.words(layers), linear.biases(layers)
    words = torch.zeros(linear.L, linear.H, LENGTH, CLASSES, dtype=torch.float64)
    biases = torch.zeros(linear.L, linear.H, CLASSES, dtype=torch.float64)
    for head in heads:
        for rest in values:
            if head not in rest:
                weight = 1 / (n * math.comb(n - 1, len(rest)))
                after = values[rest | {head}]
                words[head] += weight * (after[0] - values[rest][0])
                biases[head] += weight * (after[1] - values[rest][1])
    return [words, biases]


# Of each layer: whether the residual stream passes its heads, and which heads are there
Layers = Sequence[tuple[bool, Sequence[int | None]]]


class WrittenOut:
    """Pre-norm blocks read at [CLS], as linear functions: with the gates of a text held fixed.

    x' = x + W^O [z_1 ... z_H] + b^O,  z_hq = sum_k a_hqk (W^V_h n(x_k) + b^V_h)
    y = x' + W_2 (g * (W_1 n(x') + b_1)) + b_2,  logits = W n(y_0) + b,  n(x) = gamma (x - mean) s
    """

    @torch.no_grad()
    def __init__(self, model: TextClassifier, token_ids: Tensor) -> None:
        self.blocks: list[Any] = [*model.encoder.blocks]
        self.model = model
        self.L = len(self.blocks)
        self.H = self.blocks[0].attention.num_heads
        self.vectors = model.embedding(token_ids)[0]  # [T, D]
        with capture(model) as maps:
            model(token_ids)
        self.weights = [of_layer[0].double() for of_layer in maps.values()]  # [H, T, T] each
        self.gates: dict[nn.Module, Tensor] = {}  # as they were for the text
        self.logits(self.vectors, 1.0)

    def words(self, layers: Layers | None = None) -> Float[Tensor, "T C"]:
        """Return the logits of each token's vector alone, without biases."""
        alone = torch.eye(LENGTH, dtype=torch.float64)[..., None] * self.vectors  # [T, T, D]
        return self.logits(alone, 0.0, layers)

    def biases(self, layers: Layers | None = None) -> Float[Tensor, " C"]:
        """Return the logits of no vector."""
        return self.logits(torch.zeros_like(self.vectors), 1.0, layers)

    @torch.no_grad()
    def logits(
        self, x: Float[Tensor, "*N T D"], bias: float, layers: Layers | None = None
    ) -> Float[Tensor, "*N C"]:
        """Return the logits of some vectors, with the biases times a number."""
        layers = layers or [(True, range(self.H))] * self.L
        for block, weights, (has_past, heads) in zip(
            self.blocks, self.weights, layers, strict=True
        ):
            layer = block.attention
            values = (
                self.normed(block.attention_norm, x, bias) @ layer.in_proj_weight[-x.shape[-1] :].T
            )
            values = values + bias * layer.in_proj_bias[-x.shape[-1] :]
            outputs = weights @ values.unflatten(-1, (self.H, -1)).transpose(
                -3, -2
            )  # [..., H, T, E]
            is_there = torch.tensor([head in heads for head in range(self.H)])
            outputs = outputs * is_there[:, None, None]
            passed = outputs.transpose(-3, -2).flatten(-2) @ layer.out_proj.weight.T
            x = passed + has_past * (x + bias * layer.out_proj.bias)
            first, _, second = block.feedforward
            hidden = self.linear(first, self.normed(block.feedforward_norm, x, bias), bias)
            gate = self.gates.setdefault(first, F.gelu(hidden) / hidden)
            x = x + self.linear(second, hidden * gate, bias)
        read = self.normed(self.model.encoder.norm, x, bias)[..., 0, :]
        return self.linear(self.model.head, read, bias)

    def normed(self, norm: Any, x: Tensor, bias: float) -> Tensor:
        """Return gamma (x - mean) s + beta."""
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = centered.square().mean(dim=-1, keepdim=True)
        scale = self.gates.setdefault(norm, (variance + norm.eps).rsqrt())
        return centered * scale * norm.weight + bias * norm.bias  # type: ignore[no-any-return]

    def linear(self, module: Any, x: Tensor, bias: float) -> Tensor:
        """Return W x + b."""
        return x @ module.weight.T + bias * module.bias  # type: ignore[no-any-return]
