"""Multi-head attention, a drop-in for torch.nn.MultiheadAttention.

    MultiHead(Q, K, V) = Concat(head_1 ... head_H) W^O
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

(Vaswani et al. 2017, Attention Is All You Need, section 3.2.2.) `MultiHeadAttention.forward` is the
whole layer: merge the masks, project the tokens to queries, keys and values, split these into
heads, attend, merge the heads, project the output. `HeadedAttention.attend_heads` is its middle
part, the formula beside the fused kernel.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    Ablation,
    AttentionCall,
    Keys,
    Mask,
    ObservedAttention,
    Queries,
    Rows,
    Weights,
    apply_dropout,
    attend,
    attention_weights,
    check_mask,
    check_probability,
    check_shapes,
    merge_masks,
)
from headscope.attention.rotary import RotaryPositions


class HeadedAttention(ObservedAttention):
    """What multi-head layers share: attention of every head, once all is projected.

    Arguments are those of `MultiHeadAttention`. `headscope.heads.capture.ablate` sets
    `ablation`: the heads whose output is zero, or whose map is uniform.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(
                f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}"
            )
        check_probability(dropout)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.rotary = rotary
        self.ablation: Ablation | None = None

    @property
    def output_projection(self) -> nn.Linear:
        """The layer of W^O and b^O, applied to the merged heads."""
        raise NotImplementedError

    def split_heads(self, tokens: Float[Tensor, "B T HE"]) -> Float[Tensor, "B H T E"]:
        """Split each token's vector into heads of E numbers; a view, nothing is copied."""
        heads: Tensor = tokens.unflatten(-1, (-1, self.head_dim))  # [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]

    def attend_heads(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        mask: Mask | None,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "B Q D"], Weights | None]:
        """Return Concat(head_1 ... head_H), head_i = Attention(Q_i, K_i, V_i), and the weights.

        Args:
            query: projected queries of all heads.
            key: projected keys.
            value: projected values.
            mask: True where a query must not attend to a key, or numbers added to the scores.
            need_weights: compute the weights; else None is returned for them.
            is_causal: as in `attend`; only without mask, weights and observers.
        """
        if self.rotary is not None:
            query = self.rotary(query)
            key = self.rotary(key)
        if self.ablation is not None:
            query, mask = self.ablation.inputs(query, mask)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = attention_weights(query, key, mask)  # A [B, H, Q, K]
            weights = apply_dropout(weights, dropout)
            head_outputs = weights @ value  # [B, H, Q, K] @ [B, H, K, E] -> [B, H, Q, E]
        else:  # the same, where it is quicker by torch's fused kernel
            head_outputs = attend(query, key, value, mask, dropout, is_causal)  # [B, H, Q, E]
        for observer in self.observers:
            observer(_attention_call(query, key, value, mask, head_outputs))
        if self.ablation is not None:
            head_outputs = self.ablation.outputs(head_outputs)
        # Concat(head_1 ... head_H): [B, H, Q, E] -> [B, Q, H, E] -> [B, Q, D]
        return head_outputs.transpose(1, 2).flatten(2), weights


def _attention_call(
    query: Queries, key: Keys, value: Keys, mask: Mask | None, head_outputs: Queries
) -> AttentionCall:
    def compute(rows: Rows, dtype: torch.dtype) -> Weights:
        mask_of_rows = mask
        if mask is not None and mask.shape[0] > 1:
            mask_of_rows = mask[rows]
        return attention_weights(query[rows].to(dtype), key[rows].to(dtype), mask_of_rows)

    return AttentionCall((*query.shape[:3], key.shape[2]), query, compute, value, head_outputs)


