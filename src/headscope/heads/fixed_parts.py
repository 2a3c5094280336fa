"""The parts of our network with weights, scales and gates held fixed: products and constants.

    norm         n(x) = gamma (x - mean x) s + beta,              s = 1 / sigma held fixed
    attention    z_hq = sum_k a_hqk (W^V_h x_k + b^V_h),          a held fixed
    feed-forward W_2 (g * (W_1 x + b_1)) + b_2,                   g = f(h) / h held fixed
    gated        W_2 (g * (W_1b x + b_1b)) + b_2,                 g = f(W_1a x + b_1a) held fixed

Each is made while a batch runs through it (`of`), and takes rows of numbers from its output back to
its input (`back`): a row becomes its product with the part's matrix, and row . b is what a bias b
adds. Shape letters: B texts, T tokens, Q tokens whose vectors are computed (T, or 1 where only
[CLS] is read), K keys, H heads, E head width, D model width, F width of the feed-forward network, C
classes, N rows that go back together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention import SharedProjectionAttention
from headscope.attention.functional import attention_weights, merge_masks
from headscope.model.classifier import Pooler, TextClassifier
from headscope.model.encoder import EncoderBlock, Gated
from headscope.model.pooling import AttentionPooling, PaddingMask, first_pooling, max_pooling

Rows = Float[Tensor, "N B T D"]  # at the output or input of a layer; of [CLS] alone T is 1
Sums = Float[Tensor, "N B"]


class Parts(NamedTuple):
    """What rows have met on their way back, and where they are."""

    rows: Rows
    tokens: Float[Tensor, "N B T"]  # evidence that was added to the values
    bias: Sums


def dot(rows: Float[Tensor, "N B *T D"], vector: Tensor | None) -> Sums:
    """Return what a bias adds to N sums; 0 for none."""
    if vector is None:
        return none_of(rows)
    return (rows * vector).flatten(2).sum(dim=-1)


def none_of(rows: Float[Tensor, "N B *T D"]) -> Sums:
    """Return 0 for each of N sums."""
    return rows.new_zeros(rows.shape[:2])


# The parts


@dataclass(frozen=True)
class FixedNorm:
    """n(x) = gamma (x - mean x) s + beta."""

    scale: Float[Tensor, "B *T 1"]
    norm: nn.LayerNorm

    @classmethod
    def of(cls, norm: nn.Module, vectors: Tensor) -> tuple[Tensor, "FixedNorm | None"]:
        """Return what a norm returns, and the norm as it is; None for none."""
        if not isinstance(norm, nn.LayerNorm):
            return vectors, None
        sizes = norm.normalized_shape
        output, _, scale = torch.native_layer_norm(vectors, sizes, norm.weight, norm.bias, norm.eps)
        return output, cls(scale, norm)

    def back(self, rows: Tensor) -> tuple[Tensor, Sums]:
        """Return rows at the input, and what beta adds."""
        scaled = rows * self.norm.weight
        before = (scaled - scaled.mean(dim=-1, keepdim=True)) * self.scale
        return before, dot(rows, self.norm.bias)


def back_through(norm: FixedNorm | None, rows: Tensor) -> tuple[Tensor, Sums]:
    """Return rows before a norm, and what its bias adds; of no norm the rows."""
    return (rows, none_of(rows)) if norm is None else norm.back(rows)


@dataclass(frozen=True)
class FixedFeedforward:
    """W_2 (g * (W_1 x + b_1)) + b_2; where it is gated W_1 and b_1 are their second halves."""

    first: Float[Tensor, "F D"]
    first_bias: Float[Tensor, " F"] | None
    gate: Float[Tensor, "B Q F"]
    second: nn.Linear

    @classmethod
    def of(cls, network: nn.Sequential, vectors: Tensor) -> tuple[Tensor, "FixedFeedforward"]:
        """Return what a feed-forward network returns, and the network as it is."""
        first: Any = network[0]
        activation: Any = network[1]
        second: Any = network[2]
        hidden = first(vectors)
        weight = first.weight
        bias = first.bias
        if isinstance(activation, Gated):
            before, linear = hidden.chunk(2, dim=-1)
            weight = weight.chunk(2)[1]
            bias = None if bias is None else bias.chunk(2)[1]
            gate = activation.activation(before)
            return second(gate * linear), cls(weight, bias, gate, second)
        gate = gate_of(activation, hidden)
        return second(hidden * gate), cls(weight, bias, gate, second)

    def back(self, rows: Rows) -> tuple[Rows, Sums]:
        """Return rows at the input, and what the biases add."""
        hidden = (rows @ self.second.weight) * self.gate  # [N, B, Q, D] -> [N, B, Q, F]
        bias = dot(rows, self.second.bias) + dot(hidden, self.first_bias)
        return hidden @ self.first, bias


def gate_of(activation: nn.Module, hidden: Tensor) -> Tensor:
    """Return f(x) / x, and 0 at x = 0 where f has no formula here; every f here has f(0) = 0."""
    if isinstance(activation, nn.GELU) and activation.approximate == "none":
        return 0.5 + 0.5 * torch.erf(hidden * 0.5**0.5)  # Phi(x)
    if isinstance(activation, nn.SiLU):
        return hidden.sigmoid()
    return activation(hidden) / hidden.masked_fill(hidden == 0, 1.0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FixedAttention:
    """W^O [z_1 ... z_H] + b^O, z_hq = sum_k a_hqk (W^V_h x_k + b^V_h).

    An ablated head has W^V and b^V 0.
    """

    weights: Float[Tensor, "B H Q K"]
    values: Float[Tensor, "B H K E"]
    value_weight: Float[Tensor, "H E D"]
    value_bias: Float[Tensor, "H 1 E"] | None
    output: nn.Linear

    @classmethod
    def of(
        cls, layer: Any, read: Tensor, values: Tensor, masks: tuple[Any, Any], Q: int
    ) -> tuple[Tensor, "FixedAttention"]:
        """Return what a layer returns for the first Q tokens, and the layer as it is."""
        query, key, value = layer.project(read[:, :Q], read, values)  # [B, H, T, E] each
        if layer.rotary is not None:
            query = layer.rotary(query)
            key = layer.rotary(key)
        padding, attn_mask = masks
        shape = (*query.shape[:3], key.shape[2])
        mask = merge_masks(shape, padding, None if attn_mask is None else attn_mask[:Q])
        weight, bias = value_projection(layer)
        if layer.ablation is not None:
            query, mask = layer.ablation.inputs(query, mask)
            value = layer.ablation.outputs(value)
            weight = layer.ablation.outputs(weight[None])[0]
            bias = None if bias is None else layer.ablation.outputs(bias[None])[0]
        weights = attention_weights(query, key, mask)
        merged = (weights @ value).transpose(1, 2).flatten(2)  # [B, H, Q, E] -> [B, Q, HE]
        output = layer.output_projection
        return output(merged), cls(weights, value, weight, bias, output)

    def at_heads(self, rows: Rows) -> Float[Tensor, "N B H Q E"]:
        """Return rows at the outputs of the heads."""
        H = self.values.shape[1]
        merged = rows @ self.output.weight  # [N, B, Q, HE]
        heads: Tensor = merged.unflatten(-1, (H, -1)).transpose(2, 3)
        return heads

    def at_values(self, heads: Float[Tensor, "N B H Q E"]) -> Float[Tensor, "N B H K E"]:
        """Return rows at the values, from those at the outputs of the heads."""
        values: Tensor = self.weights.mT @ heads
        return values

    def back(self, values: Float[Tensor, "N B H K E"]) -> tuple[Rows, Sums]:
        """Return rows at what values are computed from, and what the values' bias adds."""
        merged = values.transpose(2, 3).flatten(3)  # [N, B, K, HE]
        bias = none_of(values)
        if self.value_bias is not None:
            bias = (values * self.value_bias).sum(dim=(2, 3, 4))
        return merged @ self.value_weight.flatten(0, 1), bias

    def back_apart(
        self, values: Float[Tensor, "N B H K E"], heads: Sequence[int]
    ) -> tuple[Float[Tensor, "HN B K D"], Float[Tensor, "HN B"]]:
        """Return the same for each of some heads by itself: H N rows."""
        chosen = torch.tensor(heads, dtype=torch.long, device=values.device)
        apart = values.permute(2, 0, 1, 3, 4)[chosen]  # [H, N, B, K, E]
        rows = apart.flatten(1, 3) @ self.value_weight[chosen]  # [H, N B K, D]
        bias = apart.new_zeros(apart.shape[:3])
        if self.value_bias is not None:
            bias = (apart * self.value_bias[chosen, None, None]).sum(dim=(3, 4))  # [H, N, B]
        return rows.unflatten(1, apart.shape[1:4]).flatten(0, 1), bias.flatten(0, 1)


