"""The numbers of a published example: a layer of width 4 with two heads, drawn from seed 55.

They are what torch gives for

    torch.manual_seed(55)
    X = torch.randn(1, 5, 4)
    layer = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True)

to four decimals, and they were worked out by hand, step by step, in articles on multi-head attention.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headscope.attention.reference import PackedAttention, PaperAttention
from headscope.proof.carry import carry
from headscope.proof.claims import Claim, Terms

PRINTED = 5e-5  # half a unit of the last decimal printed
# Row of the weights of (head, query); both counted from 0.
WEIGHTS = {
    (0, 0): [0.0424, 0.2048, 0.3446, 0.2414, 0.1667],
    (0, 4): [0.1792, 0.1710, 0.2114, 0.2354, 0.2030],
    (1, 0): [0.1456, 0.1290, 0.2313, 0.2845, 0.2096],
    (1, 1): [0.2896, 0.3155, 0.1334, 0.0994, 0.1622],
    (1, 4): [0.1764, 0.2372, 0.2087, 0.1930, 0.1846],
}
PROJECTION = [-1.3839, 0.3560, -0.5477, 0.5145, 1.5560, -0.1749, 1.3026, -0.2896, 1.4396, -0.2397, 0.6415, 1.2935]
OUTPUT = [
    [0.3529, 0.0220, 0.0969, -0.1303],
    [0.4565, 0.1399, 0.0720, 0.1694],
    [0.3354, 0.1571, 0.0336, 0.2145],
    [0.3725, 0.0816, 0.1403, -0.0746],
    [0.3248, 0.0932, 0.0436, 0.0879],
]


def published_claims(terms: Terms) -> Iterator[Claim]:
    """Hold torch's layer against the printed numbers, and every form of ours against torch's layer."""
    state = torch.get_rng_state()
    torch.manual_seed(55)
    tokens = torch.randn(1, 5, 4)
    theirs = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
    torch.set_rng_state(state)
    forms: dict[str, nn.Module] = {
        "our layer": terms.layer(4, 2, bias=False, batch_first=True),
        "the paper's form": PaperAttention(4, 2, bias=False),
        "the packed form": PackedAttention(4, 2, bias=False),
    }
    yield from _printed(terms, "torch's layer", *_run(theirs, tokens), tokens @ theirs.in_proj_weight.T)
    expected = _run(theirs.double(), tokens.double())
    for name, form in forms.items():
        form.to(terms.device, terms.dtype)
        carry(theirs, form)
        output, weights = _run(form, terms.here(tokens))
        projected = terms.here(tokens) @ terms.here(theirs.in_proj_weight).T
        yield from _printed(terms, name, output, weights, projected)
        # The article's own bound; bfloat16 cannot keep it.
        bound = 1e-6 if terms.dtype != torch.bfloat16 else None
        pairs = list(zip((output, weights), expected, strict=True))
        yield terms.claim(f"{name}: output and weights", "torch, float64", pairs, bound)


def _run(layer: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights of each head."""
    if isinstance(layer, PaperAttention | PackedAttention):
        return layer(tokens, tokens, tokens)  # type: ignore[no-any-return]
    return layer(tokens, tokens, tokens, average_attn_weights=False)  # type: ignore[no-any-return]


def _printed(terms: Terms, name: str, output: Tensor, weights: Tensor, projected: Tensor) -> Iterator[Claim]:
    # torch's own layer is drawn and run in float32, whatever the claims' type.
    bound = None if terms.dtype == torch.bfloat16 and name != "torch's layer" else PRINTED
    rows = [(weights[0, head, query], torch.tensor(row)) for (head, query), row in WEIGHTS.items()]
    pairs = [(projected[0, 0], torch.tensor(PROJECTION)), *rows, (output[0], torch.tensor(OUTPUT))]
    yield terms.claim(f"{name}: the printed numbers", "printed to 4 decimals", pairs, bound)
