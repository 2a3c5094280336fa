"""verify(config): check numerical properties of attention against torch and independent code."""

import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from headscope.attention import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    MultiHeadAttention,
    SharedProjectionAttention,
)
from headscope.attention.reference import (
    FourLinearAttention,
    PackedAttention,
    PaperAttention,
    mask_of_heads,
)
from headscope.attention.variants import ScoredAttention
from headscope.ground.errors import ConfigError, ProofError
from headscope.heads.capture import capture
from headscope.proof.blocks import block_claims
from headscope.proof.claims import Claim, Precision, classifier_claims
from headscope.proof.copy_weights import copy_weights, read_weights
from headscope.proof.exact_sums import exact_sum_claims
from headscope.proof.language import Translate, Wrapped, translation
from headscope.proof.opened import opened_claims
from headscope.settings.commands import VerifyConfig

Options = dict[str, Any]


# A published example: a layer of width 4 with two heads, drawn from seed 55. Articles on multi-head
# attention work it out by hand, step by step. The numbers are what torch gives, to four decimals:
#
#     torch.manual_seed(55)
#     X = torch.randn(1, 5, 4)
#     layer = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
#
# Each of the five tokens has three lines: its query and key, its value and output, and its weights
# in head 0 and head 1.
PRINTED = 5e-5  # half a unit of the last decimal
PUBLISHED_WIDTHS = {"queries": 4, "keys": 4, "values": 4, "output": 4, "head 0": 5, "head 1": 5}
PUBLISHED = """
-1.3839  0.3560 -0.5477  0.5145    1.5560 -0.1749  1.3026 -0.2896
 1.4396 -0.2397  0.6415  1.2935    0.3529  0.0220  0.0969 -0.1303
 0.0424  0.2048  0.3446  0.2414  0.1667    0.1456  0.1290  0.2313  0.2845  0.2096
-0.3053 -0.4555  0.9167 -0.7092    0.2180  0.8775  0.5869 -1.3853
-0.6356 -0.6922  0.7399  0.5402    0.4565  0.1399  0.0720  0.1694
 0.1729  0.1644  0.2146  0.2448  0.2033    0.2896  0.3155  0.1334  0.0994  0.1622
 0.1798 -0.4656  0.2638 -0.6801   -0.4169  0.4765  0.0991 -0.2992
-0.8500 -0.1792 -0.0935 -0.1088    0.3354  0.1571  0.0336  0.2145
 0.2667  0.1591  0.1675  0.2068  0.2000    0.2136  0.3166  0.1714  0.1335  0.1649
-0.8393  0.6234 -0.7506 -0.4411   -0.1963 -0.0795  0.0261  0.1924
-0.3620  1.1107 -0.1110  0.4418    0.3725  0.0816  0.1403 -0.0746
 0.0698  0.2457  0.3001  0.2061  0.1782    0.1254  0.2581  0.2383  0.2125  0.1655
-0.2403 -0.3683 -0.1956 -0.2543    0.2528  0.1956  0.6195 -0.0164
-0.0104 -0.3045 -0.0634  0.2639    0.3248  0.0932  0.0436  0.0879
 0.1792  0.1710  0.2114  0.2354  0.2030    0.1764  0.2372  0.2087  0.1930  0.1846
"""


def published_example() -> tuple[Tensor, nn.MultiheadAttention]:
    """Return the tokens and torch's layer of the published example."""
    torch.manual_seed(55)
    tokens = torch.randn(1, 5, 4)
    return tokens, nn.MultiheadAttention(4, 2, bias=False, batch_first=True)


def printed_numbers() -> dict[str, Tensor]:
    """Return the tensors of the published example by name, a row for each token."""
    rows = torch.tensor([float(number) for number in PUBLISHED.split()]).view(5, -1)
    tensors = rows.split(list(PUBLISHED_WIDTHS.values()), dim=1)
    return dict(zip(PUBLISHED_WIDTHS, tensors, strict=True))


