"""Every numerical property of attention that `headscope verify` checks, each against torch or code of its own.

What is checked is computed in the asked type and on the asked device; what it is compared with is computed in float64
on the CPU, from the same weights and inputs (rounded to that type), so that a difference is rounding and nothing else.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attention import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    MultiHeadAttention,
    SharedProjectionAttention,
)
from headscope.attention.reference import FourLinearAttention, PackedAttention, PaperAttention
from headscope.attention.variants import ScoredAttention
from headscope.config import ModelConfig
from headscope.heads.capture import capture
from headscope.heads.contributions import attribution
from headscope.heads.interventions import headed_layers, intervene
from headscope.model.classifier import TextClassifier
from headscope.proof.copy_weights import carry
from headscope.proof.published import PRINTED, PUBLISHED, published_example

# Absolute bounds, for numbers up to 1. Larger numbers may differ by the same share, except in float64.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}
Options = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A numerical property, and how well it holds.

    Attributes:
        name: what is claimed.
        oracle: what it is compared with.
        absolute: largest difference between a number found and the one expected.
        relative: the same as a share of the largest number expected.
        tolerance: the largest absolute difference that is allowed.
    """

    name: str
    oracle: str
    absolute: float
    relative: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the claim holds; NaN does not."""
        return self.absolute <= self.tolerance


@dataclass(frozen=True)
class Precision:
    """What is checked, and in which type and place.

    Attributes:
        dtype: type of what is found.
        device: where it is found.
        layer: the layer that is checked. The tests put wrong ones here, which must be found out.
    """

    dtype: torch.dtype = torch.float64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    layer: type[MultiHeadAttention] = MultiHeadAttention

    def exact(self, *shape: int) -> Tensor:
        """Draw float64 numbers that the checked type holds without loss; they require gradients."""
        return torch.randn(*shape, dtype=torch.float64).to(self.dtype).double().requires_grad_()

    def here(self, tensor: Tensor) -> Tensor:
        """Return an oracle's tensor in the checked type and place; masks keep their type."""
        moved = tensor.detach().to(self.device, self.dtype if tensor.is_floating_point() else None)
        return moved.requires_grad_(tensor.requires_grad)

    def rounded(self, module: nn.Module) -> nn.Module:
        """Draw an oracle's parameters anew, biases too, and round them to the checked type; keep them in float64."""
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_((0.3 * torch.randn_like(parameter)).to(self.dtype))
        return module

    def claim(
        self,
        name: str,
        oracle: str,
        pairs: Sequence[tuple[Tensor, Tensor]],
        tolerance: float | None = None,
    ) -> Claim:
        """Compare what was found with what is expected, pair by pair.

        Args:
            name: what is claimed.
            oracle: what it is compared with.
            pairs: (found, expected), of one shape.
            tolerance: an absolute bound; by default TOLERANCES.

        Raises:
            ValueError: if the shapes of a pair differ.
        """
        for found, expected in pairs:
            if found.shape != expected.shape:
                raise ValueError(
                    f"{name}: found {list(found.shape)}, expected {list(expected.shape)}"
                )
        differences = torch.stack([(found.detach().cpu().double() - expected.detach().cpu().double()).abs().max()
                                   for found, expected in pairs])  # fmt: skip
        sizes = torch.stack([expected.detach().cpu().double().abs().max() for _, expected in pairs])
        scale = sizes.clamp(min=1.0)
        # The worst pair counts. argmax takes a NaN over any number.
        worst = int((differences / scale).argmax())
        share = 1.0 if self.dtype == torch.float64 else scale[worst].item()
        allowed = TOLERANCES[self.dtype] * share if tolerance is None else tolerance
        absolute, size = differences[worst].item(), sizes[worst].item()
        return Claim(name, oracle, absolute, absolute / size if size else absolute, allowed)

    def same(
        self,
        name: str,
        oracle: str,
        found: Sequence[Tensor],
        expected: Sequence[Tensor],
        tolerance: float | None = None,
    ) -> Claim:
        """Compare two lists of results."""
        return self.claim(name, oracle, list(zip(found, expected, strict=True)), tolerance)