def value_projection(layer: Any) -> tuple[Float[Tensor, "H E D"], Float[Tensor, "H 1 E"] | None]:
    """Return W^V and b^V of each head: heads may share them, or read a piece of the vector each."""
    H = layer.num_heads
    E = layer.head_dim
    if isinstance(layer, SharedProjectionAttention):
        pieces = torch.eye(H).to(layer.values.weight)[:, None, :, None]  # [H, 1, H, 1]
        return (pieces * layer.values.weight[None, :, None]).flatten(2), None
    sharing = H // layer.num_kv_heads
    weight = layer.in_proj_weight[-layer.kv_width :].unflatten(0, (-1, E))
    bias = layer.in_proj_bias
    if bias is not None:
        bias = bias[-layer.kv_width :].unflatten(0, (-1, 1, E)).repeat_interleave(sharing, dim=0)
    return weight.repeat_interleave(sharing, dim=0), bias


@dataclass(frozen=True)
class FixedBlock:
    """A block: its attention, its feed-forward network, and a norm before or after each."""

    attention_norm: FixedNorm | None
    attention: FixedAttention
    feedforward_norm: FixedNorm | None
    feedforward: FixedFeedforward
    norm_after: bool
    evidence: Float[Tensor, "B T D"] | None  # added to what values are computed from
    num_tokens: int

    @classmethod
    def of(
        cls, block: EncoderBlock, tokens: Tensor, masks: tuple[Any, Any], ratios: Any, Q: int
    ) -> tuple[Tensor, "FixedBlock"]:
        """Return the first Q tokens' new vectors, and the block as it is."""
        read = tokens
        first: FixedNorm | None = None
        if not block.norm_after:
            read, first = FixedNorm.of(block.attention_norm, tokens)
        evidence = None
        if block.evidence is not None and ratios is not None:
            evidence = block.evidence(ratios)
        values = read if evidence is None else read + evidence
        attended, attention = FixedAttention.of(block.attention, read, values, masks, Q)
        after = tokens[:, :Q] + attended
        if block.norm_after:
            after, first = FixedNorm.of(block.attention_norm, after)
            added, feedforward = FixedFeedforward.of(block.feedforward, after)
            output, second = FixedNorm.of(block.feedforward_norm, after + added)
        else:
            normed, second = FixedNorm.of(block.feedforward_norm, after)
            added, feedforward = FixedFeedforward.of(block.feedforward, normed)
            output = after + added
        parts = (first, attention, second, feedforward, block.norm_after, evidence)
        return output, cls(*parts, tokens.shape[1])

    def above_heads(self, rows: Rows) -> tuple[Rows, Sums]:
        """Return rows at the sum of tokens and heads, and what biases from there on add."""
        if self.norm_after:
            rows, bias = back_through(self.feedforward_norm, rows)
            branch, of_branch = self.feedforward.back(rows)
            rows, of_norm = back_through(self.attention_norm, rows + branch)
        else:
            branch, bias = self.feedforward.back(rows)
            branch, of_branch = back_through(self.feedforward_norm, branch)
            rows = rows + branch
            of_norm = none_of(rows)
        return rows, bias + of_branch + of_norm + dot(rows, self.attention.output.bias)

    def below_heads(self, rows: Rows, bias: Sums) -> Parts:
        """Return rows at the block's input from those at what values are computed from."""
        tokens = rows.new_zeros(rows.shape[:3])
        if self.evidence is not None:
            tokens = (rows * self.evidence).sum(dim=-1)
        of_norm = none_of(rows)
        if not self.norm_after:
            rows, of_norm = back_through(self.attention_norm, rows)
        return Parts(rows, tokens, bias + of_norm)

    def back(self, rows: Rows, scale: Any) -> tuple[Parts, Sums, Tensor]:
        """Return rows at the block's input, with heads times a number, and what they have met.

        Also what biases above the heads add, and the rows at the outputs of the heads.
        """
        rows, above = self.above_heads(rows)
        heads = self.attention.at_heads(rows)
        through = self.attention.back(self.attention.at_values(heads * scale))
        below = self.below_heads(*through)
        return below._replace(rows=self.past(rows) + below.rows), above, heads

    def past(self, rows: Float[Tensor, "N B Q D"]) -> Rows:
        """Return rows of all tokens from those of the first Q: the residual stream."""
        return F.pad(rows, (0, 0, 0, self.num_tokens - rows.shape[2]))