def published_claims(precision: Precision) -> Iterator[Claim]:
    """Compare torch's layer with the printed numbers, and every form of ours with both."""
    tokens, theirs = published_example()
    printed = list(printed_numbers().values())
    forms: dict[str, nn.Module] = {
        "torch's layer": nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
        "our layer": precision.layer(4, 2, bias=False, batch_first=True),
        "the paper's form": PaperAttention(4, 2, bias=False),
        "the packed form": PackedAttention(4, 2, bias=False),
        "the four-Linear form": FourLinearAttention(4, 2, bias=False),
    }
    expected = published_numbers(copy.deepcopy(theirs).double(), tokens.double())
    is_rough = precision.dtype == torch.bfloat16
    bounds = (None, None) if is_rough else (PRINTED, 1e-6)
    for name, form in forms.items():
        copy_weights(theirs, form.to(precision.device, precision.dtype))
        computed = published_numbers(form, precision.cast(tokens))
        title = f"{name}: the printed numbers"
        yield precision.claim(title, "printed to 4 decimals", computed, printed, bounds[0])
        if not isinstance(form, nn.MultiheadAttention):
            title = f"{name}: the same numbers"
            yield precision.claim(title, "torch, float64", computed, expected, bounds[1])


@torch.no_grad()
def published_numbers(form: nn.Module, tokens: Tensor) -> list[Tensor]:
    """Return the tensors of PUBLISHED as a form of attention computes them."""
    packed = tokens[0] @ read_weights(form)["in_proj_weight"].T  # [T, 3D]
    queries, keys, values = packed.chunk(3, dim=-1)
    output, weights = run_form(form, tokens, tokens, None)
    return [queries, keys, values, output[0], *weights[0]]


# Our layer and torch.nn.MultiheadAttention: output, weights, and gradients of inputs and parameters

B, Q, K, H, E = 2, 5, 7, 3, 11
D = H * E
LAYERS: dict[str, Options] = {
    "": {},
    "no bias": {"bias": False},
    "kdim and vdim": {"kdim": 13, "vdim": 17},
    "sequence first": {"batch_first": False},
}


def make_masks() -> dict[str, Options]:
    """Return the arguments of each kind of mask; none masks all keys of a query, torch's NaN."""
    torch.manual_seed(7)
    padding = torch.arange(K) >= torch.tensor([[5], [3]])
    boolean = torch.rand(Q, K) < 0.4
    per_head = torch.rand(B * H, Q, K) < 0.4
    boolean[:, 0] = False
    per_head[..., 0] = False
    additive = torch.randint(-8, 9, (Q, K)).double() / 4  # quarters, which every type holds
    additive_per_head = torch.randint(-8, 9, (B * H, Q, K)).double() / 4
    causal = torch.ones(Q, K, dtype=torch.bool).triu(1)
    return {
        "no mask": {},
        "padding": {"key_padding_mask": padding},
        "causal": {"attn_mask": causal},
        "boolean": {"attn_mask": boolean},
        "additive": {"attn_mask": additive},
        "boolean per head": {"attn_mask": per_head},
        "additive per head": {"attn_mask": additive_per_head},
        "padding and causal": {"key_padding_mask": padding, "attn_mask": causal},
    }


def torch_claims(precision: Precision) -> Iterator[Claim]:
    """Compare under every option and mask."""
    for kind, options in LAYERS.items():
        for mask_name, mask in make_masks().items():
            name = f"{kind}, {mask_name}" if kind else mask_name
            yield _compare_with_torch(precision, name, options, mask)
    yield _compare_with_torch(precision, "one text without a batch", {}, {}, is_batch=False)