class MultiHeadAttention(HeadedAttention):
    """Let every position attend to every other through several heads at once.

    Where query, key and value have the same width, the W^Q, W^K and W^V of all heads are one
    matrix, `in_proj_weight` [3D, D], queries first. Arguments, defaults and parameters are those of
    torch.nn.MultiheadAttention, and state dicts load in both directions. Three cases differ: a
    query whose keys are all masked gets zero weights (torch: NaN); is_causal=True needs no mask
    beside it (torch: an error); and with another mask beside it both hold (torch uses one: the mask
    if there are weights or padding, else is_causal).

    Args:
        embed_dim: D, width of queries and of the output.
        num_heads: H; must divide embed_dim. A head is E = D / H wide.
        dropout: share of the weights set to zero in training.
        bias: add a bias to each projection.
        add_bias_kv: not supported, nor is add_zero_attn; a ValueError if True.
        kdim: width of keys, and vdim that of values; None: D.
        batch_first: tensors are [B, T, D]; if False, torch's default, [T, B, D].
        rotary: rotates the queries and the keys of all heads [B, H, T, E] by their positions.
        num_kv_heads: heads of keys and values; None: H. With fewer, H / num_kv_heads query heads
            share each (grouped-query attention, Ainslie et al. 2023, GQA, section 2.2); with 1 all
            do (multi-query attention, Shazeer 2019, Fast Transformer Decoding, section 3). torch's
            layer cannot load such weights.
    """

    # Rows: D for queries, kv_width for keys, kv_width for values; 3D unless heads share keys.
    in_proj_weight: nn.Parameter | None  # [3D, D]
    q_proj_weight: nn.Parameter | None  # [D, D]
    k_proj_weight: nn.Parameter | None  # [kv_width, kdim]
    v_proj_weight: nn.Parameter | None  # [kv_width, vdim]
    in_proj_bias: nn.Parameter | None  # [3D]

    # Code written for torch's layer reads these; a key that is not a token is never added.
    bias_k = bias_v = None
    add_zero_attn = False
    # torch.nn.TransformerEncoderLayer reads this. If it were True, the block would compute
    # attention by itself.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        rotary: RotaryPositions | None = None,
        num_kv_heads: int | None = None,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, rotary)
        if add_bias_kv or add_zero_attn:
            raise ValueError(
                "add_bias_kv, add_zero_attn: expected False, since they add a key that is no token"
            )
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be divisible by num_kv_heads, got {num_heads} and {num_kv_heads}"
            )
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        self._make_parameters(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    @property
    def output_projection(self) -> nn.Linear:
        """The layer of W^O and b^O, applied to the merged heads."""
        return self.out_proj

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of all heads together."""
        return self.num_kv_heads * self.head_dim

    def _make_parameters(self, bias: bool, options: dict[str, Any]) -> None:
        D = self.embed_dim
        kv = self.kv_width
        is_packed = self.kdim == self.vdim == D
        # torch's names and order, absent ones as None, so that state dicts load both ways.
        shapes = {
            "in_proj_weight": (D + 2 * kv, D) if is_packed else None,
            "q_proj_weight": None if is_packed else (D, D),
            "k_proj_weight": None if is_packed else (kv, self.kdim),
            "v_proj_weight": None if is_packed else (kv, self.vdim),
            "in_proj_bias": (D + 2 * kv,) if bias else None,
        }
        for name, shape in shapes.items():
            parameter = None if shape is None else nn.Parameter(torch.empty(shape, **options))
            self.register_parameter(name, parameter)
        self.out_proj = nn.Linear(D, D, bias=bias, **options)

    def reset_parameters(self) -> None:
        """Draw the projections by Glorot's rule, as torch does, and set the biases to zero."""
        for parameter in self.parameters(recurse=False):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Float[Tensor, "... {self.embed_dim}"],
        key: Float[Tensor, "... {self.kdim}"],
        value: Float[Tensor, "... {self.vdim}"],
        key_padding_mask: Bool[Tensor, "... K"] | Float[Tensor, "... K"] | None = None,
        need_weights: bool = True,
        attn_mask: Bool[Tensor, "*H Q K"] | Float[Tensor, "*H Q K"] | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "... {self.embed_dim}"], Float[Tensor, "..."] | None]:
        """Return the output [B, Q, D] and the weights, if needed.

        The weights are [B, Q, K] if averaged, else [B, H, Q, K]. Without batch_first, query, key,
        value and output are [T, B, D]. For one text nothing has the dimension B. For nested tensors
        the output is nested, the weights are padded.

        Args:
            query: [B, Q, D].
            key: [B, K, kdim].
            value: [B, K, vdim].
            key_padding_mask: [B, K] (or [K]), True (or -inf) at keys that no query attends to.
            need_weights: return the weights; pass False in training, to never build them.
            attn_mask: [Q, K] or [B * H, Q, K], True where a query must not attend to a key, or
                numbers added to the scores.
            average_attn_weights: average the weights over heads.
            is_causal: no position attends to a later one, whatever attn_mask has.

        Raises:
            ValueError: if shapes or types of query, key, value and masks do not fit, where
                torch.nn.MultiheadAttention raises a RuntimeError or an AssertionError.
        """
        is_self_attention = query is key and key is value
        if query.is_nested or key.is_nested or value.is_nested:
            if not (is_self_attention and key_padding_mask is None and self.batch_first):
                raise ValueError(
                    "nested tensors: expected one tensor as query, key and value, without "
                    "key_padding_mask and with batch_first=True"
                )
            options = (need_weights, attn_mask, average_attn_weights, is_causal)
            return self._forward_nested(query, *options)
        is_one_text = query.dim() == 2
        query, key, value = self._to_batch_first(query, key, value)
        if is_one_text and key_padding_mask is not None:
            check_mask("key_padding_mask", key_padding_mask, [key.shape[1:2]])
            key_padding_mask = key_padding_mask[None]
        if is_self_attention:  # still one tensor, so that one product makes all three
            key = value = query
        B, Q, _ = query.shape
        K = key.shape[1]

        # Only the kernel needs no Q x K numbers for a causal mask; weights and observers do.
        has_mask = attn_mask is not None or key_padding_mask is not None
        by_kernel = is_causal and not (has_mask or need_weights or self.observers)
        needs_causal_mask = is_causal and not by_kernel
        shape = (B, self.num_heads, Q, K)
        mask = merge_masks(shape, key_padding_mask, attn_mask, needs_causal_mask, query.device)

        query, key, value = self.project(query, key, value)  # [B, T, D] -> [B, H, T, E]
        output, weights = self.attend_heads(query, key, value, mask, need_weights, by_kernel)
        output = self.out_proj(output)  # Concat(head_1 ... head_H) W^O: [B, Q, D]

        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)  # [B, H, Q, K] -> [B, Q, K]
        if is_one_text:
            return output[0], None if weights is None else weights[0]
        return output if self.batch_first else output.transpose(0, 1), weights

    def _to_batch_first(self, *tensors: Tensor) -> list[Tensor]:
        """Return query, key and value as [B, T, D], or raise a ValueError with their shapes."""
        sizes = {"D": self.embed_dim, "Dk": self.kdim, "Dv": self.vdim}
        if tensors[0].dim() == 2:
            check_shapes("query Q D, key K Dk, value K Dv", *tensors, **sizes)
            return [tensor[None] for tensor in tensors]
        if self.batch_first:
            check_shapes("query B Q D, key B K Dk, value B K Dv", *tensors, **sizes)
            return list(tensors)
        check_shapes("query Q B D, key K B Dk, value K B Dv", *tensors, **sizes)
        return [tensor.transpose(0, 1) for tensor in tensors]

    def _forward_nested(self, text: Any, *options: Any) -> tuple[Tensor, Tensor | None]:
        """Return the same for nested tensors, as torch.nn.TransformerEncoder packs padded texts."""
        lengths = [len(tokens) for tokens in text.unbind()]
        padded = text.to_padded_tensor(0.0)  # [B, T, D]
        places = torch.arange(padded.shape[1], device=text.device)
        padding = places >= torch.tensor(lengths, device=text.device)[:, None]  # [B, T]
        output, weights = self.forward(padded, padded, padded, padding, *options)
        texts = [tokens[:length] for tokens, length in zip(output, lengths, strict=True)]
        return torch.nested.as_nested_tensor(texts), weights

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q W^Q + b^Q, K W^K + b^K and V W^V + b^V split into heads, each [B, H, T, E]."""
        widths = [self.embed_dim, self.kv_width, self.kv_width]
        bias: Tensor | None = self.in_proj_bias
        if bias is not None:  # a bias of another type is cast, as in torch
            bias = bias.to(self.out_proj.weight.dtype)
        if self.in_proj_weight is not None and query is key and key is value:
            query, key, value = F.linear(query, self.in_proj_weight, bias).split(widths, dim=-1)
        else:
            weights: Any = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
            if self.in_proj_weight is not None:
                weights = self.in_proj_weight.split(widths)
            biases = [None] * 3 if bias is None else bias.split(widths)
            query, key, value = map(F.linear, (query, key, value), weights, biases)
        query = self.split_heads(query)
        key = self.split_heads(key)
        value = self.split_heads(value)
        sharing = self.num_heads // self.num_kv_heads
        if sharing > 1:  # [B, H / sharing, T, E] -> [B, H, T, E]
            key = key.repeat_interleave(sharing, dim=1)
            value = value.repeat_interleave(sharing, dim=1)
        return query, key, value
