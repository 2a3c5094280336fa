"""What the layer promises beyond torch: both paths agree, maps are true, masked keys get 0, order does not matter."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headscope.inspection.capture import capture
from headscope.proof.claims import Claim, Terms

B, T, H, E = 3, 7, 5, 4
D = H * E


def layer_claims(terms: Terms) -> Iterator[Claim]:
    """Check the layer against its own parameters and against what must hold for any attention."""
    torch.manual_seed(17)
    exact = terms.rounded(terms.layer(D, H, batch_first=True))
    tokens = terms.exact(B, T, D)
    padding = torch.arange(T) >= torch.tensor([[7], [4], [6]])
    by_hand = _weights_by_hand(exact, tokens, padding)
    layer = exact.to(terms.device, terms.dtype)
    here, hidden = terms.here(tokens), terms.here(padding)
    with capture(layer) as maps:
        fused, _ = layer(here, here, here, hidden, need_weights=False)
    output, weights = layer(here, here, here, hidden, average_attn_weights=False)
    explicit = _explicit_output(layer, here, weights)
    pairs = [(fused, explicit), (output, explicit)]
    yield terms.claim("the fused path", "the returned weights times the values", pairs)
    yield terms.claim("captured maps", "softmax by hand from the parameters", [(maps[""], by_hand)])
    yield terms.claim("returned weights", "softmax by hand from the parameters", [(weights, by_hand)])
    yield from _row_claims(terms, weights, hidden)
    yield from _order_claims(terms, layer, here, fused)
    yield from _nothing_to_see(terms, layer, here)


def _weights_by_hand(layer: nn.Module, tokens: Tensor, padding: Tensor) -> Tensor:
    """Recompute the softmax of each text, head and query from the layer's parameters, by plain sums."""
    weight, bias = layer.in_proj_weight.detach(), layer.in_proj_bias.detach()  # type: ignore[operator]
    tokens = tokens.detach()
    expected = torch.zeros(B, H, T, T, dtype=torch.float64)
    for text, head in ((text, head) for text in range(B) for head in range(H)):
        rows = slice(head * E, (head + 1) * E)
        query = tokens[text] @ weight[:D][rows].T + bias[:D][rows]
        key = tokens[text] @ weight[D : 2 * D][rows].T + bias[D : 2 * D][rows]
        kept = [j for j in range(T) if not padding[text, j]]
        for i in range(T):
            exponentials = [math.exp(float(query[i] @ key[j]) / math.sqrt(E)) for j in kept]
            expected[text, head, i, kept] = torch.tensor(exponentials, dtype=torch.float64) / sum(exponentials)
    return expected


def _explicit_output(layer: nn.Module, tokens: Tensor, weights: Tensor) -> Tensor:
    """Return the output as the formula has it, from weights that are there."""
    values = tokens @ layer.in_proj_weight[2 * D :].T + layer.in_proj_bias[2 * D :]  # type: ignore[index]
    sums = weights @ values.unflatten(-1, (H, E)).transpose(1, 2)  # [B, H, T, E]
    return layer.out_proj(sums.transpose(1, 2).flatten(2))  # type: ignore[operator,no-any-return]


def _row_claims(terms: Terms, weights: Tensor, hidden: Tensor) -> Iterator[Claim]:
    sums = weights.sum(dim=-1)
    yield terms.claim("every row of weights sums to 1", "1", [(sums, torch.ones_like(sums))])
    masked = weights[hidden[:, None, None].expand_as(weights)]
    yield terms.claim("a masked key gets exactly 0", "0", [(masked, torch.zeros_like(masked))], tolerance=0.0)


def _order_claims(terms: Terms, layer: nn.Module, here: Tensor, fused: Tensor) -> Iterator[Claim]:
    order = torch.randperm(T, device=here.device)
    there = layer(here, here, here, need_weights=False)[0]
    moved = layer(here, here[:, order], here[:, order], need_weights=False)[0]
    yield terms.claim("permuting keys and values changes nothing", "unpermuted", [(moved, there)])
    alone = layer(here[1:2, :4], here[1:2, :4], here[1:2, :4], need_weights=False)[0]
    yield terms.claim("padding changes nothing", "the text alone", [(fused[1:2, :4], alone)])


def _nothing_to_see(terms: Terms, layer: nn.Module, here: Tensor) -> Iterator[Claim]:
    everything = torch.ones(B, T, dtype=torch.bool, device=here.device)
    fused = layer(here, here, here, everything, need_weights=False)[0]
    output, weights = layer(here, here, here, everything)
    nothing = layer.out_proj.bias.expand_as(output)  # type: ignore[union-attr,operator]
    pairs = [(fused, nothing), (output, nothing), (weights, torch.zeros_like(weights))]
    yield terms.claim("all keys masked: weights 0, output the bias alone", "0", pairs, tolerance=0.0)
