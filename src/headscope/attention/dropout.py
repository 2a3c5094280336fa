"""Dropout that costs little on a CPU, where drawing one random number for each element takes a quarter of training.

torch draws numbers one after the other, on one core. Here the random bits are a function of a seed and of an element's
place, so that all cores draw at once and the bits can be drawn again in the backward pass instead of being kept:
output n of SplitMix64 is a bijective mixing of seed + n * 0x9E3779B97F4A7C15 (Steele, Lea and Flood 2014, Fast
Splittable Pseudorandom Number Generators, section 3). A byte of it decides about an element.
"""

import math
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int8, UInt8
from torch import Tensor, nn

LEVELS = 256  # a byte decides about an element
WORD = 8  # bytes of a random number


def _signed(number: int) -> int:
    """Return the same 64 bits, read as torch reads them: with a sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _bytes(byte: int) -> int:
    """Return a word of eight times this byte."""
    return _signed(int.from_bytes([byte] * WORD, "little"))


GOLDEN = _signed(0x9E3779B97F4A7C15)
MIXERS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, None))


def dropped_levels(p: float) -> int:
    """Return how many of the 256 values of a byte mean that an element is dropped: p, rounded to 1/256."""
    return min(LEVELS - 1, round(p * LEVELS))


def scale(levels: int) -> float:
    """Return what the kept numbers are multiplied by, so that their mean stays: 1 / (1 - levels / 256)."""
    return LEVELS / (LEVELS - levels)


def drawn_seed() -> int:
    """Return a seed drawn by torch's generator, so that torch.manual_seed decides about it."""
    return int(torch.empty((), dtype=torch.int64).random_(-(2**63), None).item())


def random_words(count: int, seed: int, start: int = 0) -> Int[Tensor, " {count}"]:
    """Return outputs start + 1 to start + count of SplitMix64, as signed integers of 64 bits."""
    words = _counters(max(4096, 1 << (count - 1).bit_length()))[:count] + _signed((seed + start * GOLDEN) % 2**64)
    for shift, factor in MIXERS:
        # torch shifts the sign in from the left; the published generator shifts zeros in.
        words.bitwise_xor_((words >> shift).bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            words.mul_(factor)
    return words


@lru_cache(maxsize=32)
def _counters(count: int) -> Int[Tensor, " {count}"]:
    """Return GOLDEN, 2 GOLDEN, ...; kept, since counting takes torch longer than mixing."""
    return torch.arange(1, count + 1).mul_(GOLDEN)


def kept(shape: tuple[int, ...], levels: int, seed: int, start: int = 0) -> UInt8[Tensor, "..."]:
    """Return 1 where an element is kept and 0 where it is dropped.

    Args:
        shape: of the elements.
        levels: of 256; the share that is dropped.
        seed: of the random numbers.
        start: how many random numbers, of eight elements each, were used before.
    """
    return _as_bytes(_kept_words(math.prod(shape), levels, seed, start), shape)


def signs(shape: tuple[int, ...], levels: int, seed: int, start: int = 0) -> Int8[Tensor, "..."]:
    """Return 1 where `kept` says 1 and -1 where it says 0."""
    dropped = _kept_words(math.prod(shape), levels, seed, start).bitwise_xor_(_bytes(1))
    return _as_bytes(dropped.mul_(0xFE).bitwise_or_(_bytes(1)), shape).view(torch.int8)


def _as_bytes(words: Tensor, shape: tuple[int, ...]) -> UInt8[Tensor, "..."]:
    return words.view(torch.uint8)[: math.prod(shape)].view(shape)


def _kept_words(count: int, levels: int, seed: int, start: int) -> Int[Tensor, " words"]:
    """Return words whose bytes are 1 where an element is kept and 0 where it is dropped."""
    words = random_words(words_for(count), seed, start)
    # Eight bytes at once: adding 128 - levels to a byte's lower seven bits sets its highest bit if they are at least
    # `levels`, and nothing is carried into the next byte. Comparing byte by byte takes torch four times as long.
    if levels <= 128:
        words = (words & _bytes(0x7F)).add_(_bytes(128 - levels)).bitwise_or_(words)
    else:
        words = (words & _bytes(0x7F)).add_(_bytes(256 - levels)).bitwise_and_(words)
    return words.bitwise_right_shift_(7).bitwise_and_(_bytes(1))


def words_for(count: int) -> int:
    """Return how many random numbers so many elements use."""
    return -(-count // WORD)


class _Dropped(torch.autograd.Function):
    """numbers * kept * scale, with a byte for each element kept for the backward pass instead of a float."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, levels: int, seed: int) -> Tensor:
        mask, ctx.scale = kept(tuple(numbers.shape), levels, seed), scale(levels)
        ctx.save_for_backward(mask)
        return numbers.mul(mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0].mul(ctx.saved_tensors[0]).mul_(ctx.scale), None, None


class Dropout(nn.Module):
    """Set a share p of the numbers to zero in training and scale the others by 1 / (1 - p) (Srivastava et al. 2014).

    On a CPU p is rounded to a multiple of 1/256, and so is the scale, which keeps the mean right. Elsewhere this is
    torch's own dropout.

    Args:
        p: share of the numbers that are dropped.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, numbers: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the numbers, some of them dropped if in training mode."""
        if not self.training or dropped_levels(self.p) == 0:
            return numbers
        if numbers.device.type != "cpu":
            return F.dropout(numbers, self.p)
        dropped: Tensor = _Dropped.apply(numbers, dropped_levels(self.p), drawn_seed())
        return dropped

    def extra_repr(self) -> str:
        """Say p in the printed model."""
        return f"p={self.p}"
