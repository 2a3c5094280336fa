"""Every form of multi-head attention gives what every other gives, once it has its weights."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headscope.attention import SharedProjectionAttention
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.proof.carry import carry
from headscope.proof.claims import Claim, Terms

B, Q, K, H, E = 2, 5, 7, 3, 11  # primes, all different: a swapped axis cannot pass
D = H * E


def form_claims(terms: Terms) -> Iterator[Claim]:
    """Carry weights from each form to each other and compare outputs and weights, with a mask and without."""
    torch.manual_seed(0)
    query, key = terms.exact(B, Q, D), terms.exact(B, K, D)
    hidden = torch.rand(B, Q, K) < 0.3
    hidden[..., 0] = False  # the textbook forms give NaN, or look everywhere, where nothing may be looked at
    names = ["the paper's form", "the packed form", "the four-Linear form", "our layer", "torch's layer"]
    for source in names:
        oracle = terms.rounded(_made(terms, source))
        for target in names:
            if target == source:
                continue
            form = _made(terms, target).to(terms.device, terms.dtype)
            carry(oracle, form)
            pairs = [
                pair
                for mask in (None, hidden)
                for pair in zip(_run(form, terms, query, key, mask), _run(oracle, None, query, key, mask), strict=True)
            ]
            yield terms.claim(target, f"{source}, float64", pairs)
    yield from _special_claims(terms, query, key)


def _special_claims(terms: Terms, query: Tensor, key: Tensor) -> Iterator[Claim]:
    """Hold the layers that save weights against the paper's form with the weights written out."""
    savers: dict[str, nn.Module] = {
        "shared projections": SharedProjectionAttention(D, H),
        "multi-query attention": terms.layer(D, H, batch_first=True, num_kv_heads=1),
    }
    for name, saver in savers.items():
        paper = PaperAttention(D, H).double()
        carry(terms.rounded(saver), paper)
        expected = paper(query, key, key)
        found = _run(saver.to(terms.device, terms.dtype), terms, query, key, None)
        yield terms.claim(name, "the paper's form, all weights written out", list(zip(found, expected, strict=True)))


def _made(terms: Terms, name: str) -> nn.Module:
    forms = {"the paper's form": PaperAttention, "the packed form": PackedAttention}
    if name in forms:
        return forms[name](D, H)
    if name == "the four-Linear form":
        return FourLinearAttention(D, H)
    return (terms.layer if name == "our layer" else nn.MultiheadAttention)(D, H, batch_first=True)


def _run(form: nn.Module, terms: Terms | None, query: Tensor, key: Tensor, hidden: Tensor | None) -> tuple[Tensor, ...]:
    """Run a form where the terms say, or as an oracle; each takes its mask in its own way."""
    if terms is not None:
        query, key = terms.here(query), terms.here(key)
        hidden = None if hidden is None else terms.here(hidden)
    if isinstance(form, PaperAttention | PackedAttention):
        return form(query, key, key, hidden)  # type: ignore[no-any-return]
    if isinstance(form, FourLinearAttention):
        return form(query, key, key, None if hidden is None else (~hidden).int())  # type: ignore[no-any-return]
    if isinstance(form, SharedProjectionAttention):
        return form(query, key, key, attn_mask=hidden)  # type: ignore[no-any-return]
    per_head = None if hidden is None else hidden.repeat_interleave(H, dim=0)  # [B * H, Q, K]
    return form(query, key, key, attn_mask=per_head, average_attn_weights=False)  # type: ignore[no-any-return]
