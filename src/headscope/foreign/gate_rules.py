"""What a function computes while gates are held fixed: the rules of `foreign.fixed_gates`.

A rule gets the active `FixedGates`, the function and its arguments, and returns what the function
does, with the gradients that the sum needs. Roles tell the rules what a tensor is.
"""

import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from headscope.foreign.places import (
    MOVES,
    comes_of_text,
    get_owners,
    mark,
    set_owners,
    tensors_in,
    texts_in,
)

FixedGates = Any  # of `foreign.fixed_gates`, which stands on these rules
GATE = "gate"  # the output of an activation, also times or plus a constant
WEIGHTS = "weights"  # of attention
ROWS = "rows"  # of integers, one 1 in each
Rule = Callable[..., Any]


def depends(value: Any) -> bool:
    """Return whether a value depends on the text's tokens."""
    return isinstance(value, Tensor) and value.requires_grad


def _role(value: Any) -> str | None:
    return getattr(value, "_headscope_role", None)


def _with_role(value: Any, role: str | None) -> Any:
    if role is not None and isinstance(value, Tensor):
        value._headscope_role = role  # type: ignore[attr-defined]
    return value


def _base(value: Any) -> Any:
    """Return what a tensor is a function of, number by number: itself, if of nothing else."""
    return getattr(value, "_headscope_base", value)


def _of_base(value: Any, *inputs: Any) -> Any:
    """Keep what a tensor is a function of, if that is one tensor."""
    bases = [_base(each) for each in inputs if depends(each)]
    is_of_one = isinstance(value, Tensor) and bases and all(each is bases[0] for each in bases)
    if is_of_one and value is not bases[0]:
        value._headscope_base = bases[0]
    return value


# The rules: what a function computes instead. `mode` is the FixedGates that is active


def _softmax(mode: FixedGates, func: Rule, *args: Any, **options: Any) -> Tensor:
    return _with_role(func(*args, **options).detach(), WEIGHTS)  # type: ignore[no-any-return]


def _scale(mode: FixedGates, func: Rule, *args: Any, **options: Any) -> Tensor:
    """1 / sigma, and 1 / x."""
    return func(*args, **options).detach()  # type: ignore[no-any-return]


def _attention(
    mode: FixedGates,
    func: Rule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale Q K^T + mask) V, as torch.nn.functional.scaled_dot_product_attention."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(repeats, dim=-3)
        value = value.repeat_interleave(repeats, dim=-3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query.detach() * scale) @ key.detach().transpose(-2, -1)  # [..., Q, K]
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.detach()
    weights = scores.softmax(dim=-1).nan_to_num()  # a query that sees no key: zeros
    head_outputs = weights @ value
    if not depends(value):
        return head_outputs
    return mode.attended(weights, value, head_outputs)  # type: ignore[no-any-return]


def _product_of_matrices(mode: FixedGates, func: Rule, first: Tensor, second: Tensor) -> Tensor:
    product: Tensor = func(first, second)
    if _role(first) == WEIGHTS and depends(second):
        return mode.attended(first, second, product)  # type: ignore[no-any-return]
    return product