@dataclass(frozen=True)
class FixedReadOut:
    """logits = W p(sum_j a_j n(x_j)) + b, with the pooling's weights a and the pooler p fixed."""

    norm: FixedNorm | None
    weights: Float[Tensor, "B Q _"]  # of each token, or of each of its numbers
    pooler: nn.Module
    gate: Float[Tensor, "B D"] | None
    pooler_norm: FixedNorm | None
    head: nn.Linear

    @classmethod
    def of(
        cls, model: TextClassifier, tokens: Tensor, padding: PaddingMask
    ) -> tuple[Tensor, "FixedReadOut"]:
        """Return the logits, and what reads them as it is."""
        normed, norm = FixedNorm.of(model.encoder.norm, tokens)
        weights = pooling_weights(model.pool, normed, padding)
        text = (weights * normed).sum(dim=1)
        gate = None
        pooler_norm: FixedNorm | None = None
        if isinstance(model.pooler, Pooler):
            hidden = model.pooler.dense(text)
            gate = gate_of(model.pooler.activation, hidden)
            text, pooler_norm = FixedNorm.of(model.pooler.norm, hidden * gate)
        parts = cls(norm, weights, model.pooler, gate, pooler_norm, model.head)
        return model.head(text), parts

    def back(self, directions: Float[Tensor, "N B C"]) -> tuple[Rows, Sums]:
        """Return rows at the last layer's output, and what biases add."""
        bias = (directions * self.head.bias).sum(dim=-1)
        text = directions @ self.head.weight  # [N, B, D]
        if isinstance(self.pooler, Pooler):
            text, of_norm = back_through(self.pooler_norm, text)
            assert self.gate is not None
            hidden = text * self.gate
            bias = bias + of_norm
            if self.pooler.dense.bias is not None:
                bias = bias + (hidden * self.pooler.dense.bias).sum(dim=-1)
            text = hidden @ self.pooler.dense.weight
        rows, of_norm = back_through(self.norm, text[:, :, None] * self.weights)
        return rows, bias + of_norm


def pooling_weights(
    pool: Any, tokens: Float[Tensor, "B Q D"], padding: PaddingMask
) -> Float[Tensor, "B Q _"]:
    """Return how much of each token is in the text's vector."""
    if pool is first_pooling:
        first = torch.zeros(tokens.shape[0], dtype=torch.long, device=tokens.device)
        return F.one_hot(first, tokens.shape[1]).to(tokens)[..., None]
    if isinstance(pool, AttentionPooling):
        query = pool.query.expand(tokens.shape[0], 1, -1)
        _, weights = pool.attention(query, tokens, tokens, padding)  # [B, 1, K]
        return weights.transpose(1, 2)  # type: ignore[no-any-return]
    if pool is max_pooling:
        chosen = (tokens == pool(tokens, padding)[:, None]).to(tokens)
        if padding is not None:
            chosen = chosen.masked_fill(padding[..., None], 0.0)
        return chosen / chosen.sum(dim=1, keepdim=True)
    kept = torch.ones_like(tokens[..., :1])
    if padding is not None:
        kept = kept.masked_fill(padding[..., None], 0.0)
    return kept / kept.sum(dim=1, keepdim=True)
