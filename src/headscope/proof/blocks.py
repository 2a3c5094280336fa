"""A block of the encoder, with norms after its branches or before, against torch and its formula.

Shape letters: B texts, T tokens, D model width, H heads, E head width, F feed-forward width.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headscope.model.architecture import Architecture, Layer, Norm
from headscope.model.encoder import EncoderBlock
from headscope.proof.claims import Claim, Precision

B = 2
T = 7
H = 3
E = 11
F = 17
D = H * E
PADDING = torch.arange(T) >= torch.tensor([[7], [4]])
TORCH = "torch.nn.TransformerEncoderLayer, float64"
# Our names, and those of torch's layer
NAMES = {
    "attention_norm.": "norm1.",
    "attention.": "self_attn.",
    "feedforward_norm.": "norm2.",
    "feedforward.0.": "linear1.",
    "feedforward.2.": "linear2.",
}


def block_claims(precision: Precision) -> Iterator[Claim]:
    """Compare output and gradients, of all tokens and of the first one alone."""
    norms: tuple[Norm, ...] = ("after", "before")
    for norm in norms:
        yield from _claims_of(precision, norm)


def _claims_of(precision: Precision, norm: Norm) -> Iterator[Claim]:
    torch.manual_seed(31)
    theirs: Any = precision.draw_weights(
        nn.TransformerEncoderLayer(
            *(D, H, F, 0.0), activation="gelu", batch_first=True, norm_first=norm == "before"
        )
    )
    block = EncoderBlock(Architecture(1, T, D, H, F, (Layer(),), norm=norm), Layer(), None)
    block.attention = precision.layer(D, H, batch_first=True)
    block.to(precision.device, precision.dtype)
    state = theirs.state_dict()
    block.load_state_dict({name: state[_named(name)] for name in block.state_dict()})
    x = precision.draw(B, T, D)
    ours = precision.cast(x)
    name = f"norm {norm} the branch"
    for mask, padding in (("no mask", None), ("padding", PADDING)):
        own = None if padding is None else precision.cast(padding)
        found = _results(block(ours, own), ours, block.named_parameters())
        output = theirs(x, src_key_padding_mask=padding)
        parameters = dict(theirs.named_parameters())
        ordered = [(each, parameters[_named(each)]) for each, _ in block.named_parameters()]
        yield precision.claim(f"{name}, {mask}", TORCH, found, _results(output, x, ordered))
    first = block(ours, precision.cast(PADDING), only_first=True)
    title = f"{name}, padding: the first token alone"
    yield precision.claim(title, TORCH, [first], [output[:, :1]])
    with torch.no_grad():
        written = written_out(theirs, x, norm == "after")
        yield precision.claim(name, "the formula", [block(ours)], [written])


def _named(ours: str) -> str:
    """Return torch's name of one of our tensors."""
    start = next(start for start in NAMES if ours.startswith(start))
    return NAMES[start] + ours.removeprefix(start)


def _results(output: Tensor, x: Tensor, parameters: Any) -> list[Tensor]:
    """Return the output, and the gradients of the input and the parameters, a mean over tokens."""
    ramp = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output).view_as(output)
    leaves = [x, *(parameter for _, parameter in parameters)]
    return [output, *torch.autograd.grad((output * ramp).sum() / (B * T), leaves)]


def written_out(layer: Any, x: Tensor, is_after: bool) -> Tensor:
    """Return what `EncoderBlock` says of its formula, with the weights of torch's layer."""

    def linear(module: Any, x: Tensor) -> Tensor:
        product: Tensor = x @ module.weight.T + module.bias
        return product

    def attention(x: Tensor) -> Tensor:
        projected = x @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias
        heads = projected.view(B, T, 3, H, E)
        query, key, value = heads.unbind(2)  # [B, T, H, E]
        scores = torch.einsum("bqhe,bkhe->bhqk", query, key) / math.sqrt(E)
        weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        outputs = torch.einsum("bhqk,bkhe->bqhe", weights, value).reshape(B, T, D)
        return linear(layer.self_attn.out_proj, outputs)

    def feedforward(x: Tensor) -> Tensor:
        hidden = linear(layer.linear1, x)
        return linear(layer.linear2, hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2)

    def norm(module: Any, x: Tensor) -> Tensor:
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = (centered**2).mean(dim=-1, keepdim=True)
        normed: Tensor = centered / (variance + module.eps).sqrt()
        return normed * module.weight + module.bias  # type: ignore[no-any-return]

    if is_after:
        x = norm(layer.norm1, x + attention(x))
        return norm(layer.norm2, x + feedforward(x))
    x = x + attention(norm(layer.norm1, x))
    return x + feedforward(norm(layer.norm2, x))
