"""Attention, written to be read and proved.

Where to begin: `functional.py` holds the formula, `multi_head.py` the layer, `reference.py` the textbooks' forms of it.
"""

from headscope.attention.additive import AdditiveAttention
from headscope.attention.functional import attend, attention_weights
from headscope.attention.heads import HeadedAttention
from headscope.attention.masks import merge_masks
from headscope.attention.multi_head import MultiHeadAttention
from headscope.attention.multiplicative import ConcatAttention, DotAttention, GeneralAttention
from headscope.attention.rotary import RotaryPositions
from headscope.attention.shared_projection import SharedProjectionAttention

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
