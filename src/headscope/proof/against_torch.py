"""Our layer gives what torch.nn.MultiheadAttention gives: output, weights, and the gradient of everything."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headscope.proof.claims import Claim, Terms

B, Q, K, H, E = 2, 5, 7, 3, 11  # primes, all different: a swapped axis cannot pass
D = H * E
Options = dict[str, Any]

LAYERS: dict[str, Options] = {
    "": {},
    "no bias": {"bias": False},
    "kdim and vdim": {"kdim": 13, "vdim": 17},
    "sequence first": {"batch_first": False},
}


def masks() -> dict[str, Options]:
    """Return the arguments of each kind of mask; none hides every key of a query, where torch gives NaN."""
    torch.manual_seed(7)
    padding = torch.arange(K) >= torch.tensor([[5], [3]])
    boolean, per_head = torch.rand(Q, K) < 0.4, torch.rand(B * H, Q, K) < 0.4
    boolean[:, 0] = per_head[..., 0] = False
    # Quarters, which every type holds exactly.
    additive, per_head_additive = torch.randint(-8, 9, (Q, K)) / 4, torch.randint(-8, 9, (B * H, Q, K)) / 4
    causal = torch.ones(Q, K, dtype=torch.bool).triu(1)
    return {
        "no mask": {},
        "padding": {"key_padding_mask": padding},
        "causal": {"attn_mask": causal},
        "boolean": {"attn_mask": boolean},
        "additive": {"attn_mask": additive.double()},
        "boolean per head": {"attn_mask": per_head},
        "additive per head": {"attn_mask": per_head_additive.double()},
        "padding and causal": {"key_padding_mask": padding, "attn_mask": causal},
    }


def torch_claims(terms: Terms) -> Iterator[Claim]:
    """Compare under every option and mask, and the small shapes that the articles trace."""
    for kind, options in LAYERS.items():
        for name, mask in masks().items():
            title = ", ".join(filter(None, [kind, name]))
            yield _compared(terms, title, options, mask)
    yield _compared(terms, "one text without a batch", {}, {}, batch=None)
    for heads in (1, 2):
        yield from _small(terms, heads)


def _pair(terms: Terms, width: int, heads: int, options: Options) -> tuple[nn.Module, nn.Module]:
    """Return our layer and torch's with the same weights."""
    options = {"batch_first": True, **options}
    theirs = terms.rounded(nn.MultiheadAttention(width, heads, **options))
    ours = terms.layer(width, heads, **options).to(terms.device, terms.dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def _compared(terms: Terms, name: str, options: Options, mask: Options, batch: int | None = B) -> Claim:
    torch.manual_seed(11)
    ours, theirs = _pair(terms, D, H, options)
    widths = (D, options.get("kdim", D), options.get("vdim", D))
    inputs = [_drawn(terms, batch, length, width, options) for length, width in zip((Q, K, K), widths, strict=True)]
    expected = _results(theirs, inputs, mask)
    found = _results(ours, [terms.here(tensor) for tensor in inputs], {key: terms.here(m) for key, m in mask.items()})
    return terms.claim(name, "torch, float64", list(zip(found, expected, strict=True)))


def _drawn(terms: Terms, batch: int | None, length: int, width: int, options: Options) -> Tensor:
    if batch is None:
        return terms.exact(length, width)
    return terms.exact(batch, length, width) if options.get("batch_first", True) else terms.exact(length, batch, width)


def _results(layer: nn.Module, inputs: list[Tensor], mask: Options) -> list[Tensor]:
    """Return the output, the weights of each head, and the gradients of inputs and parameters."""
    output, weights = layer(*inputs, average_attn_weights=False, **mask)
    ramp = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output).view_as(output)
    gradients = torch.autograd.grad((output * ramp).sum(), [*inputs, *layer.parameters()])
    return [output, weights, *gradients]


def _small(terms: Terms, heads: int) -> Iterator[Claim]:
    """Compare on the input [2, 5, 4] with one head and with two."""
    torch.manual_seed(13)
    ours, theirs = _pair(terms, 4, heads, {})
    tokens = terms.exact(2, 5, 4)
    title = f"input (2, 5, 4), {heads} head{'s' if heads > 1 else ''}"
    expected, per_head = theirs(tokens, tokens, tokens, average_attn_weights=False)
    averaged = theirs(tokens, tokens, tokens)[1]
    here = terms.here(tokens)
    found, found_per_head = ours(here, here, here, average_attn_weights=False)
    found_averaged = ours(here, here, here)[1]
    pairs = [(found, expected), (found_per_head, per_head), (found_averaged, averaged)]
    yield terms.claim(f"{title}: output, weights per head and averaged", "torch, float64", pairs)
    mean = [(found_per_head.mean(dim=1), averaged)]
    yield terms.claim(f"{title}: heads' mean weights", "torch's averaged weights", mean)
