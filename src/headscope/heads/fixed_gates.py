"""A network with its gates held fixed, which is linear in the vectors of its tokens and its biases.

While `FixedGates` is active, whatever module runs computes what it always computes, but gradients
flow as if three kinds of numbers were constants:

    attention weights     softmax(...)
    scales                1 / sigma of LayerNorm and RMSNorm, and every other divisor
    gates                 g(x) = (f(x) - f(0)) / x of an activation f, whose f(0) is a bias; in a
                          gated block act(g) * u: act(g)

So a logit is the sum, over every vector x of a token and every bias b, of x . d logit / dx and
b . d logit / db (CP-LRP: Ali et al. 2022, XAI for Transformers: Better Explanations through
Conservative Propagation, sections 3 and 4). `headscope.heads.contributions` takes the sums.

Functions are intercepted, not classes (torch.overrides.TorchFunctionMode), and the model is not
changed. A tensor depends on the text's tokens where it requires a gradient: parameters are
constants here. What a rule of this file does not cover, such as the product of two such tensors
neither of which is a gate, leaves a miss, which is computed and shown.

Shape letters: B texts, T tokens, H heads, Q queries, K keys, E head width, D width.
"""

import math
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

from headscope.attention.functional import AttentionCall
from headscope.heads.places import (
    MOVES,
    NONE,
    Owners,
    TextIds,
    carry_owners,
    expanded_owners,
    get_owners,
    owners_of,
    set_owners,
    varies,
)

GATE = "gate"  # the output of an activation, also times or plus a constant
WEIGHTS = "weights"  # of attention
Rule = Callable[..., Any]


class HeadOutputs(NamedTuple):
    """One call of attention: head_outputs = weights @ values."""

    weights: Float[Tensor, "B H Q K"]
    values: Float[Tensor, "B H K E"]
    head_outputs: Tensor  # of the same shape but for Q, or with texts and heads in one dimension
    passed_on: Tensor  # the same numbers, with which the network continues


