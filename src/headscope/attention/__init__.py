"""Attention, written to be read and proved: `attention_weights`, `attend` and the layer `MultiHeadAttention`."""

from headscope.attention.functional import attend, attention_weights
from headscope.attention.multi_head import MultiHeadAttention
from headscope.attention.rotary import RotaryPositions

__all__ = ["MultiHeadAttention", "RotaryPositions", "attend", "attention_weights"]
