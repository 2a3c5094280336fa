"""Attention, written to be read and proved.

Begin with `functional.py`, the formula and its masks, then `multi_head.py`, the layer. `rotary.py`
has rotary positions, `variants.py` other layers, `reference.py` the textbooks' forms.
"""

from headscope.attention.functional import attend, attention_weights, merge_masks
from headscope.attention.multi_head import HeadedAttention, MultiHeadAttention
from headscope.attention.rotary import RotaryPositions
from headscope.attention.variants import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    GeneralAttention,
    SharedProjectionAttention,
)

__all__ = [
    "AdditiveAttention",
    "ConcatAttention",
    "DotAttention",
    "GeneralAttention",
    "HeadedAttention",
    "MultiHeadAttention",
    "RotaryPositions",
    "SharedProjectionAttention",
    "attend",
    "attention_weights",
    "merge_masks",
]