class FixedGates(TorchFunctionMode):
    """Hold the gates fixed of what runs in the block, and list the leaves of its gradients.

    A vector belongs to the token whose id was looked up, and a constant that is added to it, if it
    is another for each token, too (`headscope.heads.places`). Where ids are unknown, places are
    tokens.

    Args:
        num_texts: B.
        num_tokens: T.
        ids: of the text, negative at padding; None if unknown.
        starts: ids with which a decoder begins.

    Attributes:
        words: vectors of tokens.
        biases: of each constant that is added: how many calls of attention were before, and the
            constant with texts in its first dimension, if there are several.
        calls: the calls of attention, in order.
        named: of each observed layer and run of it, the number of its call; None if unknown.
    """

    def __init__(
        self,
        num_texts: int,
        num_tokens: int,
        ids: Tensor | None = None,
        starts: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()
        self.num_texts = num_texts
        self.num_tokens = num_tokens
        self.ids = TextIds(num_texts, num_tokens, starts)
        if ids is not None:
            self.ids.add(ids)
        self.words: list[Tensor] = []
        self.biases: list[tuple[int, Tensor]] = []
        self.calls: list[HeadOutputs] = []
        self.named: dict[str, int | None] = {}
        self._sequences: list[Owners] = []  # [B, S] of each that was looked up

    @property
    def leaves(self) -> list[Tensor]:
        """All that gradients are taken of: words, then biases."""
        return [*self.words, *(leaf for _, leaf in self.biases)]

    @property
    def layers(self) -> list[str]:
        """Names of the observed layers, in the order in which they ran."""
        order = 0
        places = {}
        for name, number in self.named.items():
            order = order if number is None else number
            places[name] = order
        return sorted(places, key=places.__getitem__)

    @property
    def heads(self) -> dict[str, int]:
        """The numbers of the calls of the observed layers, in order, but for those unknown."""
        return {name: number for name in self.layers if (number := self.named[name]) is not None}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a function by its rule, if it has one."""
        name = _name_of(func)
        args = tuple(map(_without_gradient, args))
        kwargs = {key: _without_gradient(value) for key, value in (kwargs or {}).items()}
        if name not in ADDED_LATER:
            args = tuple(map(self.as_word, args))
            kwargs = {key: self.as_word(value) for key, value in kwargs.items()}
        result = self._computed(name, func, args, kwargs)
        is_new = isinstance(result, Tensor) and get_owners(result) is None
        if is_new and (result.requires_grad or name in ADDED_LATER):
            carry_owners(name, func, args, kwargs, result)
        return result

    def _computed(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rule = RULES.get(name)
        if rule is not None:
            return rule(self, func, *args, **kwargs)
        if isinstance(func, FunctionType) and func.__module__ == "torch.nn.functional":
            with self:  # written in Python: its parts have rules
                return _inside(func)(*args, **kwargs)
        return func(*args, **kwargs)

    def word(self, vectors: Tensor, owners: Owners) -> Tensor:
        """Return the same vectors of tokens, as a leaf."""
        leaf = vectors.detach().clone().requires_grad_()
        self.words.append(set_owners(leaf, owners))
        return set_owners(leaf.clone(), owners)  # so that it may be changed in place

    def as_word(self, value: Any) -> Any:
        """Return a lookup whose tokens are unknown as words, if it is added to none.

        Unless ids of the text were found: then it is something else, such as virtual tokens.
        """
        if get_owners(value) is None or value.requires_grad or self.ids.is_read:
            return value
        return self.word(value, get_owners(value))  # type: ignore[arg-type]

    def looked_up(self, vectors: Tensor, ids: Tensor, table: Tensor) -> Tensor:
        """Return vectors that belong to ids [B, S], [S, B] or, of one text, [S]."""
        B = self.num_texts
        rows = [ids, ids.T] if ids.ndim == 2 else [ids[None]]
        if ids.is_floating_point() or ids.ndim > 2 or not any(len(each) == B for each in rows):
            return vectors
        for each in rows:
            tokens = self.ids.tokens(each, table) if len(each) == B else None
            if tokens is not None:
                owners = owners_of(tokens, self.num_tokens)
                self._sequences.append(owners)
                return self.word(vectors, owners.T if each is not ids else owners)
        if ids.ndim == 2 and ids.numel() >= B * self.num_tokens:
            owners = self.in_order(max(ids.shape) if B == 1 else ids.numel() // B)
            set_owners(vectors, owners if len(ids) == B else owners.T)
        return vectors

    def in_order(self, places: int) -> Owners:
        """Return the owners [B, S] of places that are the tokens; some models pad by themselves."""
        tokens = torch.arange(places).expand(self.num_texts, -1)
        return owners_of(tokens.where(tokens < self.num_tokens, NONE), self.num_tokens)

    def join_owners(self, joined: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Give tensors that are joined the owners of each; what has none is of no token."""
        owned = [get_owners(each) for each in tensors if each.numel()]
        first = next((each for each in owned if each is not None), None)
        if first is None or any(each.ndim != joined.ndim for each in tensors):
            return joined
        T = self.num_tokens
        texts = first.narrow(dim, 0, 1) // (T + 1) * (T + 1)
        parts: list[Tensor] = []
        for each in tensors:
            own = get_owners(each)
            parts.append(texts.expand(each.shape) + T if own is None else own)
        owners = torch.cat(parts, dim)
        in_order = self.in_order(T).to(joined.device)
        if owners.shape[:2] == in_order.shape:
            in_order = expanded_owners(in_order, joined.shape)
            is_none = owners % (T + 1) == T
            if bool((is_none | (owners == in_order)).all()):
                owners = in_order  # what has none stands where tokens are missing, such as [CLS]
        return set_owners(joined, owners)

    def of_tokens(
        self, leaf: Tensor, products: Float[Tensor, "N ..."]
    ) -> Float[Tensor, "N B T_and_1"]:
        """Return the sums of what belongs to each token, and of what is of none, on the CPU."""
        owners: Tensor = get_owners(leaf)  # type: ignore[assignment]
        if owners.stride(-1) == 0:
            owners = owners[..., 0]
            products = products.sum(dim=-1)
        size = (self.num_texts, self.num_tokens + 1)
        sums = torch.zeros(len(products), math.prod(size), dtype=torch.float64)
        sums.index_add_(1, owners.flatten().cpu(), products.flatten(1).cpu().double())
        return sums.view(len(products), *size)

    def constant(self, constant: Any, like: Tensor) -> Any:
        """Return a constant that is added to a tensor as a leaf: of the tokens, or a bias."""
        if not isinstance(constant, Tensor):
            constant = torch.tensor(float(constant), dtype=like.dtype, device=like.device)
        constant = constant.detach().to(like.dtype)
        if constant.numel() == 0 or not bool(constant.isfinite().all()):
            return constant  # nothing; or what hides the numbers that it is added to
        owners = self._owners_of(like)
        shape = like.shape
        if constant.ndim == like.ndim and constant.shape[:-1] == shape[:-1]:  # it may be joined
            shape = constant.shape if constant.shape[-1] > 1 else shape
            owners = None if owners is None else owners[..., :1].expand(shape)
        is_within = owners is not None and _is_within(constant.shape, shape)
        if is_within and varies(owners, constant, self.num_tokens):  # type: ignore[arg-type]
            return self.word(constant.expand(shape), owners)  # type: ignore[arg-type]
        if self.num_texts > 1:
            sizes = [self.num_texts, *[1] * (like.ndim - 1)]
            if like.ndim < 2 or like.shape[0] != self.num_texts:
                sizes = list(like.shape)  # texts and tokens are in one dimension, texts first
            constant = constant.expand(torch.broadcast_shapes(constant.shape, tuple(sizes)))
        leaf: Tensor = constant.clone().requires_grad_()
        self.biases.append((len(self.calls), leaf))
        return leaf

    def _owners_of(self, like: Tensor) -> Owners | None:
        """Return who owns the numbers of a tensor, or of the last sequence of its size."""
        owners = get_owners(like)
        if owners is None and like.ndim == 3:
            sequences = [each for each in self._sequences if each.shape == like.shape[:2]]
            if sequences:
                owners = sequences[-1]
            elif like.shape[:2] == (self.num_texts, self.num_tokens):
                owners = self.in_order(self.num_tokens).to(like.device)
        return None if owners is None else expanded_owners(owners, like.shape)

    def attended(self, weights: Tensor, values: Tensor, head_outputs: Tensor) -> Tensor:
        """Note a call of attention; texts and heads may be in one dimension."""
        if weights.ndim == 3 and weights.shape[1] > 1:
            heads = weights.shape[0] // self.num_texts
            weights = weights.unflatten(0, (self.num_texts, heads))
            values = values.unflatten(0, (self.num_texts, heads))
        if weights.ndim != 4:  # it is a pooling that attends
            return head_outputs
        passed_on = head_outputs.clone()
        call = HeadOutputs(weights.detach(), values.detach(), head_outputs, passed_on)
        self.calls.append(call)
        return passed_on


def _is_within(shape: Sequence[int], outer: Sequence[int]) -> bool:
    """Return whether a tensor of a shape is broadcast to the other one."""
    pairs = zip(reversed(shape), reversed(outer), strict=False)
    return len(shape) <= len(outer) and all(size in (1, other) for size, other in pairs)


def _name_of(func: Any) -> str:
    """Return the name by which a function has a rule: that of add is that of __add__ and add_."""
    name: str = getattr(func, "__name__", "").strip("_")
    attribute = getattr(getattr(func, "__self__", None), "__name__", "")  # such as x.mT
    return attribute if name == "get" and attribute in MOVES else name


def _without_gradient(value: Any) -> Any:
    """Return a parameter, or a list with some, as constants."""
    if isinstance(value, nn.Parameter):
        return value.detach()
    if type(value) in (list, tuple):
        return type(value)(map(_without_gradient, value))
    return value


def _inside(func: FunctionType) -> FunctionType:
    """Return a function of torch.nn.functional that does not look for modes itself."""
    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names_in_it = {**func.__globals__, **dict.fromkeys(names, lambda *_: False)}
    cells = [cell.cell_contents for cell in func.__closure__ or ()]  # as of F.max_pool1d
    inner = [_inside(cell) if isinstance(cell, FunctionType) else cell for cell in cells]
    closure = tuple(map(CellType, inner)) if inner else None
    copy = FunctionType(func.__code__, names_in_it, func.__name__, func.__defaults__, closure)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def named_attention(name: str, call: AttentionCall, is_last: bool = True) -> None:
    """Name a call of attention that an observer was shown, which is the last, if it is in time."""
    if has_torch_function_unary(call.like):
        handle_torch_function(named_attention, (call.like,), name, call, is_last)


def token_vectors(vectors: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Mark vectors that a model is called with as those of the tokens; elsewhere they stay."""
    if has_torch_function_unary(vectors):
        return handle_torch_function(token_vectors, (vectors,), vectors)
    return vectors


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
    return mode.attended(weights, value, head_outputs) if depends(value) else head_outputs


def _product_of_matrices(mode: FixedGates, func: Rule, first: Tensor, second: Tensor) -> Tensor:
    product: Tensor = func(first, second)
    if _role(first) == WEIGHTS and depends(second):
        return mode.attended(first, second, product)
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
    return mode.looked_up(vectors, input, args[0] if args else options["weight"])


def _token_vectors(mode: FixedGates, func: Rule, vectors: Tensor) -> Tensor:
    is_of_tokens = vectors.ndim == 3 and vectors.shape[:2] == (mode.num_texts, mode.num_tokens)
    return mode.word(vectors, mode.in_order(vectors.shape[1])) if is_of_tokens else vectors


def _text_ids(mode: FixedGates, func: Rule, ids: Tensor) -> Tensor:
    mode.ids.add(ids)
    return ids


def _named(
    mode: FixedGates, func: Rule, name: str, call: AttentionCall, is_last: bool = True
) -> None:
    """Find the call by its weights: heads of an attention that uses others are unknown."""
    if name in mode.named:
        return  # by an observer within another
    mode.named[name] = None
    weights = call.weights()
    unnamed = [each for each in range(len(mode.calls)) if each not in mode.named.values()]
    for number in unnamed[-1:] if is_last else unnamed:
        own = mode.calls[number].weights
        if own.shape == weights.shape and torch.allclose(own.to(weights.dtype), weights, atol=1e-3):
            mode.named[name] = number
            return


def _input_vectors(mode: FixedGates, func: Rule, vectors: Tensor) -> Tensor:
    """Leave out the layers of a frozen encoder: its biases are added before the first layer."""
    mode.calls.clear()
    mode.named.clear()
    mode.biases = [(0, leaf) for _, leaf in mode.biases]
    return vectors


def _activation(mode: FixedGates, func: Rule, input: Tensor, *args: Any, **options: Any) -> Tensor:
    """f(x) = f(0) + x g, with g = (f(x) - f(0)) / x held fixed."""
    output: Tensor = func(input.clone(), *args, **options)  # it may work in place
    if not depends(input):
        return output
    with torch.no_grad():
        start = func(input.new_zeros([1] * input.ndim), *args, **options)  # f(0)
        gate = (output - start) / input.masked_fill(input == 0, 1.0)  # 0 at x = 0
    result = input * gate
    if bool(start != 0):
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
    if like is None:
        return func([mode.as_word(each) for each in tensors], *args, **options)
    tensors = [each if depends(each) else mode.constant(each, like) for each in tensors]
    joined = func(tensors, *args, **options)
    return mode.join_owners(joined, tensors, *args, **options)


def _same(mode: FixedGates, func: Rule, input: Any, *args: Any, **options: Any) -> Any:
    """Change the type, or nothing."""
    return _of_base(_with_role(func(input, *args, **options), _role(input)), input)


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
    of_weights, of_values = letters[places[0]], letters[1 - places[0]]
    shared = [each for each in of_weights if each in of_values and each in result]
    keys = [each for each in of_weights if each in of_values and each not in result]
    queries = [each for each in of_weights if each not in of_values]
    widths = [each for each in of_values if each not in of_weights]
    if [*map(len, (shared, keys, queries, widths))] != [2, 1, 1, 1]:
        return func(equation, *operands)  # type: ignore[no-any-return]
    first, last = "".join(shared), widths[0]
    weights = torch.einsum(f"{of_weights}->{first}{queries[0]}{keys[0]}", tensors[places[0]])
    values = torch.einsum(f"{of_values}->{first}{keys[0]}{last}", tensors[1 - places[0]])
    outputs = mode.attended(weights, values, weights @ values)  # [B, H, Q, E]
    return torch.einsum(f"{first}{queries[0]}{last}->{result}", outputs)


# What may be done to the vectors of positions before they are added to those of words
ADDED_LATER = MOVES | {
    *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "truediv"),
    *("to", "type_as", "float", "contiguous", "clone", "dropout", "cat", "concat", "get", "size"),
}
RULES: dict[str, Rule] = {
    "softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "addmm": _addmm,
    "embedding": _embedding,
    "token_vectors": _token_vectors,
    "text_ids": _text_ids,
    "input_vectors": _input_vectors,
    "named_attention": _named,
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
