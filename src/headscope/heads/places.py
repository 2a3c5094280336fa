"""Whose vectors they are: the token of the text that each number of a tensor belongs to.

A model may read a text shifted by one, as decoders do, behind virtual tokens, or with places before
texts. So a vector belongs to the token whose id was looked up for it, and a constant that is added
to it, such as that of a position, to the same token. Who owns a number travels with the tensor.

An owner is text * (T + 1) + token, and token T is none of the text's. Shape letters: B texts, T
tokens, S places of a sequence that is looked up.
"""

from collections.abc import Callable, Sequence
from operator import ge
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

NONE = -1  # a place that is of no token
# What moves numbers, and changes none: owners move with them
MOVES = frozenset(
    (
        *("transpose", "permute", "swapaxes", "swapdims", "movedim", "getitem", "select", "narrow"),
        *("unsqueeze", "squeeze", "flip", "roll", "expand", "expand_as", "broadcast_to", "repeat"),
        *("T", "mT"),
    )
)
Owners = Int[Tensor, "..."]


def text_ids(token_ids: Int[Tensor, "1 T"]) -> Int[Tensor, "1 T"]:
    """Mark ids that a model is called with as those of the text; elsewhere they stay."""
    if has_torch_function_unary(token_ids):
        marked: Tensor = handle_torch_function(text_ids, (token_ids,), token_ids)
        return marked
    return token_ids


def start_ids(model: nn.Module) -> frozenset[int]:
    """Return the ids with which the decoders of a model begin."""
    configs = (getattr(module, "config", None) for module in model.modules())
    ids = (getattr(config, "decoder_start_token_id", None) for config in configs)
    return frozenset(number for number in ids if isinstance(number, int))


def tokens_of_row(row: Sequence[int], text: Sequence[int], starts: frozenset[int]) -> list[int]:
    """Return the token of the text that each id of a row is, NONE where it is none; [] if unknown.

    The ids of the text stand in the row at any place, or the row is a part of them; of a row that
    is as long as the text one may be missing, as it is where a decoder reads the ids shifted by
    one. A decoder may begin with the text's last id, as mBART's does, unless it is in `starts`.
    """
    S = len(row)
    n = len(text)
    expected = max(1, n - 1 if n == S else min(S, n))
    for shift in sorted(range(1 - n, S), key=abs):
        place = max(shift, 0)
        token = max(-shift, 0)
        count = min(S - place, n - token)
        own = text[token : token + count]
        if count >= expected and own == row[place : place + count]:
            tokens = [NONE] * S
            tokens[place : place + count] = range(token, token + count)
            if shift == 1 and row[0] == text[-1] and row[0] not in starts:
                tokens[0] = n - 1
            return tokens
    return []


class TextIds:
    """The ids of the text, and which token each id is that a model looks up.

    Args:
        num_texts: B.
        num_tokens: T.
        starts: see `tokens_of_row`.

    Attributes:
        texts: each [B, T], negative at padding: ids, and what else a caller gives for each token.
        parts: of a text that is given in several tensors, such as a pair.
    """

    def __init__(self, num_texts: int, num_tokens: int, starts: frozenset[int]) -> None:
        self.num_texts = num_texts
        self.num_tokens = num_tokens
        self.starts = starts
        self.texts: list[Tensor] = []
        self.parts: list[Tensor] = []
        self._read: dict[int, Tensor] = {}  # by the address of a table, what was looked up

    def add(self, ids: Int[Tensor, "B T"]) -> None:
        """Take ids, or another number for each token, as those of the text."""
        if ids.numel() > 1 and ids.unique().numel() == 1:
            return  # a mask, or a number that stands for a text
        if ids.shape == (self.num_texts, self.num_tokens):
            self.texts.append(ids)
        elif ids.ndim == 2 and len(ids) == 1:
            self.parts.append(ids)
            if sum(part.shape[1] for part in self.parts) == self.num_tokens:
                self.texts.append(torch.cat(self.parts, dim=1))

    @property
    def is_read(self) -> bool:
        """Whether ids of the text were looked up."""
        return bool(self._read)

    def tokens(self, ids: Int[Tensor, "B S"], table: Tensor) -> Int[Tensor, "B S"] | None:
        """Return the token of each id that is looked up in a table; None if that is unknown.

        Other ids in a table where those of the text were found are of no token. A ValueError, if
        they are those of another text.
        """
        address = table.data_ptr()
        is_known = address in self._read
        for text in self.texts:
            rows = [
                tokens_of_row(row, [number for number in own if number >= 0], self.starts)
                for row, own in zip(ids.tolist(), text.tolist(), strict=True)
            ]
            counts = [sum(token != NONE for token in row) for row in rows]
            lengths = (text >= 0).sum(dim=1).tolist()  # without padding
            needed = [1 if is_known else min(3, length) for length in lengths]
            if all(map(ge, counts, needed)):
                self._check_is_one_text(address, text)
                return torch.tensor(rows, device=ids.device)
        for part in self.parts:
            if part.shape == ids.shape and torch.equal(part, ids):
                self._check_is_one_text(address, part)
        return torch.full_like(ids, NONE) if address in self._read else None

    def _check_is_one_text(self, address: int, text: Tensor) -> None:
        if self._read.setdefault(address, text) is not text:
            raise ValueError(
                f"tokens: expected those of all texts that the module reads, one after the other, "
                f"got {self.num_tokens}, of one of them"
            )


def owners_of(tokens: Int[Tensor, "B S"], num_tokens: int) -> Owners:
    """Return the owners [B, S] of tokens."""
    texts = torch.arange(len(tokens), device=tokens.device)[:, None] * (num_tokens + 1)
    return texts + tokens.where(tokens >= 0, num_tokens)


def get_owners(value: Any) -> Owners | None:
    """Return who owns the numbers of a tensor, of its shape; None if it is unknown."""
    return getattr(value, "_headscope_owners", None)


def set_owners(value: Tensor, owners: Owners) -> Tensor:
    """Keep who owns the numbers of a tensor; `owners` has its first dimensions."""
    owners = expanded_owners(owners.to(value.device), value.shape)
    value._headscope_owners = owners  # type: ignore[attr-defined]
    return value


def expanded_owners(owners: Owners, shape: Sequence[int]) -> Owners:
    """Return owners of the first dimensions as those of all numbers."""
    later = (1,) * (len(shape) - owners.ndim)
    return owners.reshape(*owners.shape, *later).expand(*shape)


def carry_owners(name: str, func: Callable[..., Any], args: Any, options: Any, to: Tensor) -> None:
    """Give the result of a function the owners of its first argument that has them.

    Either the numbers move, or their first dimensions stay and the last are computed anew.
    """
    value = next((each for each in args if get_owners(each) is not None), None)
    if value is None or to.ndim < 2:
        return
    owners: Tensor = get_owners(value)  # type: ignore[assignment]
    if name in MOVES:
        if value is args[0]:
            set_owners(to, func(owners, *args[1:], **options))
    elif to.shape == owners.shape:
        set_owners(to, owners)
    elif to.ndim == owners.ndim and to.shape[:-1] == owners.shape[:-1]:
        set_owners(to, owners[..., :1].expand(to.shape))
    elif to.shape[:2] == owners.shape[:2]:
        set_owners(to, owners.flatten(2)[:, :, 0] if owners.ndim > 2 else owners)


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