# torch.nn.MultiheadAttention: output, weights, and the gradients of inputs and parameters

B, Q, K, H, E = 2, 5, 7, 3, 11  # primes, all different: a swapped axis cannot pass
D = H * E
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
    additive, per_head_additive = (
        torch.randint(-8, 9, (Q, K)) / 4,
        torch.randint(-8, 9, (B * H, Q, K)) / 4,
    )
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


def torch_claims(terms: Precision) -> Iterator[Claim]:
    """Compare under every option and mask, and the small shapes that the articles trace."""
    for kind, options in LAYERS.items():
        for name, mask in masks().items():
            yield _compared(terms, ", ".join(filter(None, [kind, name])), options, mask)
    yield _compared(terms, "one text without a batch", {}, {}, batch=None)
    for heads in (1, 2):
        yield from _small(terms, heads)


def _pair(
    terms: Precision, width: int, heads: int, options: Options
) -> tuple[nn.Module, nn.Module]:
    """Return our layer and torch's with the same weights."""
    options = {"batch_first": True, **options}
    theirs = terms.rounded(nn.MultiheadAttention(width, heads, **options))
    ours = terms.layer(width, heads, **options).to(terms.device, terms.dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def _compared(
    terms: Precision, name: str, options: Options, mask: Options, batch: int | None = B
) -> Claim:
    torch.manual_seed(11)
    ours, theirs = _pair(terms, D, H, options)
    inputs = []
    for length, width in zip(
        (Q, K, K), (D, options.get("kdim", D), options.get("vdim", D)), strict=True
    ):
        leading = (length, batch) if not options.get("batch_first", True) else (batch, length)
        inputs.append(terms.exact(*(size for size in leading if size is not None), width))
    found = _results(
        ours,
        [terms.here(tensor) for tensor in inputs],
        {key: terms.here(m) for key, m in mask.items()},
    )
    return terms.same(name, "torch, float64", found, _results(theirs, inputs, mask))


def _results(layer: nn.Module, inputs: list[Tensor], mask: Options) -> list[Tensor]:
    """Return the output, the weights of each head, and the gradients of inputs and parameters."""
    output, weights = layer(*inputs, average_attn_weights=False, **mask)
    ramp = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output).view_as(output)
    return [
        output,
        weights,
        *torch.autograd.grad((output * ramp).sum(), [*inputs, *layer.parameters()]),
    ]


def _small(terms: Precision, heads: int) -> Iterator[Claim]:
    """Compare on the input [2, 5, 4] with one head and with two."""
    torch.manual_seed(13)
    ours, theirs = _pair(terms, 4, heads, {})
    tokens = terms.exact(2, 5, 4)
    title = f"input (2, 5, 4), {heads} head{'s' if heads > 1 else ''}"
    found, expected = (
        [*layer(*[text] * 3, average_attn_weights=False), layer(*[text] * 3)[1]]
        for layer, text in ((ours, terms.here(tokens)), (theirs, tokens))
    )
    yield terms.same(
        f"{title}: output, weights per head and averaged", "torch, float64", found, expected
    )
    mean = [(found[1].mean(dim=1), expected[2])]
    yield terms.claim(f"{title}: heads' mean weights", "torch's averaged weights", mean)


# The textbook forms: each computes what every other computes, once it has its weights


