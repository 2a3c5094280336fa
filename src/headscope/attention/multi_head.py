"""The multi-head attention layer, a drop-in for torch.nn.MultiheadAttention.

`MultiHeadAttention.forward` is the whole layer: merge the masks, project the tokens to queries, keys and values, split
these into heads, attend, merge the heads, project the output. `HeadedAttention.attend_heads` is its middle part, the
formula beside the fused kernel.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.attention.functional import (
    AttentionCall,
    Mask,
    ObservedAttention,
    attend,
    attention_weights,
    check_mask,
    check_shapes,
    check_share,
    dropped,
    hidden_keys,
    merge_masks,
)
from headscope.attention.rotary import RotaryPositions

ONE_TEXT = "query Q D, key K Dk, value K Dv"
BATCH_FIRST = "query B Q D, key B K Dk, value B K Dv"
SEQUENCE_FIRST = "query Q B D, key K B Dk, value K B Dv"
Intervention = Callable[[Tensor], Tensor]


class HeadedAttention(ObservedAttention):
    """What multi-head layers have in common once queries, keys and values are projected.

    Args:
        embed_dim: D, width of queries and of the output.
        num_heads: H; must divide embed_dim. A head is E = D / H wide.
        dropout: share of the weights dropped in training.
        rotary: called on the queries and on the keys of all heads [B, H, T, E] before they meet.

    Attributes:
        intervention: if set, called with the sums of all heads [B, H, Q, E]; what it returns is merged in their place.
            This is how `headscope.heads` ablates heads.

    Raises:
        ValueError: if num_heads does not divide embed_dim, or dropout is no share.
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
        check_share(dropout)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.rotary = dropout, rotary
        self.intervention: Intervention | None = None

    @property
    def output_projection(self) -> nn.Linear:
        """The layer of W^O and b^O, applied to the merged heads."""
        raise NotImplementedError

    def split_heads(self, tokens: Float[Tensor, "B T HE"]) -> Float[Tensor, "B H T E"]:
        """Cut each token's vector into heads of E numbers; a view, nothing is copied."""
        heads: Tensor = tokens.unflatten(-1, (-1, self.head_dim))  # [B, T, H, E]
        return heads.transpose(1, 2)  # [B, H, T, E]

    def attend_heads(
        self,
        query: Float[Tensor, "B H Q E"],
        key: Float[Tensor, "B H K E"],
        value: Float[Tensor, "B H K E"],
        mask: Mask | None,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Return Concat(head_1 ... head_H), head_i = softmax(Q_i K_i^T / sqrt(E)) V_i, and the weights if needed.

        Args:
            query: of all heads, as the projections give them.
            key: likewise.
            value: likewise.
            mask: True where a query may not look, or numbers to be added to the scores.
            key_padding_mask: for the observer alone; `mask` already contains it.
            need_weights: compute the weights and return them.
            is_causal: let no position look at a later one; only with neither mask, weights nor observer, see `attend`.
        """
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = dropped(
                attention_weights(query, key, mask), dropout
            )  # A = softmax(Q K^T / sqrt(E)) [B, H, Q, K]
            sums = weights @ value  # [B, H, Q, K] @ [B, H, K, E] -> [B, H, Q, E]
        else:  # the same sums by torch's fused kernel, which never builds A
            sums = attend(query, key, value, mask, dropout, is_causal)  # [B, H, Q, E]
        if self.observer is not None:
            self.observer(_seen(query, key, value, mask, key_padding_mask, sums))
        if self.intervention is not None:
            sums = self.intervention(sums)
        return sums.transpose(1, 2).flatten(2), weights  # [B, H, Q, E] -> [B, Q, H, E] -> [B, Q, D]


def _seen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None,
    key_padding_mask: Tensor | None,
    sums: Tensor,
) -> AttentionCall:
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return AttentionCall(
        shape=shape,
        key_padding_mask=hidden_keys(key_padding_mask),
        like=query,
        compute=lambda rows, precision: attention_weights(
            query[rows].to(precision),
            key[rows].to(precision),
            mask[rows] if mask is not None and mask.shape[0] > 1 else mask,
        ),
        compare=lambda weights: (weights @ value.to(weights.dtype) - sums).abs().max(),
        values=value,
    )


class MultiHeadAttention(HeadedAttention):
    """Let every position look at every other through several heads at once.

    head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(E)) V W_i^V, output = Concat(head_1 ... head_H) W^O
    (Vaswani et al. 2017, Attention Is All You Need, section 3.2.2). The W_i^Q of all heads lie in one matrix,
    and where query, key and value have the same width, all three lie in `in_proj_weight` [3D, D], queries first.

    It takes the arguments of torch.nn.MultiheadAttention and has its parameters, names and defaults, so that state
    dicts load in both directions. It differs in three cases: a query whose every key is masked gets zero weights and
    a zero sum (torch: NaN); is_causal=True needs no mask beside it (torch: an error); and with a mask beside it both
    hold (torch takes one of the two: the mask where there are weights or padding, else is_causal).

    Args:
        embed_dim: D, width of queries and of the output.
        num_heads: H; must divide embed_dim. A head is E = D / H wide.
        dropout: share of the weights dropped in training.
        bias: add a bias to each projection.
        add_bias_kv: not supported; must be False.
        add_zero_attn: not supported; must be False.
        kdim: width of keys, D if None.
        vdim: width of values, D if None.
        batch_first: tensors are [B, T, D]; [T, B, D] if False, which is torch's default.
        device: where the parameters are made.
        dtype: type of the parameters.
        rotary: called on the queries and on the keys of all heads [B, H, T, E] before they meet.
        num_kv_heads: heads of keys and values, H if None. Fewer make H / num_kv_heads heads of queries share one of
            keys and values (grouped-query attention, Ainslie et al. 2023, GQA, section 2.2); 1 makes all share it
            (multi-query attention, Shazeer 2019, Fast Transformer Decoding, section 3). in_proj_weight then has
            D + 2 * num_kv_heads * E rows, so torch's layer cannot load it.

    Raises:
        ValueError: if num_heads does not divide embed_dim, num_kv_heads does not divide num_heads, dropout is no share,
            or add_bias_kv or add_zero_attn is asked for.
    """

    # D rows for queries, then kv_width rows each for keys and values: 3D in all unless num_kv_heads < num_heads.
    in_proj_weight: nn.Parameter | None  # [3D, D]
    q_proj_weight: nn.Parameter | None  # [D, D]
    k_proj_weight: nn.Parameter | None  # [kv_width, kdim]
    v_proj_weight: nn.Parameter | None  # [kv_width, vdim]
    in_proj_bias: nn.Parameter | None  # [3D]

    # What code written for torch's layer reads: a key that is no token is never added.
    bias_k = bias_v = None
    add_zero_attn = False

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
                "add_bias_kv and add_zero_attn are not supported: they add a key that is no token"
            )
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be divisible by num_kv_heads, got {num_heads} and {num_kv_heads}"
            )
        self.kdim, self.vdim = (embed_dim if width is None else width for width in (kdim, vdim))
        self.batch_first = batch_first
        # torch.nn.TransformerEncoderLayer reads this. If it were True, the block would compute attention by itself.
        self._qkv_same_embed_dim = False
        self._make_parameters(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    @property
    def output_projection(self) -> nn.Linear:
        """The layer of W^O and b^O, applied to the merged heads."""
        return self.out_proj

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of all their heads."""
        return self.num_kv_heads * self.head_dim

    def _make_parameters(self, bias: bool, like: dict[str, Any]) -> None:
        D, kv, is_packed = self.embed_dim, self.kv_width, self.kdim == self.embed_dim == self.vdim

        def parameter(*shape: int, wanted: bool) -> nn.Parameter | None:
            return nn.Parameter(torch.empty(*shape, **like)) if wanted else None

        # torch's names and order, absent ones registered as None, so that state dicts load in both directions.
        self.register_parameter("in_proj_weight", parameter(D + 2 * kv, D, wanted=is_packed))
        self.register_parameter("q_proj_weight", parameter(D, D, wanted=not is_packed))
        self.register_parameter("k_proj_weight", parameter(kv, self.kdim, wanted=not is_packed))
        self.register_parameter("v_proj_weight", parameter(kv, self.vdim, wanted=not is_packed))
        self.register_parameter("in_proj_bias", parameter(D + 2 * kv, wanted=bias))
        self.out_proj = nn.Linear(D, D, bias=bias, **like)

    def reset_parameters(self) -> None:
        """Draw the projections by Glorot's rule, as torch does, and set the biases to zero."""
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                nn.init.xavier_uniform_(weight)
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
        """Return the output and, if asked for, the weights.

        Args:
            query: [B, Q, D] (or [Q, B, D] without batch_first, or [Q, D] for one text).
            key: [B, K, kdim], laid out likewise.
            value: [B, K, vdim], laid out likewise.
            key_padding_mask: [B, K] (or [K]); True (or -inf) at keys that nobody may look at.
            need_weights: return the weights too. That builds a [B, H, Q, K] tensor, so pass False in training.
            attn_mask: [Q, K] or [B * H, Q, K]; True where a query may not look, or numbers added to the scores.
            average_attn_weights: average the weights over heads.
            is_causal: let no position look at a later one, whatever attn_mask says.

        Returns:
            Output [B, Q, D], laid out as the query; weights [B, Q, K] if averaged, else [B, H, Q, K]
            (without B for one text), or None. Of nested tensors the output is nested, the weights are padded.

        Raises:
            TypeError: if query, key or value is no tensor.
            ValueError: if query, key, value and masks do not go together, or a mask is of a type that is none.
        """
        for name, given in (("query", query), ("key", key), ("value", value)):
            if not isinstance(given, Tensor):
                raise TypeError(f"{name}: takes a tensor, got {type(given).__name__}")
        if query.is_nested or key.is_nested or value.is_nested:
            options = (need_weights, attn_mask, average_attn_weights, is_causal)
            return self._forward_nested(query, key, value, key_padding_mask, *options)
        single = query.dim() == 2
        layout = ONE_TEXT if single else BATCH_FIRST if self.batch_first else SEQUENCE_FIRST
        check_shapes(layout, query, key, value, D=self.embed_dim, Dk=self.kdim, Dv=self.vdim)
        is_self_attention = query is key and key is value
        query, key, value = (self._batch_first(tensor, single) for tensor in (query, key, value))
        if single and key_padding_mask is not None:
            check_mask("key_padding_mask", key_padding_mask, [key.shape[1:2]])
            key_padding_mask = key_padding_mask[None]
        if is_self_attention:
            key = value = (
                query  # still one tensor, so that one product makes queries, keys and values
            )
        (B, Q, _), K = query.shape, key.shape[1]

        # The kernel alone can do without the causal mask's Q x K numbers; weights and observers need them.
        has_mask = attn_mask is not None or key_padding_mask is not None
        by_kernel = is_causal and not (has_mask or need_weights or self.observer is not None)
        shape = (B, self.num_heads, Q, K)
        mask = merge_masks(
            shape, key_padding_mask, attn_mask, is_causal and not by_kernel, query.device
        )

        query, key, value = self.project(query, key, value)  # [B, T, D] -> [B, H, T, E]
        output, weights = self.attend_heads(
            query, key, value, mask, key_padding_mask, need_weights, by_kernel
        )
        output = self.out_proj(output)  # Concat(head_1 ... head_H) W^O: [B, Q, D]

        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)  # [B, H, Q, K] -> [B, Q, K]
        if single:
            return output[0], None if weights is None else weights[0]
        return output if self.batch_first else output.transpose(0, 1), weights

    def _batch_first(self, tokens: Tensor, single: bool) -> Tensor:
        if single:
            return tokens[None]
        return tokens if self.batch_first else tokens.transpose(0, 1)

    def _forward_nested(
        self, query: Any, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, *options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the same for texts packed in nested tensors, as torch.nn.TransformerEncoder packs padded ones."""
        tensors = (query, key, value)
        if not (
            all(tensor.is_nested for tensor in tensors)
            and key_padding_mask is None
            and self.batch_first
        ):
            raise ValueError(
                "nested tensors: query, key and value must all be nested, key_padding_mask None and batch_first True"
            )
        queries, keys, values = ([len(text) for text in tensor.unbind()] for tensor in tensors)
        if not len(queries) == len(keys) > 0 or keys != values:
            raise ValueError(
                f"nested tensors: query has texts of {queries} tokens, key of {keys}, value of {values}"
            )
        padded = {
            id(tensor): tensor.to_padded_tensor(0.0) for tensor in tensors
        }  # one where they are one
        padding = torch.arange(max(keys)) >= torch.tensor(keys)[:, None]  # [B, K]
        query_, key_, value_ = (padded[id(tensor)] for tensor in tensors)
        output, weights = self.forward(query_, key_, value_, padding.to(query.device), *options)
        texts = [text[:length] for text, length in zip(output, queries, strict=True)]
        if (
            query.layout == torch.jagged
        ):  # of the query's own offsets, or torch would not add the two
            return torch.nested.nested_tensor_from_jagged(
                torch.cat(texts), query.offsets()
            ), weights
        return torch.nested.as_nested_tensor(texts), weights

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of all heads, each [B, H, T, E]."""
        widths = [self.embed_dim, self.kv_width, self.kv_width]
        # A bias of another type is taken as the weights', as in torch.
        bias = (
            None if self.in_proj_bias is None else self.in_proj_bias.to(self.out_proj.weight.dtype)
        )
        if self.in_proj_weight is not None and query is key and key is value:
            query, key, value = F.linear(query, self.in_proj_weight, bias).split(widths, dim=-1)
        else:
            weights, biases = (
                self._split_weights(widths),
                (None,) * 3 if bias is None else bias.split(widths),
            )
            query, key, value = map(F.linear, (query, key, value), weights, biases)
        query, key, value = map(self.split_heads, (query, key, value))
        if (
            sharing := self.num_heads // self.num_kv_heads
        ) > 1:  # [B, H / sharing, T, E] -> [B, H, T, E]
            key, value = (heads.repeat_interleave(sharing, dim=1) for heads in (key, value))
        return query, key, value

    def _split_weights(self, widths: list[int]) -> tuple[Tensor, ...]:
        """Return the matrices of query, key and value."""
        if self.in_proj_weight is not None:
            return tuple(self.in_proj_weight.split(widths))
        assert self.q_proj_weight is not None
        assert self.k_proj_weight is not None
        assert self.v_proj_weight is not None
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
