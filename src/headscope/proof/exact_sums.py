"""That the parts of `headscope.heads.contributions` are what they are called, and sum to logits.

Checked are networks of random weights: against the network itself, against the same network cut at
some heads and positions of a layer, and one block against its formulas, without gradients.

Shape letters: T tokens, D model width, H heads, K key positions, E head width, C classes.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.heads.capture import capture
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
        model, drawn = draw_classifier(precision, **options)
        texts = drawn[::3]
        parts = [_contributions(model, *text) for text in texts]
        logits = [model(*text).detach() for text in texts]
        sums = [part.words.sum(dim=1) + part.biases.sum(dim=1) for part in parts]
        yield precision.claim(f"{name}: words and biases sum to the logits", "logits", sums, logits)
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


def _contributions(model: TextClassifier, *text: Any) -> Contributions:
    return decompose(model, text, LENGTH, lambda logits: logits)


def _cut(
    model: TextClassifier, text: tuple[Any, ...], layer: int, kept: Bool[Tensor, "H K"]
) -> Float[Tensor, "1 C"]:
    """Return what reaches the logits from below a layer, past it and by some heads' positions."""

    class Cut(FixedGates):
        def attended(self, weights: Tensor, values: Tensor, head_outputs: Tensor) -> Tensor:
            outputs = super().attended(weights, values, head_outputs)
            if len(self.calls) != layer + 1:
                return outputs
            through = (weights * kept[:, None].to(weights)) @ values  # [1, H, Q, E]
            return outputs.detach() + through - through.detach()

    gates = Cut(1, LENGTH)
    with gates:
        logits = model(*text)
    below = [*gates.words, *(leaf for place, leaf in gates.biases if place <= layer)]
    found = torch.zeros_like(logits)
    for number, logit in enumerate(logits[0]):
        gradients = torch.autograd.grad(logit, below, retain_graph=True, materialize_grads=True)
        for leaf, gradient in zip(below, gradients, strict=True):
            found[0, number] += (leaf * gradient).sum()
    return found.detach()


def _written_out_claims(precision: Precision) -> Iterator[Claim]:
    """Check one block against its formulas: a network is linear once its gates are numbers."""
    model, texts = draw_classifier(precision, num_layers=1, evidence=False)
    found = _contributions(model, *texts[-1])
    words, biases = _written_out(model.cpu().double(), texts[-1][0].cpu())
    title = "one block, written out: a word is what the network makes of its vector alone"
    yield precision.claim(title, "the formulas", [found.words[0]], [words])
    title = "one block, written out: biases are what it makes of no vector"
    yield precision.claim(title, "the formulas", [found.biases[0].sum(dim=0)], [biases])


@torch.no_grad()
def _written_out(
    model: TextClassifier, token_ids: Tensor
) -> tuple[Float[Tensor, "T C"], Float[Tensor, " C"]]:
    """Return words and biases of one pre-norm block read at [CLS], with a text's gates.

    x' = x + W^O [z_1 ... z_H] + b^O,  z_hq = sum_k a_hqk (W^V_h n(x_k) + b^V_h)
    y = x' + W_2 (g * (W_1 n(x') + b_1)) + b_2,  logits = W n(y_0) + b,  n(x) = gamma (x - mean) s
    """
    block: Any = model.encoder.blocks[0]
    layer = block.attention
    first, _, second = block.feedforward
    D = layer.embed_dim
    vectors = model.embedding(token_ids)[0]  # [T, D]
    with capture(model) as maps:
        model(token_ids)
    weights = next(iter(maps.values()))[0].double()  # [H, T, T]
    gates: dict[nn.Module, Tensor] = {}  # as they were for the text

    def logits(x: Tensor, bias: float) -> Tensor:
        """Return the logits of some vectors, with the biases times a number."""

        def normed(norm: Any, x: Tensor) -> Tensor:
            centered = x - x.mean(dim=-1, keepdim=True)
            variance = centered.square().mean(dim=-1, keepdim=True)
            scale = gates.setdefault(norm, (variance + norm.eps).rsqrt())
            scaled: Tensor = centered * scale * norm.weight + bias * norm.bias
            return scaled

        def linear(module: Any, x: Tensor) -> Tensor:
            projected: Tensor = x @ module.weight.T + bias * module.bias
            return projected

        values = normed(block.attention_norm, x) @ layer.in_proj_weight[-D:].T  # [T, D]
        values = values + bias * layer.in_proj_bias[-D:]
        outputs = weights @ values.unflatten(-1, (layer.num_heads, -1)).transpose(0, 1)  # [H, T, E]
        x = x + linear(layer.out_proj, outputs.transpose(0, 1).flatten(1))
        hidden = linear(first, normed(block.feedforward_norm, x))
        x = x + linear(second, hidden * gates.setdefault(first, F.gelu(hidden) / hidden))
        return linear(model.head, normed(model.encoder.norm, x[:1])[0])

    logits(vectors, 1.0)
    alone = torch.eye(LENGTH, dtype=torch.float64)[..., None] * vectors  # [T, T, D]
    words = torch.stack([logits(vector, 0.0) for vector in alone])
    return words, logits(torch.zeros_like(vectors), 1.0)