def _layer_norm(
    mode: FixedGates,
    func: Rule,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
    **__: Any,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    centered = input - input.mean(dim=dims, keepdim=True)
    normed = _scaled(centered, dims, weight, eps)
    return normed if bias is None else _sum(mode, torch.add, normed, bias)


def _rms_norm(
    mode: FixedGates,
    func: Rule,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    return _scaled(input, dims, weight, torch.finfo(input.dtype).eps if eps is None else eps)


def _scaled(vectors: Tensor, dims: tuple[int, ...], weight: Tensor | None, eps: float) -> Tensor:
    """Return gamma x / sigma, with sigma^2 = mean(x^2) + eps held fixed."""
    variance = vectors.detach().square().mean(dim=dims, keepdim=True)
    scaled = vectors * (variance + eps).rsqrt()
    return scaled if weight is None else scaled * weight


def _linear(
    mode: FixedGates, func: Rule, input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    if bias is None or not depends(input):
        return func(input, weight, bias)  # type: ignore[no-any-return]
    output: Tensor = func(input, weight)
    return output + mode.constant(bias, output)  # type: ignore[no-any-return]


def _addmm(mode: FixedGates, func: Rule, added: Tensor, first: Tensor, second: Tensor) -> Tensor:
    output: Tensor = _sum(mode, torch.add, first @ second, added)
    return output


def _affine(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """Compute a function that is linear but for a constant, f(0)."""
    output: Tensor = func(input, *args, **options)
    if not depends(input):
        return output
    constant = func(torch.zeros_like(input), *args, **options).detach()
    return output - constant + mode.constant(constant, output)  # type: ignore[no-any-return]


def _embedding(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Tensor:
    vectors: Tensor = func(input, *args, **options)
    parts = (input, args[0] if args else options["weight"])
    # Of torch.embedding the table is first
    ids, table = reversed(parts) if input.is_floating_point() else parts
    return mode.looked_up(vectors, ids, table)  # type: ignore[no-any-return]


def _item(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    """Take some numbers, or the rows of a table: input[ids], input.index_select(0, ids)."""
    index = args[-1] if args else None
    if isinstance(index, int) and not comes_of_text(input):
        return _from_python(mode, func, input, *args, **options)
    is_of_rows = len(args) == 1 or args[0] == 0
    if not isinstance(index, Tensor) or not is_of_rows or comes_of_text(input):
        return _moved(mode, func, input, *args, **options)
    if index.is_floating_point() or index.dtype == torch.bool:
        return func(input, *args, **options)
    return mode.looked_up(func(input, *args, **options), index, input)


def _embedding_bag(mode: FixedGates, func: Rule, /, *args: Any, **options: Any) -> Tensor:
    """Pool the vectors of ids [B, S], or of [N] from offsets on."""
    pooled: Tensor = func(*args, **options)
    if get_owners(args[0]) is None:
        return pooled
    arguments = signature(func).bind(*args, **options)
    arguments.apply_defaults()
    given = arguments.arguments
    ids = given["input"]
    table = given["weight"]
    vectors = mode.looked_up(table[ids], ids, table).flatten(0, -2)  # [N, D]
    places = torch.arange(ids.numel(), device=ids.device)
    starts = places[:: ids.shape[-1]] if given["offsets"] is None else given["offsets"]
    starts = starts[: len(pooled)].contiguous()
    bags = torch.searchsorted(starts, places, right=True)  # [N], from 1 on
    is_own = bags == torch.arange(1, 1 + len(pooled), device=ids.device)[:, None]  # [bags, N]
    if given["padding_idx"] is not None:
        is_own &= ids.flatten() != given["padding_idx"]
    if given["mode"] == "max":
        rebuilt = vectors.masked_fill(~is_own[..., None], -math.inf).amax(dim=1)
        return _as_computed(rebuilt.where(rebuilt.isfinite(), 0.0), pooled)
    weights = given["per_sample_weights"]
    shares = is_own.to(table.dtype) if weights is None else is_own * weights.flatten()
    if given["mode"] == "mean":
        shares = shares / is_own.sum(dim=1, keepdim=True).clamp(min=1)
    return _as_computed(shares @ vectors, pooled)


def _as_computed(rebuilt: Tensor, output: Tensor) -> Tensor:
    """Return an output with the gradient of what it was rebuilt as; their difference is missed."""
    return rebuilt + (output - rebuilt).detach()


def _one_hot(mode: FixedGates, func: Rule, ids: Tensor, *args: Any, **options: Any) -> Tensor:
    """Rows that pick those of a table; they are integers, so vectors of tokens only once floats."""
    rows: Tensor = func(ids, *args, **options)
    owners = get_owners(ids)
    return rows if owners is None else _with_role(set_owners(rows, owners), ROWS)


def _added_at(
    mode: FixedGates, func: Rule, input: Tensor, dim: int, index: Tensor, *args: Any, **options: Any
) -> Tensor:
    """Add numbers at the places of ids, as scatter_add and index_add do: a word adds its own."""
    owners = get_owners(index)
    added = args[0] if args else None
    if owners is not None and isinstance(added, Tensor) and not comes_of_text(added):
        # scatter_add takes as many as there are ids
        added = added[tuple(map(slice, index.shape))] if index.ndim == added.ndim else added
        is_by_row = index.ndim == added.ndim or dim == 0
        args = (mode.word(added, owners) if is_by_row else added, *args[1:])
    return func(input, dim, index, *args, **options)  # type: ignore[no-any-return]


def _set_item(mode: FixedGates, func: Rule, input: Tensor, index: Any, value: Any) -> None:
    """Write some numbers, as a decoder's ids are shifted: what is written keeps its owners."""
    func(input, index, value)
    texts = texts_in([*tensors_in([input, value])])
    if depends(input) or not texts:
        return
    none = mode.no_owners(input)
    before, own = (get_owners(it) if comes_of_text(it) else none for it in (input, value))
    mark(input, texts, None)
    if none is not None and before is not None and own is not None:
        owners = before.clone()
        owners[index] = own if comes_of_text(value) else none[index]
        set_owners(input, owners)


def _padded(
    mode: FixedGates, func: Rule, /, input: Tensor, pad: Any, *args: Any, **options: Any
) -> Tensor:
    """Pad; numbers that are added to ids are of no token. Of vectors windows may be made."""
    padded: Tensor = func(input, pad, *args, **options)
    own = get_owners(input)
    none = mode.no_owners(padded)
    if own is not None and none is not None and not depends(padded):
        moved = func(own, pad, args[0] if args else "constant", *[-1] * (len(args) > 1))
        set_owners(padded, torch.where(moved < 0, none, moved))
    return padded


def _quantized_linear(
    mode: FixedGates, func: Rule, input: Tensor, packed: Any, **options: Any
) -> Tensor:
    """Compute x W^T + b as quantize_dynamic has it: W is rounded, and so is x."""
    output: Tensor = func(input.detach(), packed, **options)
    if not depends(input):
        return output
    weight, bias = packed.unpack()
    weight = weight.dequantize() if weight.is_quantized else weight
    parts = (weight.detach().to(input.dtype), None if bias is None else bias.detach())
    rebuilt = _linear(mode, torch.nn.functional.linear, input, *parts)
    return _as_computed(rebuilt, output)


def _detached(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    """Let the gradient pass: what does not learn is read all the same."""
    if not depends(input):
        return func(input, *args, **options)
    return _same(mode, Tensor.view_as, input, input)


def _gradient_flag(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    return input if depends(input) else func(input, *args, **options)


def _from_python(mode: FixedGates, func: Rule, *args: Any, **options: Any) -> Tensor:
    made: Tensor = func(*args, **options)
    return mode.from_python(made) if mode.python_has_ids else made


def _numbers(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Any:
    """Leave torch, as by tolist and numpy; not by the length of a text alone."""
    numbers = func(input.detach(), *args, **options)
    is_of_words = input.numel() > 1 or get_owners(input) is not None
    if texts_in([input]) and is_of_words and not isinstance(numbers, Tensor):  # as x.int() is
        mode.python_has_ids = True
    return numbers


def _activation(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """f(x) = f(0) + x g, with g = (f(x) - f(0)) / x held fixed."""
    output: Tensor = func(input.clone(), *args, **options)  # it may work in place
    if not depends(input):
        return output
    with torch.no_grad():
        start = func(input.new_zeros([1] * input.ndim), *args, **options)  # f(0)
        gate = (output - start) / input.masked_fill(input == 0, 1.0)  # 0 at x = 0
    result = input * gate
    if bool((start != 0).any()):
        if any(map(depends, tensors_in((*args, *options.values())))):
            mark(start, texts_in([]), None)  # as a bound of clamp may be
        result = result + mode.constant(start, result)
    return _of_base(_with_role(result, GATE), input)  # type: ignore[no-any-return]


def _sum(mode: FixedGates, func: Rule, first: Any, second: Any, *args: Any, **options: Any) -> Any:
    """Add or subtract: a constant beside what depends on the tokens is one of theirs, or a bias."""
    role = None
    inputs = (first, second)
    if depends(first) and not depends(second):
        role = _role(first)
        second = mode.constant(second, first)
    elif depends(second) and not depends(first):
        role = _role(second)
        first = mode.constant(first, second)
        if depends(first):
            first = first.clone()  # it may be changed in place
    return _of_base(_with_role(func(first, second, *args, **options), role), *inputs)


def _product(mode: FixedGates, func: Rule, first: Any, second: Any, **options: Any) -> Any:
    """Multiply; of two numbers that depend on the tokens, one is a gate."""
    role = _role(first) or _role(second)
    inputs = (first, second)
    if depends(first) and depends(second):
        # x times a gate of x is an activation, written out; else it is a gated block
        is_of_one = _base(first) is _base(second)
        role = GATE if is_of_one else None
        if _role(second) == GATE and _role(first) != GATE:
            second = second.detach()
        elif _role(first) == GATE or is_of_one:
            first = first.detach()
    return _of_base(_with_role(func(first, second, **options), role), *inputs)


def _quotient(mode: FixedGates, func: Rule, first: Any, second: Any, **options: Any) -> Any:
    """Divide by a scale."""
    divisor = second.detach() if isinstance(second, Tensor) else second
    return _of_base(_with_role(func(first, divisor, **options), _role(first)), first)


def _reversed_quotient(mode: FixedGates, func: Rule, divisor: Tensor, first: Any) -> Any:
    return first / divisor.detach()


def _power(mode: FixedGates, func: Rule, base: Any, exponent: Any, **options: Any) -> Any:
    if not depends(base):
        return func(base, exponent, **options)
    if isinstance(exponent, int | float) and exponent < 0:  # x^(-1/2) is a scale
        return _scale(mode, func, base, exponent, **options)
    return _activation(mode, func, base, exponent, **options)


def _choice(mode: FixedGates, func: Rule, *args: Any, **options: Any) -> Any:
    """torch.where(condition, value, other), or value.where(condition, other)."""
    if len(args) != 3:
        return func(*args, **options)
    condition, value, other = args
    if condition.dtype != torch.bool:
        value, condition, other = args
    if depends(value) and not depends(other):
        other = mode.constant(other, value)
    elif depends(other) and not depends(value):
        value = mode.constant(value, other)
    result = torch.where(condition, value, other)
    is_of_one = depends(value) and _base(value) is _base(other)
    return _of_base(_with_role(result, GATE), value) if is_of_one else result


def _clamped(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Any:
    """Take the smaller or larger of x and a constant, an activation; or of all x, one of them."""
    if len(args) == 1 and isinstance(args[0], Tensor) and depends(input) != depends(args[0]):
        constant, value = sorted([input, args[0]], key=depends)
        return _activation(mode, lambda x: func(x, constant), value)
    return func(input, *args, **options)


def _filled(mode: FixedGates, func: Rule, input: Tensor, mask: Tensor, value: Any) -> Any:
    if not depends(input) or not value:
        return _with_role(func(input, mask, value), _role(input))
    return torch.where(mask, mode.constant(value, input), input)


def _joined(mode: FixedGates, func: Rule, tensors: Any, *args: Any, **options: Any) -> Any:
    like = next(filter(depends, tensors), None)
    if like is not None:
        tensors = [each if depends(each) else mode.constant(each, like, True) for each in tensors]
    dim = options.get("axis", args[0] if args else options.get("dim", 0))
    return mode.join_owners(func(tensors, *args, **options), tensors, dim)


def _same(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    """Change the type, or nothing."""
    result = func(input, *args, **options)
    if _role(input) == ROWS and result.is_floating_point():
        return mode.word(result, get_owners(input))
    return _of_base(_with_role(result, _role(input)), input)


def _moved(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    """Move numbers, or take some: of weights those of the tokens, where a sink has a column."""
    return _with_role(func(input, *args, **options), _role(input))


def _einsum(mode: FixedGates, func: Rule, equation: Any, *operands: Any) -> Tensor:
    """Attention as a product of weights and values: summed over the keys, which only they have."""
    tensors = operands[0] if isinstance(operands[0], list | tuple) else operands
    given, _, result = equation.replace(" ", "").partition("->")
    letters = given.split(",")
    places = [place for place, each in enumerate(tensors) if _role(each) == WEIGHTS]
    if len(tensors) != 2 or len(places) != 1 or not depends(tensors[1 - places[0]]):
        return func(equation, *operands)  # type: ignore[no-any-return]
    of_weights = letters[places[0]]
    of_values = letters[1 - places[0]]
    shared = [each for each in of_weights if each in of_values and each in result]
    keys = [each for each in of_weights if each in of_values and each not in result]
    queries = [each for each in of_weights if each not in of_values]
    widths = [each for each in of_values if each not in of_weights]
    if [*map(len, (shared, keys, queries, widths))] != [2, 1, 1, 1]:
        return func(equation, *operands)  # type: ignore[no-any-return]
    first = "".join(shared)
    last = widths[0]
    weights = torch.einsum(f"{of_weights}->{first}{queries[0]}{keys[0]}", tensors[places[0]])
    values = torch.einsum(f"{of_values}->{first}{keys[0]}{last}", tensors[1 - places[0]])
    outputs = mode.attended(weights, values, weights @ values)  # [B, H, Q, E]
    return torch.einsum(f"{first}{queries[0]}{last}->{result}", outputs)


RULES: dict[str, Rule] = {
    "softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "addmm": _addmm,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "one_hot": _one_hot,
    "where": _choice,
    "masked_fill": _filled,
    "pow": _power,
    "rtruediv": _reversed_quotient,
    **dict.fromkeys(("rsqrt", "reciprocal"), _scale),
    **dict.fromkeys(("matmul", "bmm"), _product_of_matrices),
    **dict.fromkeys(("batch_norm", "conv1d"), _affine),
    **dict.fromkeys(("add", "radd", "iadd", "sub", "rsub", "isub", "subtract"), _sum),
    **dict.fromkeys(("mul", "rmul", "imul", "multiply"), _product),
    **dict.fromkeys(("div", "truediv", "itruediv", "divide"), _quotient),
    **dict.fromkeys(("cat", "concat", "stack"), _joined),
    **dict.fromkeys(("to", "type_as", "float", "contiguous", "clone", "dropout"), _same),
    **dict.fromkeys(("half", "bfloat16", "double", "type", "nan_to_num"), _same),
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", *MOVES), _moved),
    **dict.fromkeys(("getitem", "index_select"), _item),
    **dict.fromkeys(("scatter_add", "index_add"), _added_at),
    **dict.fromkeys(("linear_dynamic", "linear_dynamic_fp16"), _quantized_linear),
    **dict.fromkeys(("detach", "data"), _detached),
    **dict.fromkeys(("tolist", "numpy", "array", "item", "int", "index"), _numbers),
    "requires_grad": _gradient_flag,
    **dict.fromkeys(("tensor", "as_tensor"), _from_python),
    "setitem": _set_item,
    "pad": _padded,
    "einsum": _einsum,
    **dict.fromkeys(("min", "max", "minimum", "maximum"), _clamped),
    **dict.fromkeys(
        (
            *("relu", "gelu", "silu", "tanh", "sigmoid", "erf", "elu", "selu", "celu", "mish"),
            *("softplus", "leaky_relu", "prelu", "hardtanh", "relu6", "hardswish", "hardsigmoid"),
            *("logsigmoid", "softsign", "square", "exp", "expm1", "sqrt", "abs", "clamp", "clip"),
            *("sin", "cos", "log", "log1p", "exp2"),
        ),
        _activation,
    ),
}