def form_claims(terms: Precision) -> Iterator[Claim]:
    """Carry weights from each form to each other and compare outputs and weights, without a mask and with each kind."""
    torch.manual_seed(0)
    query, key = terms.exact(B, Q, D), terms.exact(B, K, D)
    here = terms.here(query), terms.here(key)
    hidden: list[Tensor | None] = [None]
    for shape in ((Q, K), (B, Q, K), (B, 1, Q, K), (B, H, Q, K)):
        mask = torch.rand(shape) < 0.3
        mask[..., 0] = (
            False  # the textbook forms give NaN, or look everywhere, where nothing may be looked at
        )
        hidden.append(mask)
    forms: dict[str, Callable[[], nn.Module]] = {
        "the paper's form": lambda: PaperAttention(D, H),
        "the packed form": lambda: PackedAttention(D, H),
        "the four-Linear form": lambda: FourLinearAttention(D, H),
        "our layer": lambda: terms.layer(D, H, batch_first=True),
        "torch's layer": lambda: nn.MultiheadAttention(D, H, batch_first=True),
    }
    for source in forms:
        oracle = terms.rounded(forms[source]())
        for target in (name for name in forms if name != source):
            form = forms[target]().to(terms.device, terms.dtype)
            carry(oracle, form)
            found = [
                each
                for mask in hidden
                for each in _run(form, *here, None if mask is None else terms.here(mask))
            ]
            expected = [each for mask in hidden for each in _run(oracle, query, key, mask)]
            yield terms.same(target, f"{source}, float64", found, expected)
    # The layers that save weights, against the paper's form with the weights written out.
    savers: dict[str, nn.Module] = {
        "shared projections": SharedProjectionAttention(D, H),
        "multi-query attention": terms.layer(D, H, batch_first=True, num_kv_heads=1),
    }
    for name, saver in savers.items():
        paper = PaperAttention(D, H).double()
        carry(terms.rounded(saver), paper)
        expected = [*_run(paper, query, key, None)]
        found = [*_run(saver.to(terms.device, terms.dtype), *here, None)]
        yield terms.same(name, "the paper's form, all weights written out", found, expected)


