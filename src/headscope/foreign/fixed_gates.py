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
constants here, and neither `detach` nor `no_grad` ends a path. What comes of the text in another
way (`headscope.foreign.places`), such as a table of pairs of ids, is no constant of the network: it
belongs to a token, or is a part of what is missed. So is what a rule does not cover, such as the
product of two such tensors neither of which is a gate. The miss is computed and shown.

Shape letters: B texts, T tokens, H heads, Q queries, K keys, E head width, D width, N gradients.
"""

import math
from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import (
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function,
)
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from headscope.attention.functional import AttentionCall
from headscope.foreign.gate_rules import RULES
from headscope.foreign.places import (
    MOVES,
    NONE,
    UNKNOWN,
    Owners,
    carry,
    comes_of_text,
    expanded_owners,
    first_tokens,
    get_owners,
    is_within,
    mark,
    owners_of,
    set_owners,
    texts_of,
    varies,
)
from headscope.heads.capture import named_attention
from headscope.model.frozen import input_vectors

# By which attributes are known that are read or set, such as x.mT
ATTRIBUTES = {"get": MOVES | {"data"}, "set": {"requires_grad"}}


class HeadOutputs(NamedTuple):
    """One call of attention: head_outputs = weights @ values."""

    weights: Float[Tensor, "B H Q K"]
    values: Float[Tensor, "B H K E"]
    head_outputs: Tensor  # of the same shape but for Q, or with texts and heads in one dimension
    passed_on: Tensor  # the same numbers, with which the network continues


class FixedGates(TorchFunctionMode):
    """Hold the gates fixed of what runs in the block, and list the leaves of its gradients.

    A vector belongs to the token whose id was looked up, and a constant that is added to it, if it
    is another for each token, too (`headscope.foreign.places`). What the model is called with goes
    through `given` in the block.

    Args:
        num_texts: B.
        num_tokens: T.

    Attributes:
        words: vectors of tokens.
        biases: of each constant that is added: how many calls of attention were before, and the
            constant with texts in its first dimension, if there are several.
        calls: the calls of attention, in order.
        named: of each observed layer and run of it, the number of its call; None if unknown.
    """

    def __init__(self, num_texts: int, num_tokens: int) -> None:
        super().__init__()
        self.num_texts = num_texts
        self.num_tokens = num_tokens
        self.words: list[Tensor] = []
        self.biases: list[tuple[int, Tensor]] = []
        self.calls: list[HeadOutputs] = []
        self.named: dict[str, int | None] = {}
        self.python_has_ids = False  # they were read as numbers, and may come back as a new tensor
        self._given: list[Tensor] = []  # all that are marked, such as ids
        self._read: dict[int, tuple[frozenset[int], Tensor]] = {}  # texts and table, by address

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
        args = tuple(map(_without_gradient, args))
        kwargs = {key: _without_gradient(value) for key, value in (kwargs or {}).items()}
        if (door := DOORS.get(func)) is not None:
            return door(self, *args, **kwargs)
        name = _name_of(func)
        with torch.inference_mode(False):  # gradients are on in it
            result = self._computed(name, func, args, kwargs)
            carry(name, func, args, kwargs, result)
        return result

    def _computed(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rule = RULES.get(name)
        if rule is not None:
            return rule(self, func, *args, **kwargs)
        if isinstance(func, FunctionType) and func.__module__ == "torch.nn.functional":
            with self:  # written in Python: its parts have rules
                return _inside(func)(*args, **kwargs)
        return func(*args, **kwargs)

    def mark_given(self, inputs: Any, padding: Tensor | None = None) -> Any:
        """Return what a model is called with, its tensors marked as the text's.

        Integers [B, T, ...] and vectors [B, T, D] have a place for each token, or several tensors
        together have; what is padding is of none. Other tensors are of the text at large.
        """
        self.python_has_ids = False
        leaves, structure = tree_flatten(inputs)
        tensors = {at: each for at, each in enumerate(leaves) if isinstance(each, Tensor)}
        starts = first_tokens(tensors, self.num_tokens)
        for at, tensor in tensors.items():
            owners = None
            if at in starts and len(tensor) == self.num_texts:
                tokens = torch.arange(tensor.shape[1], device=tensor.device) + starts[at]
                tokens = tokens.expand(self.num_texts, -1)
                if padding is not None and padding.shape == tokens.shape:
                    tokens = tokens.masked_fill(padding, NONE)
                owners = owners_of(tokens, self.num_tokens)
            if tensor.is_floating_point() and owners is not None:
                leaves[at] = self.word(tensor, owners)
                continue
            # Parts of one text are read from one table, and equal texts; others are not
            is_part = owners is not None and tensor.shape[1] != self.num_tokens
            text = NONE if is_part else self._number_of(tensor)
            leaves[at] = mark(tensor.view_as(tensor), frozenset([text]), owners)
            self._given.append(leaves[at])
        return tree_unflatten(leaves, structure)

    def word(self, vectors: Tensor, owners: Owners) -> Tensor:
        """Return the same vectors of tokens, as a leaf."""
        leaf = vectors.detach().clone().requires_grad_()
        self.words.append(set_owners(leaf, owners))
        return set_owners(leaf.clone(), owners)  # so that it may be changed in place

    def looked_up(self, vectors: Tensor, ids: Int[Tensor, "..."], table: Tensor) -> Tensor:
        """Return vectors of a table that belong to the tokens of ids, if these are of the text."""
        ids = self.from_python(ids) if self.python_has_ids else ids
        texts = texts_of(ids)
        if not texts or vectors.requires_grad or not vectors.is_floating_point():
            return vectors
        before, _ = self._read.setdefault(table.data_ptr(), (texts, table))
        if before.isdisjoint(texts):
            raise ValueError(
                f"tokens: expected those of all texts that the module reads, one after the other, "
                f"got {self.num_tokens}, of one of them"
            )
        if (owners := get_owners(ids)) is None:
            return mark(vectors, texts, None)
        return self.word(vectors, owners)

    def from_python(self, numbers: Tensor) -> Tensor:
        """Return a tensor of numbers that may be those of the text, which Python had."""
        if comes_of_text(numbers):
            return numbers
        number = self._number_of(numbers)
        known = self._given[number] if number < len(self._given) else None
        return mark(numbers.view_as(numbers), texts_of(known) or UNKNOWN, get_owners(known))

    def _number_of(self, tensor: Tensor) -> int:
        """Return the number of the given tensor that a tensor equals; else the next number."""
        for number, each in enumerate(self._given):
            if each.shape == tensor.shape and bool((each == tensor).all()):
                return number
        return len(self._given)

    def no_owners(self, like: Tensor) -> Owners | None:
        """Return the owners of numbers that are of no token, if it is known of which texts."""
        if self.num_texts > 1 and like.shape[:1] != (self.num_texts,):
            return None
        owners = self.in_order(self.num_tokens + 1)[:, -1].to(like.device)  # [B]
        return expanded_owners(owners, like.shape) if like.ndim else owners[0]

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
        if owners.ndim and owners.stride(-1) == 0:
            owners = owners[..., 0]
            products = products.sum(dim=-1)
        size = (self.num_texts, self.num_tokens + 1)
        sums = torch.zeros(len(products), math.prod(size), dtype=torch.float64)
        products = products.reshape(len(products), -1)
        sums.index_add_(1, owners.flatten().cpu(), products.cpu().double())
        return sums.view(len(products), *size)

    def of_leaves(
        self, gradients: Sequence[Float[Tensor, "N ..."]], N: int
    ) -> tuple[Float[Tensor, "N B T"], Float[Tensor, "N B layers_and_1"]]:
        """Return each leaf times its gradients: of the tokens, and of the biases of each layer."""
        B = self.num_texts
        biases = torch.zeros(N, B, len(self.calls) + 1, dtype=torch.float64)
        words = torch.zeros(N, B, self.num_tokens, dtype=torch.float64)
        for leaf, gradient in zip(self.words, gradients, strict=False):
            of_tokens = self.of_tokens(leaf, leaf.detach() * gradient)  # [N, B, T + 1]
            words += of_tokens[..., :-1]
            biases[..., 0] += of_tokens[..., -1]
        of_biases = zip(self.biases, gradients[len(self.words) :], strict=False)
        for (layer, leaf), gradient in of_biases:
            products = (leaf.detach() * gradient).cpu()  # MPS has no float64
            biases[..., layer] += products.double().reshape(N, B, -1).sum(dim=-1)
        return words, biases

    def constant(self, constant: Any, like: Tensor, is_joined: bool = False) -> Any:
        """Return a constant that is added to a tensor as a leaf: of the tokens, or a bias.

        One that is joined with the tensor keeps its shape; else it may be expanded to the tensor's.
        """
        if not isinstance(constant, Tensor):
            constant = torch.tensor(float(constant), dtype=like.dtype, device=like.device)
        is_of_text = comes_of_text(constant)
        owners = get_owners(constant)
        constant = constant.detach().to(like.dtype)
        if constant.numel() == 0 or not bool(constant.isfinite().all()):
            return constant  # nothing; or what hides the numbers that it is added to
        if owners is not None:
            return self.word(constant, owners)
        owners = get_owners(like)
        shape = like.shape
        if constant.ndim == like.ndim and constant.shape[:-1] == shape[:-1]:  # it may be joined
            shape = constant.shape if constant.shape[-1] > 1 else shape
            owners = None if owners is None else owners[..., :1].expand(shape)
        fits = owners is not None and is_within(constant.shape, shape)
        fits = fits and (constant.shape == shape or not is_joined)
        if fits and varies(owners, constant, self.num_tokens):  # type: ignore[arg-type]
            return self.word(constant.expand(shape), owners)  # type: ignore[arg-type]
        if is_of_text:
            return constant  # of no token, and no bias: it is missed
        if self.num_texts > 1:
            sizes = [self.num_texts, *[1] * (like.ndim - 1)]
            if like.ndim < 2 or like.shape[0] != self.num_texts:
                sizes = list(like.shape)  # texts and tokens are in one dimension, texts first
            constant = constant.expand(torch.broadcast_shapes(constant.shape, tuple(sizes)))
        leaf: Tensor = constant.clone().requires_grad_()
        self.biases.append((len(self.calls), leaf))
        return leaf

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

    def name_call(self, name: str, call: AttentionCall, is_last: bool = True) -> None:
        """Find a call that was observed: by its output, which is the same, or by its weights.

        Heads of an attention that uses others are unknown.
        """
        if name in self.named:
            return  # by an observer within another
        self.named[name] = None
        unnamed = [each for each in range(len(self.calls)) if each not in self.named.values()]
        for number in unnamed[-1:] if is_last else unnamed:
            own = self.calls[number]
            if tuple(own.weights.shape) == call.shape and _is_same(own, call):
                self.named[name] = number
                return

    def start_layers(self, vectors: Tensor) -> Tensor:
        """Leave out the layers of a frozen encoder: its biases are added before the first layer."""
        self.calls.clear()
        self.named.clear()
        self.biases = [(0, leaf) for _, leaf in self.biases]
        return vectors


def _is_same(own: HeadOutputs, call: AttentionCall) -> bool:
    outputs = call.head_outputs
    if outputs is not None and own.passed_on.numel() == outputs.numel():  # in types that round, too
        return torch.equal(own.passed_on.reshape(outputs.shape), outputs)
    return bool((own.weights - call.weights()).abs().amax() <= 1e-3)


def _name_of(func: Any) -> str:
    """Return the name by which a function has a rule: that of add is that of __add__ and add_."""
    name: str = getattr(func, "__name__", "").strip("_")
    attribute = getattr(getattr(func, "__self__", None), "__name__", "")  # such as x.mT
    return attribute if attribute in ATTRIBUTES.get(name, ()) else name


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


# What other modules tell the FixedGates that is active; elsewhere these do nothing


def given(inputs: Any, padding: Tensor | None = None) -> Any:
    """Mark what a model is called with, tensors in any order and nesting, as the text's."""
    tensors = [each for each in tree_leaves(inputs) if isinstance(each, Tensor)]
    if has_torch_function(tensors):
        return handle_torch_function(given, tensors, inputs, padding)
    return inputs


DOORS: dict[Any, Any] = {
    given: FixedGates.mark_given,
    named_attention: FixedGates.name_call,
    input_vectors: FixedGates.start_layers,
}
