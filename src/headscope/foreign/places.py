"""Whose numbers a tensor has: those of which tokens, or of the text at large.

A tensor that a model is called with is marked as the text's, and what is computed of it, too. So no
place is guessed from the numbers: chunks, shifted and repeated ids know where they come from, and
ids of positions, which begin with `torch.arange`, come from no text.

    owners   of each number its token; None where numbers of several tokens, or of unknown ones,
             are in it
    texts    of which given tensors it is computed; none in particular of a gate, which is held
             fixed; None: a constant of the network

An owner is text * (T + 1) + token, and token T is none of the text's. Shape letters: B texts, T
tokens, S places of a sequence that is looked up.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

NONE = -1  # a place that is of no token
UNKNOWN = frozenset([-2])  # which text numbers are of that Python had
# What moves numbers, and changes none: owners move with them
MOVES = frozenset(
    (
        *("transpose", "permute", "swapaxes", "swapdims", "movedim", "getitem", "select", "narrow"),
        *("unsqueeze", "squeeze", "flip", "roll", "expand", "expand_as", "broadcast_to", "repeat"),
        *("T", "mT"),
    )
)
# Of ids these, too; of vectors, which may be those of windows or of heads by then, nobody asks
MOVES_OF_IDS = MOVES | {
    *("t", "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "chunk"),
    *("split", "split_with_sizes", "tensor_split", "unbind", "unfold", "gather", "index_select"),
    *("take_along_dim", "masked_select", "repeat_interleave", "tile"),
}
# What computes each number of those at its place
BY_PLACE = frozenset(
    (
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "invert", "iand", "ior", "isin"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or"),
        *("logical_not", "lshift", "rshift", "add", "radd", "iadd", "sub", "rsub", "isub", "mul"),
        *("rmul", "imul", "floordiv", "floor_divide", "mod", "fmod", "remainder", "div", "truediv"),
        *("neg", "abs", "to", "type", "long", "int", "short", "bool", "float", "double", "half"),
        *("bfloat16", "type_as", "clone", "contiguous", "detach", "data", "cpu", "cuda", "clamp"),
        *("clip", "minimum", "maximum", "where", "masked_fill", "copy", "nan_to_num"),
    )
)
# What reads of its arguments, or of those behind the first, the shape or type alone
OF_SHAPE = frozenset(
    (
        *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "get"),
        *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "randint_like", "set"),
    )
)
FIRST_ALONE = frozenset(("to", "type_as", "expand_as", "view_as", "reshape_as", "type"))
Owners = Int[Tensor, "..."]


def get_owners(value: Any) -> Owners | None:
    """Return who owns the numbers of a tensor, of its shape; None if it is unknown."""
    return getattr(value, "_headscope_owners", None)


def texts_of(value: Any) -> frozenset[int] | None:
    """Return of which given tensors a tensor is computed; None if of none."""
    return getattr(value, "_headscope_texts", None)


def comes_of_text(value: Any) -> bool:
    """Return whether a tensor is computed of the text, by gates or whatever else, too."""
    return isinstance(value, Tensor) and (value.requires_grad or texts_of(value) is not None)


def texts_in(values: Iterable[Tensor]) -> frozenset[int]:
    """Return of which given tensors some tensors are computed, apart from gates."""
    return frozenset().union(*(texts_of(each) or () for each in values))


def set_owners(value: Tensor, owners: Owners) -> Tensor:
    """Keep who owns the numbers of a tensor; `owners` has its first dimensions."""
    owners = expanded_owners(owners.to(value.device), value.shape)
    value._headscope_owners = owners  # type: ignore[attr-defined]
    return value


def mark(value: Tensor, texts: frozenset[int], owners: Owners | None) -> Tensor:
    """Keep that a tensor comes of the text, and who owns its numbers."""
    value._headscope_texts = texts  # type: ignore[attr-defined]
    value._headscope_owners = None  # type: ignore[attr-defined]
    return value if owners is None else set_owners(value, owners)


def owners_of(tokens: Int[Tensor, "B S"], num_tokens: int) -> Owners:
    """Return the owners [B, S] of tokens, some of them NONE."""
    texts = torch.arange(len(tokens), device=tokens.device)[:, None] * (num_tokens + 1)
    return texts + tokens.where(tokens >= 0, num_tokens)


def expanded_owners(owners: Owners, shape: Sequence[int]) -> Owners:
    """Return owners of the first dimensions as those of all numbers."""
    later = (1,) * (len(shape) - owners.ndim)
    return owners.reshape((*owners.shape, *later)).expand(tuple(shape))


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments, or in lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def carry(name: str, func: Callable[..., Any], args: Any, options: Any, result: Any) -> None:
    """Mark what a function made of tensors that come of the text; rules may have marked it."""
    if name in OF_SHAPE:
        return
    given = [*tensors_in(args[:1] if name in FIRST_ALONE else (*args, *options.values()))]
    are_of_text = [*map(comes_of_text, given)]
    if not any(are_of_text):
        return
    texts = texts_in(given)
    owners = None
    for number, each in enumerate(tensors_in([result])):
        if not (texts or each.requires_grad or all(are_of_text)):
            continue  # a constant that gates choose or pass on, as those of experts, is a bias
        is_changed = each is args[0] and not each.requires_grad
        if get_owners(each) is None or is_changed:
            if owners is None:
                owners = _carried_owners(name, func, args, options, given, result)
            own = owners[number] if number < len(owners) else None
            if own is not None and own.shape == each.shape:
                set_owners(each, own)
            elif is_changed:
                mark(each, texts, None)
        if not each.requires_grad:
            each._headscope_texts = texts  # type: ignore[attr-defined]
            if is_changed and each._base is not None:  # it is a view
                mark(each._base, texts, None)


def _carried_owners(
    name: str, func: Callable[..., Any], args: Any, options: Any, given: Any, result: Any
) -> list[Owners]:
    """Return the owners of the tensors that a function returns; [] if they are unknown."""
    if name == "copy":
        given = [each for each in given if each is not args[0]]
    owned = [each for each in given if get_owners(each) is not None]
    if not owned:
        return []
    own: Tensor = get_owners(owned[0])  # type: ignore[assignment]
    is_vector = isinstance(result, Tensor) and result.requires_grad
    if name in (MOVES if is_vector else MOVES_OF_IDS) and owned[0] is args[0]:
        own = own.contiguous() if name.startswith("view") else own
        return [*tensors_in([func(own, *args[1:], **options)])]
    if not isinstance(result, Tensor):
        return []
    if is_vector:
        return _owners_of_vectors(own, result)
    if name in MOVES_OF_IDS and result.shape[: own.ndim] == own.shape:  # from a table of numbers
        return [expanded_owners(own, result.shape)]
    return _owners_by_place(given, result) if name in BY_PLACE else []


def _owners_by_place(given: Sequence[Tensor], result: Tensor) -> list[Owners]:
    """Return the owners of numbers that are computed place by place, of one token each."""
    owners = [get_owners(each) for each in given if comes_of_text(each)]
    known = [own for own in owners if own is not None and is_within(own.shape, result.shape)]
    found = [own.expand(result.shape) for own in known]
    is_one = len(found) == len(owners) and all(torch.equal(found[0], each) for each in found[1:])
    return found[:1] if is_one else []


def _owners_of_vectors(own: Owners, result: Tensor) -> list[Owners]:
    """Return the owners where the first dimensions stay and the last are computed anew."""
    if result.shape == own.shape:
        return [own]
    if result.ndim == own.ndim > 1 and result.shape[:-1] == own.shape[:-1]:
        return [own[..., :1].expand(result.shape)]
    if result.ndim > 1 and result.shape[:2] == own.shape[:2]:
        own = own.flatten(2)[:, :, 0] if own.ndim > 2 else own
        return [expanded_owners(own, result.shape)]
    return []


def is_within(shape: Sequence[int], outer: Sequence[int]) -> bool:
    """Return whether a tensor of a shape is broadcast to the other one."""
    pairs = zip(reversed(shape), reversed(outer), strict=False)
    return len(shape) <= len(outer) and all(size in (1, other) for size, other in pairs)


def varies(owners: Owners, constant: Tensor, num_tokens: int) -> bool:
    """Return whether a constant that is added to owned numbers is another for each token.

    It has then a dimension along which a text's owner is another. Along that of texts the tokens
    are others too where texts are padded, but what it has there is of a text, and no token's.
    """
    sizes = owners.shape
    for dim, step in enumerate(owners.stride()):
        if step == 0:  # repeated, most often D times: nothing varies there
            owners = owners.narrow(dim, 0, 1)
    texts = owners // (num_tokens + 1)
    for dim in range(1, constant.ndim + 1):
        if not 1 < constant.shape[-dim] == sizes[-dim]:
            continue
        is_of_text = texts == texts.narrow(-dim, 0, 1)
        if bool((is_of_text & (owners != owners.narrow(-dim, 0, 1))).any()):
            return True
    # Of one token nothing varies: what has its dimension is taken for its own
    return num_tokens == 1 and owners.ndim == 3 and constant.ndim in (2, 3)


def first_tokens(tensors: dict[int, Tensor], num_tokens: int) -> dict[int, int]:
    """Return the first token of those tensors that have places: integers, masks and vectors.

    A mask has integers that are 0 or 1. Ids may be, too: they are one group if all find places.
    """
    whole = [at for at, it in tensors.items() if it.ndim > 1 and not it.is_floating_point()]
    vectors = [at for at, it in tensors.items() if it.ndim > 2 and it.is_floating_point()]
    groups = [whole, vectors]
    if None in _starts_of([tensors[at].shape[1] for at in whole], num_tokens):
        masks = [at for at in whole if bool(((it := tensors[at]) == it.bool()).all())]
        groups = [[at for at in whole if at not in masks], masks, vectors]
    starts: dict[int, int] = {}
    for group in groups:
        places = _starts_of([tensors[at].shape[1] for at in group], num_tokens)
        starts |= {at: place for at, place in zip(group, places, strict=True) if place is not None}
    return starts


def _starts_of(sizes: Sequence[int], num_tokens: int) -> list[int | None]:
    """Return the first token of each given tensor, by its number of places; None if unknown.

    It has all tokens, or it is a part of a text that is given in several, one after the other.
    """
    parts = [size for size in sizes if size != num_tokens]
    firsts = [end - size for end, size in zip(accumulate(parts), parts, strict=True)]
    is_whole = sum(parts) % num_tokens == 0
    pairs = zip(firsts, parts, strict=True)
    is_whole = is_whole and all(at % num_tokens + size <= num_tokens for at, size in pairs)
    starts = iter([at % num_tokens if is_whole else None for at in firsts])
    return [0 if size == num_tokens else next(starts) for size in sizes]