def _run(
    form: nn.Module, query: Tensor, key: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return a form's output and the weights of each head; each form takes its mask in its own way.

    `hidden` is [Q, K], [B, Q, K], [B, 1, Q, K] or [B, H, Q, K].
    """
    if isinstance(form, PaperAttention | PackedAttention):
        return form(query, key, key, hidden)  # type: ignore[no-any-return]
    if isinstance(form, FourLinearAttention):
        return form(query, key, key, None if hidden is None else (~hidden).int())  # type: ignore[no-any-return]
    if isinstance(form, SharedProjectionAttention):
        return form(query, key, key, attn_mask=hidden)  # type: ignore[no-any-return]
    if hidden is not None and hidden.dim() > 2:
        hidden = (
            hidden[:, None] if hidden.dim() == 3 else hidden
        )  # [B, 1 or H, Q, K], as our layer takes it
        if isinstance(form, nn.MultiheadAttention):
            hidden = hidden.expand(-1, form.num_heads, -1, -1).flatten(0, 1)  # [B * H, Q, K]
    return form(query, key, key, attn_mask=hidden, average_attn_weights=False)  # type: ignore[no-any-return]


def published_claims(terms: Precision) -> Iterator[Claim]:
    """Compare torch's layer with the printed numbers, and every form of ours with both."""
    tokens, theirs = published_example()
    # torch's own layer is drawn and run in float32, whatever the checked type; bfloat16 cannot keep these bounds.
    keeps = terms.dtype != torch.bfloat16
    printed = [torch.tensor(rows) for rows in PUBLISHED.values()]
    found = [*numbers_of(theirs, tokens).values()]
    yield terms.same(
        "torch's layer: the printed numbers", "printed to 4 decimals", found, printed, PRINTED
    )
    expected = [*numbers_of(theirs.double(), tokens.double()).values()]
    forms: dict[str, nn.Module] = {
        "our layer": terms.layer(4, 2, bias=False, batch_first=True),
        "the paper's form": PaperAttention(4, 2, bias=False),
        "the packed form": PackedAttention(4, 2, bias=False),
        "the four-Linear form": FourLinearAttention(4, 2, bias=False),
    }
    for name, form in forms.items():
        carry(theirs, form.to(terms.device, terms.dtype))
        found = [*numbers_of(form, terms.here(tokens)).values()]
        bounds = (PRINTED, 1e-6) if keeps else (None, None)
        yield terms.same(
            f"{name}: the printed numbers", "printed to 4 decimals", found, printed, bounds[0]
        )
        yield terms.same(f"{name}: the same numbers", "torch, float64", found, expected, bounds[1])


@torch.no_grad()
def numbers_of(form: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """Return what PUBLISHED has of a form, computed by the form's own projections."""
    match form:
        case PaperAttention():
            projections: tuple[Callable[[Tensor], Tensor], ...] = (*form.W_Q, *form.W_K, *form.W_V)
            queries, keys, values = torch.cat(
                [project(tokens) for project in projections], dim=-1
            ).chunk(3, dim=-1)
        case PackedAttention():
            queries, keys, values = form.in_proj(tokens).chunk(3, dim=-1)
        case FourLinearAttention():
            queries, keys, values = form.W_Q(tokens), form.W_K(tokens), form.W_V(tokens)
        case MultiHeadAttention():
            heads = form.project(tokens, tokens, tokens)  # each [B, H, T, E]
            queries, keys, values = (each.transpose(1, 2).flatten(2) for each in heads)
        case _:
            queries, keys, values = (tokens @ form.in_proj_weight.T).chunk(3, dim=-1)  # type: ignore[operator]
    output, weights = _run(form, tokens, tokens, None)
    parts = (queries[0], keys[0], values[0], *weights[0], output[0])
    return dict(zip(PUBLISHED, parts, strict=True))


# What the layer promises beyond torch: both paths agree, maps are true, masked keys get 0, order does not matter


def layer_claims(terms: Precision) -> Iterator[Claim]:
    """Check the layer against its own parameters and against what must hold for any attention."""
    B, T, H, E = 3, 7, 5, 4
    D = H * E
    torch.manual_seed(17)
    exact = terms.rounded(terms.layer(D, H, batch_first=True))
    tokens = terms.exact(B, T, D)
    padding = torch.arange(T) >= torch.tensor([[7], [4], [6]])
    by_hand = _weights_by_hand(exact, H, tokens.detach(), padding)
    layer = exact.to(terms.device, terms.dtype)
    here, hidden = terms.here(tokens), terms.here(padding)
    with capture(layer) as maps:
        fused, _ = layer(here, here, here, hidden, need_weights=False)
    output, weights = layer(here, here, here, hidden, average_attn_weights=False)
    values = here @ layer.in_proj_weight[2 * D :].T + layer.in_proj_bias[2 * D :]  # type: ignore[index]
    sums = weights @ values.unflatten(-1, (H, E)).transpose(1, 2)  # [B, H, T, E]
    explicit = layer.out_proj(sums.transpose(1, 2).flatten(2))  # type: ignore[operator]
    pairs = [(fused, explicit), (output, explicit)]
    yield terms.claim("the fused path", "the returned weights times the values", pairs)
    yield terms.claim("captured maps", "softmax by hand from the parameters", [(maps[""], by_hand)])
    yield terms.claim(
        "returned weights", "softmax by hand from the parameters", [(weights, by_hand)]
    )
    rows = weights.sum(dim=-1)
    yield terms.claim("every row of weights sums to 1", "1", [(rows, torch.ones_like(rows))])
    masked = weights[hidden[:, None, None].expand_as(weights)]
    yield terms.claim(
        "a masked key gets exactly 0", "0", [(masked, torch.zeros_like(masked))], tolerance=0.0
    )
    order = torch.randperm(T, device=here.device)
    there = layer(here, here, here, need_weights=False)[0]
    moved = layer(here, here[:, order], here[:, order], need_weights=False)[0]
    yield terms.claim("permuting keys and values changes nothing", "unpermuted", [(moved, there)])
    alone = layer(here[1:2, :4], here[1:2, :4], here[1:2, :4], need_weights=False)[0]
    yield terms.claim("padding changes nothing", "the text alone", [(fused[1:2, :4], alone)])
    everything = torch.ones(B, T, dtype=torch.bool, device=here.device)
    fused = layer(here, here, here, everything, need_weights=False)[0]
    output, weights = layer(here, here, here, everything)
    nothing = layer.out_proj.bias.expand_as(output)  # type: ignore[union-attr,operator]
    pairs = [(fused, nothing), (output, nothing), (weights, torch.zeros_like(weights))]
    yield terms.claim(
        "all keys masked: weights 0, output the bias alone", "0", pairs, tolerance=0.0
    )


def _weights_by_hand(layer: nn.Module, heads: int, tokens: Tensor, padding: Tensor) -> Tensor:
    """Recompute the softmax of each text, head and query from the layer's parameters, by plain sums."""
    weight, bias = layer.in_proj_weight.detach(), layer.in_proj_bias.detach()  # type: ignore[operator]
    (B, T, D), E = tokens.shape, tokens.shape[-1] // heads
    expected = torch.zeros(B, heads, T, T, dtype=torch.float64)
    for text, head in ((text, head) for text in range(B) for head in range(heads)):
        rows = slice(head * E, (head + 1) * E)
        query = tokens[text] @ weight[:D][rows].T + bias[:D][rows]
        key = tokens[text] @ weight[D : 2 * D][rows].T + bias[D : 2 * D][rows]
        kept = [j for j in range(T) if not padding[text, j]]
        for i in range(T):
            exponentials = [math.exp(float(query[i] @ key[j]) / math.sqrt(E)) for j in kept]
            expected[text, head, i, kept] = torch.tensor(exponentials, dtype=torch.float64) / sum(
                exponentials
            )
    return expected


# Additive and multiplicative attention against loops over queries and keys

Score = Callable[[Tensor, Tensor], Tensor]  # of one query and one key


def score_claims(terms: Precision) -> Iterator[Claim]:
    """Compare weights and contexts under padding, and what must hold for any weights."""
    B, Q, K, D, V = 2, 5, 7, 11, 13
    torch.manual_seed(19)
    padding = torch.arange(K) >= torch.tensor([[7], [4]])
    query, key, value = terms.exact(B, Q, D), terms.exact(B, K, D), terms.exact(B, K, V)
    for name, layer, score in _scored(terms, D):
        expected = _looped(score, query.detach(), key.detach(), value.detach(), padding)
        layer.to(terms.device, terms.dtype)
        here = [terms.here(tensor) for tensor in (query, key, value)]
        context, weights = layer(*here, terms.here(padding))
        yield terms.same(
            f"{name}: context and weights, padded",
            "a loop over i and j",
            (context, weights),
            expected,
        )
        sums = weights.sum(dim=-1)
        yield terms.claim(
            f"{name}: every row of weights sums to 1", "1", [(sums, torch.ones_like(sums))]
        )
        masked = weights[1, :, 4:]
        yield terms.claim(
            f"{name}: a padded key gets exactly 0", "0", [(masked, torch.zeros_like(masked))], 0.0
        )
        order = torch.randperm(K, device=terms.device)
        moved = layer(here[0], here[1][:, order], here[2][:, order])[0]
        yield terms.claim(
            f"{name}: permuting keys changes nothing", "unpermuted", [(moved, layer(*here)[0])]
        )


def _scored(terms: Precision, D: int, A: int = 3) -> Iterator[tuple[str, ScoredAttention, Score]]:
    """Yield each layer with its score as the paper writes it, in the layer's own weights copied out in float64."""
    additive, general, concat = (
        AdditiveAttention(D, D, A),
        GeneralAttention(D, D),
        ConcatAttention(D, D, A),
    )
    for layer in (additive, general, concat):
        terms.rounded(layer)
    v, W, U = (
        linear.weight.detach().clone() for linear in (additive.v_a, additive.W_a, additive.U_a)
    )
    G = general.W_a.weight.detach().clone()
    u, C = concat.v_a.weight.detach().clone(), concat.W_a.weight.detach().clone()
    yield "Bahdanau, additive", additive, lambda q, k: v[0] @ torch.tanh(W @ q + U @ k)
    yield "Luong, dot", DotAttention(), lambda q, k: q @ k
    yield "Luong, general", general, lambda q, k: q @ G @ k
    yield "Luong, concat", concat, lambda q, k: u[0] @ torch.tanh(C @ torch.cat([q, k]))


def _looped(
    score: Score, query: Tensor, key: Tensor, value: Tensor, padding: Tensor
) -> tuple[Tensor, Tensor]:
    (B, Q, _), (_, K, V) = query.shape, value.shape
    contexts, weights = (
        torch.zeros(B, Q, V, dtype=torch.float64),
        torch.zeros(B, Q, K, dtype=torch.float64),
    )
    for text, i in ((text, i) for text in range(B) for i in range(Q)):
        kept = [j for j in range(K) if not padding[text, j]]
        exponentials = {j: math.exp(float(score(query[text, i], key[text, j]))) for j in kept}
        for j in kept:
            weights[text, i, j] = exponentials[j] / sum(exponentials.values())
            contexts[text, i] += weights[text, i, j] * value[text, j]
    return contexts, weights


# A classifier read out at [CLS]: nothing decides but its heads, and what its parts add up to is the logits

CLASSIFIERS: dict[str, Options] = {
    "the default, with evidence": {},
    "rotary positions, 1 layer": {"num_layers": 1, "evidence": False},
    "learned positions, 3 layers": {"num_layers": 3, "positions": "learned", "evidence": False},
    "pairs, 3 layers": {"num_layers": 3, "evidence": False},
}
CLS, LENGTH, VOCABULARY, NGRAMS, TEXTS = 2, 11, 53, 31, 7


def decided_claims(terms: Precision) -> Iterator[Claim]:
    """Check classifiers of random weights, norms and biases too, on texts of several lengths."""
    for name, options in CLASSIFIERS.items():
        torch.manual_seed(29)
        is_pair = name.startswith("pairs")
        config = ModelConfig(d_model=42, num_heads=3, feedforward_size=17, **options)
        model = TextClassifier(
            config, VOCABULARY, 5, LENGTH, num_segments=2 if is_pair else 1, num_ngrams=NGRAMS
        )
        if model.evidence is not None:
            torch.nn.init.normal_(model.evidence.ratio)
        terms.rounded(model).to(terms.device, terms.dtype).eval()
        texts = list(_texts(terms.device, is_pair, config.evidence))
        heads = {(layer, head): "zero" for layer in headed_layers(model) for head in range(3)}
        whole = _logits(model, texts)
        with intervene(model, heads):  # type: ignore[arg-type]
            none = _logits(model, texts)
        first = none[:1].expand_as(none)
        yield terms.claim(
            f"{name}: without heads all texts are alike", "the first text", [(none, first)], 0.0
        )
        equal = torch.stack(
            [torch.tensor([torch.equal(one, other) for other in whole]) for one in whole]
        ).double()
        expected = torch.eye(TEXTS, dtype=torch.float64)
        yield terms.claim(
            f"{name}: with heads no two are", "the text itself alone", [(equal, expected)], 0.0
        )
        sums = [
            (attribution(model, *text).total(), logits[None])
            for text, logits in zip(texts, whole, strict=True)
        ]
        yield terms.claim(f"{name}: what every part put sums to the logits", "the logits", sums)


def _texts(device: torch.device, is_pair: bool, has_evidence: bool) -> Iterator[tuple[Any, ...]]:
    """Yield texts of 2 to LENGTH tokens, padded to LENGTH so that all are computed alike to the last bit."""
    T = LENGTH
    for length in torch.linspace(2, T, TEXTS).long().tolist():
        ids = torch.randint(CLS + 1, VOCABULARY, (1, T))
        ids[:, 0], padding = CLS, torch.arange(T)[None] >= length
        segments = (torch.arange(T)[None] > length // 2).long().to(device) if is_pair else None
        text = (ids.masked_fill(padding, 0).to(device), padding.to(device), segments)
        ngrams, places = (
            torch.randint(NGRAMS, (4 * T,)),
            torch.randint(1, length, (4 * T,)),
        )  # none at [CLS]
        evidence = tuple(part.to(device) for part in (ngrams, places, torch.tensor([-1])))
        yield (*text, evidence) if has_evidence else text


def _logits(model: TextClassifier, texts: list[tuple[Any, ...]]) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(*text) for text in texts])