def _compare_with_torch(
    precision: Precision, name: str, options: Options, mask: Options, is_batch: bool = True
) -> Claim:
    torch.manual_seed(11)
    options = {"batch_first": True, **options}
    theirs = precision.draw_weights(nn.MultiheadAttention(D, H, **options))
    ours = precision.layer(D, H, **options).to(precision.device, precision.dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    widths = (D, options.get("kdim", D), options.get("vdim", D))
    inputs = []
    for length, width in zip((Q, K, K), widths, strict=True):
        shape = [length, width]
        if is_batch:
            shape.insert(0 if options["batch_first"] else 1, B)
        inputs.append(precision.draw(*shape))
    our_mask = {key: precision.cast(tensor) for key, tensor in mask.items()}
    computed = _results(ours, [precision.cast(tensor) for tensor in inputs], our_mask)
    return precision.claim(name, "torch, float64", computed, _results(theirs, inputs, mask))


def _results(layer: nn.Module, inputs: list[Tensor], mask: Options) -> list[Tensor]:
    """Return the output, the weights of each head, and the gradients of inputs and parameters."""
    output, weights = layer(*inputs, average_attn_weights=False, **mask)
    ramp = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).to(output).view_as(output)
    gradients = torch.autograd.grad((output * ramp).sum(), [*inputs, *layer.parameters()])
    return [output, weights, *gradients]


# The textbook forms: each computes the same as the paper's form, and so as each other


def form_claims(precision: Precision) -> Iterator[Claim]:
    """Copy weights from one form to another; compare with each kind of mask."""
    torch.manual_seed(0)
    query = precision.draw(B, Q, D)
    key = precision.draw(B, K, D)
    masks: list[Tensor | None] = [None]
    for shape in ((Q, K), (B, Q, K), (B, 1, Q, K), (B, H, Q, K)):
        mask = torch.rand(shape) < 0.3
        mask[..., 0] = False  # where all keys are masked, the forms give NaN or uniform weights
        masks.append(mask)

    paper = "the paper's form"
    of_heads = f"{paper}, weights of each head"
    shared = precision.layer(D, H, batch_first=True, num_kv_heads=1)
    forms: list[tuple[str, str, nn.Module, nn.Module]] = [
        ("the packed form", paper, PaperAttention(D, H), PackedAttention(D, H)),
        ("the four-Linear form", paper, PaperAttention(D, H), FourLinearAttention(D, H)),
        ("our layer", paper, PaperAttention(D, H), precision.layer(D, H, batch_first=True)),
        (
            "torch's layer",
            paper,
            PaperAttention(D, H),
            nn.MultiheadAttention(D, H, batch_first=True),
        ),
        (of_heads, "shared projections", SharedProjectionAttention(D, H), PaperAttention(D, H)),
        (of_heads, "multi-query attention", shared, PaperAttention(D, H)),
    ]
    for name, reference, source, target in forms:
        copy_weights(precision.draw_weights(source), target.double())
        target.to(precision.device, precision.dtype)
        computed: list[Tensor] = []
        expected: list[Tensor] = []
        for attn_mask in masks:
            our_mask = None if attn_mask is None else precision.cast(attn_mask)
            computed += run_form(target, precision.cast(query), precision.cast(key), our_mask)
            expected += run_form(source, query, key, attn_mask)
        yield precision.claim(name, f"{reference}, float64", computed, expected)


def run_form(form: Any, query: Tensor, key: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a form's output and the weights of each head.

    `mask` is True where a query must not attend to a key: [Q, K], [B, Q, K], [B, 1, Q, K] or
    [B, H, Q, K]. Each form gets it in its own way.
    """
    result: tuple[Tensor, Tensor]
    if isinstance(form, FourLinearAttention):
        result = form(query, key, key, None if mask is None else (~mask).int())
    elif isinstance(form, SharedProjectionAttention):
        result = form(query, key, key, attn_mask=mask)
    elif isinstance(form, PaperAttention | PackedAttention):
        result = form(query, key, key, mask)
    else:
        if mask is not None:
            sizes = (len(query), form.num_heads, query.shape[1], key.shape[1])
            mask = mask_of_heads(mask, *sizes).flatten(0, 1)  # [B * H, Q, K]
        result = form(query, key, key, attn_mask=mask, average_attn_weights=False)
    return result


# What the layer promises beyond torch: both paths agree, maps are true, and no NaN


def layer_claims(precision: Precision) -> Iterator[Claim]:
    """Check the layer against its own weights, and masks against exact numbers."""
    B, T, H, E = 3, 7, 5, 4
    D = H * E
    torch.manual_seed(17)
    layer: Any = precision.draw_weights(precision.layer(D, H, batch_first=True))
    layer.to(precision.device, precision.dtype)
    x = precision.cast(precision.draw(B, T, D))
    padding = precision.cast(torch.arange(T) >= torch.tensor([[7], [4], [6]]))
    with capture(layer) as maps:
        fused, _ = layer(x, x, x, padding, need_weights=False)
    output, weights = layer(x, x, x, padding, average_attn_weights=False)
    values = x @ layer.in_proj_weight[2 * D :].T + layer.in_proj_bias[2 * D :]
    head_outputs = weights @ values.unflatten(-1, (H, E)).transpose(1, 2)  # [B, H, T, E]
    explicit = layer.out_proj(head_outputs.transpose(1, 2).flatten(2))
    yield precision.claim(
        "the fused path", "the returned weights times the values", [fused, output], [explicit] * 2
    )
    yield precision.claim("captured maps", "the returned weights", [maps[""]], [weights])
    masked = weights[padding[:, None, None].expand_as(weights)]
    yield precision.claim("a masked key gets exactly 0", "0", [masked], [0 * masked], 0.0)
    all_masked = torch.ones_like(padding)
    fused, _ = layer(x, x, x, all_masked, need_weights=False)
    output, weights = layer(x, x, x, all_masked)
    bias = layer.out_proj.bias.expand_as(output)
    computed = [fused, output, weights]
    yield precision.claim(
        "all keys masked: weights 0, output the bias", "0", computed, [bias, bias, 0 * weights], 0.0
    )


# Additive and multiplicative attention against loops over queries and keys

Score = Callable[[Tensor, Tensor], Tensor]  # of one query and one key


def score_claims(precision: Precision) -> Iterator[Claim]:
    """Compare weights and contexts under padding."""
    B, Q, K, D, V = 2, 5, 7, 11, 13
    torch.manual_seed(19)
    padding = torch.arange(K) >= torch.tensor([[7], [4]])
    inputs = [precision.draw(B, Q, D), precision.draw(B, K, D), precision.draw(B, K, V), padding]
    for name, layer, score in _scored_layers(precision, D):
        expected = _attend_by_hand(score, *inputs)
        layer = copy.deepcopy(layer).to(precision.device, precision.dtype)
        context, weights = layer(*map(precision.cast, inputs))
        title = f"{name}: context and weights, padded"
        yield precision.claim(title, "a loop over i and j", [context, weights], expected)


def _scored_layers(precision: Precision, D: int) -> Iterator[tuple[str, ScoredAttention, Score]]:
    """Yield each layer, in float64, with its score as the paper has it."""
    additive: Any = precision.draw_weights(AdditiveAttention(D, D, 3))
    general: Any = precision.draw_weights(GeneralAttention(D, D))
    concat: Any = precision.draw_weights(ConcatAttention(D, D, 3))
    W = additive.W_a.weight
    U = additive.U_a.weight
    G = general.W_a.weight
    C = concat.W_a.weight
    yield "Bahdanau, additive", additive, lambda q, k: additive.v_a.weight @ (W @ q + U @ k).tanh()
    yield "Luong, dot", DotAttention(), lambda q, k: q @ k
    yield "Luong, general", general, lambda q, k: q @ G @ k
    yield "Luong, concat", concat, lambda q, k: concat.v_a.weight @ (C @ torch.cat([q, k])).tanh()


@torch.no_grad()
def _attend_by_hand(
    score: Score, query: Tensor, key: Tensor, value: Tensor, padding: Tensor
) -> list[Tensor]:
    """Return contexts and weights, a score for each text, query and key."""
    scores = torch.tensor(
        [
            [[score(q, k).item() for k in keys] for q in queries]
            for queries, keys in zip(query, key, strict=True)
        ],
        dtype=torch.float64,
    )
    weights = scores.masked_fill(padding[:, None], -math.inf).softmax(dim=-1)  # [B, Q, K]
    return [weights @ value, weights]


# The command

GROUPS = {
    "A published example: width 4, two heads, seed 55": published_claims,
    "Our layer and torch.nn.MultiheadAttention: output, weights, all gradients": torch_claims,
    "Every form and the paper's, weights copied, under every shape of mask": form_claims,
    "What the layer promises": layer_claims,
    "Additive and multiplicative attention": score_claims,
    "A block of the encoder: output, all gradients": block_claims,
    "Checkpoints of transformers, opened into headscope's network": opened_claims,
    "A classifier read out at [CLS]: only its heads tell texts apart": classifier_claims,
    "Each logit is a sum over words and biases, shared out over heads": exact_sum_claims,
}
NUMBERS = "The article's numbers and ours, a row a token; a head's are its weights"
NOT_COMPARED = "not compared, since transformers is not installed"


def verify(
    config: VerifyConfig,
    console: Console | None = None,
    layer: type[MultiHeadAttention] = MultiHeadAttention,
) -> list[Claim]:
    """Print every property, its reference, the largest difference, and whether it holds.

    With `show=published`, print the published example alone, its numbers beside ours.

    Raises:
        ConfigError: if there is no such device.
        ProofError: if a property does not hold.
    """
    console = console or Console()
    started = time.perf_counter()
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: expected cpu, got cuda; torch finds no CUDA GPU here")
    precision = Precision(getattr(torch, config.dtype), torch.device(config.device), layer)
    say = translation(config.lang)
    titles = list(GROUPS)
    claims: list[Claim] = []
    with torch.random.fork_rng(devices=[]):
        if config.show == "published":
            titles = titles[:1]
            console.print(Wrapped(say(NUMBERS)), _numbers_table(precision, say))
        for title in titles:
            group = list(GROUPS[title](precision))
            if group:
                console.print(Wrapped(say(title)), _claims_table(group, say))
            else:
                console.print(f"{say(title)}\n  {say(NOT_COMPARED)}\n", highlight=False)
            claims += group
    failed = [claim for claim in claims if not claim.holds]
    seconds = time.perf_counter() - started
    where = f"{config.dtype} on {config.device}"
    passed = len(claims) - len(failed)
    line = f"{passed} of {len(claims)} properties hold: {where}, torch {torch.__version__}"
    console.print(Wrapped(say(f"{line}, {seconds:.1f} s")))
    if failed:
        raise ProofError(
            f"{len(failed)} of {len(claims)} properties do not hold, the first: {failed[0].name}"
        )
    return claims


def _numbers_table(precision: Precision, say: Translate) -> Table:
    """Return the published numbers beside our layer's, with the example's weights."""
    tokens, theirs = published_example()
    layer = precision.layer(4, 2, bias=False, batch_first=True)
    copy_weights(theirs, layer.to(precision.device, precision.dtype))
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("tensor", "by", "numbers"):
        table.add_column(say(heading), no_wrap=True)
    ours = published_numbers(layer, precision.cast(tokens))
    for (name, printed), tensor in zip(printed_numbers().items(), ours, strict=True):
        table.add_row(say(name), say("article"), _decimals(printed))
        table.add_row("", say("ours"), _decimals(tensor))
    return table


def _decimals(numbers: Tensor) -> str:
    return "\n".join(" ".join(f"{number:7.4f}" for number in row) for row in numbers.tolist())


def _claims_table(claims: list[Claim], say: Translate) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(say("property"), overflow="fold")
    table.add_column(say("compared with"), overflow="fold")
    for heading in ("abs.", "rel.", "at most"):
        table.add_column(say(heading), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for claim in claims:
        numbers = [claim.absolute, claim.relative, claim.tolerance]
        cells = [f"{number:.0e}" if number else "0" for number in numbers]
        result = say("pass") if claim.holds else f"[bold red]{say('FAIL')}[/]"
        names = [Wrapped(say(claim.name)), Wrapped(say(claim.reference))]
        table.add_row(*names, *cells, result)
    return table
