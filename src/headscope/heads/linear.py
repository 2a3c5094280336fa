"""Our network as a linear one: the sums of a text, written out once.

`FixedNetwork.of` runs a batch once, and keeps attention weights, values, norm scales and gates
(`headscope.heads.fixed_parts`). With these held fixed the network is linear, so a sum of logits
goes back to the tokens by plain products, which `torch.export` takes and pages/static/shares.js
speaks: `words` goes back once. What heads share goes back once for each point of
`gauss_legendre`: their `totals` need no more, their cells (`shares_at`) also the way from
the output of each head to the tokens. `headscope.foreign.fixed_gates` does the same for any network
by torch's gradients, and is held against it.

A logit is a sum over paths, each from a token's vector, or from a bias, through some heads or none.
Heads share alike what passes several of them: a path of amount c through k heads gives c / k to
each. That is the Shapley value of the heads in the network with its gates held fixed (Shapley 1953,
A Value for n-Person Games). So all heads of all layers are one table, which adds up both ways:

    word_tc = sum_lh share_lhtc + past_tc          past: the paths through no head
    bias_c  = sum_lh bias_lhc   + past_bias_c

With the output of each head times x, a path through k heads is x^k as large, and the integral of
k x^(k-1) c / k over x from 0 to 1 is c / k. So

    share_lh = integral of z_lh(x) . d logit_c(x) / dz_lh,     z_lh: the head's output

split by tokens and biases as z_lh is: a polynomial of degree L - 1 in x, for which ceil(L / 2)
points of Gauss and Legendre are exact.

Shape letters: B texts, T tokens, H heads, E head width, D model width, C classes, N or S sums that
are split, L layers that are read of a frozen encoder, F their width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention, SharedProjectionAttention
from headscope.heads.fixed_parts import (
    FixedBlock,
    FixedNorm,
    FixedReadOut,
    Parts,
    Rows,
    Sums,
    back_through,
    dot,
    none_of,
)
from headscope.model.classifier import Ensemble, TextClassifier
from headscope.model.embedding import TokenEmbedding
from headscope.model.encoder import Encoder, EncoderBlock
from headscope.model.frozen import FrozenLayers
from headscope.model.pooling import PaddingMask

MOST_AT_ONCE = 2**24  # numbers of the rows that go back together
Scale = float | Float[Tensor, "N B H 1 1"]  # what heads are multiplied by


class Shares(NamedTuple):
    """What the heads share of S sums of B texts, and what passes through no head.

    Of `past`, tokens and biases, `unobserved` passes through attention that is not observed.
    """

    heads: list[Float[Tensor, "B H T S"]]
    head_biases: list[Float[Tensor, "B H S"]]
    past: Float[Tensor, "B T S"]
    past_biases: Float[Tensor, "B S"]
    unobserved: Float[Tensor, "B S"]


def gauss_legendre(num_layers: int) -> list[tuple[float, float]]:
    """Return points and weights on 0 to 1: exact for polynomials of degree L - 1."""
    if not num_layers:
        return []
    points, weights = np.polynomial.legendre.leggauss((num_layers + 1) // 2)
    return [*zip(((points + 1) / 2).tolist(), (weights / 2).tolist(), strict=True)]


@dataclass(frozen=True)
class FixedEmbedding:
    """The tokens' vectors: those that are looked up, and what is made of a frozen encoder's states.

    `own` is what belongs to the tokens here: vectors of token, position, type and evidence. The
    learned vector of [CLS] above a frozen encoder is a bias.
    """

    own: Float[Tensor, "B T W"]
    norm: FixedNorm | None
    embedding: TokenEmbedding

    @classmethod
    def of(
        cls, embedding: TokenEmbedding, ids: Tensor, segments: Any, ratios: Any, states: Any
    ) -> tuple[Tensor, "FixedEmbedding"]:
        """Return what an embedding returns, and the embedding as it is."""
        vectors = embedding.summed(ids, segments, ratios, states)
        own = vectors
        if states is not None:
            own = vectors - embedding.of_states(states)
        normed, norm = FixedNorm.of(embedding.norm or nn.Identity(), vectors)
        projection = embedding.projection or nn.Identity()
        return projection(normed), cls(own, norm, embedding)

    def back(self, rows: Rows) -> Parts:
        """Return rows at the states that are read, if there are any, and what they have met."""
        bias = none_of(rows)
        if self.embedding.projection is not None:
            bias = dot(rows, self.embedding.projection.bias)
            rows = rows @ self.embedding.projection.weight
        rows, of_norm = back_through(self.norm, rows)
        tokens = (rows * self.own).sum(dim=-1)  # [N, B, T]
        if self.embedding.reads_states:
            bias = bias + (rows[:, :, 0] * self.embedding.start).sum(dim=-1)
            read = rows[:, :, 1:] @ self.embedding.token.weight
            shares = [1.0] if self.embedding.mix is None else self.embedding.mix.softmax(dim=0)
            rows = torch.cat([read * share for share in shares], dim=-1)  # [N, B, T - 1, F]
            rows = F.pad(rows, (0, 0, 1, 0))
        return Parts(rows, tokens, bias + of_norm)


@dataclass(frozen=True)
class FixedFrozen:
    """The frozen layers below our own: what passes them passes none of our heads."""

    embedding: FixedEmbedding
    blocks: Sequence[FixedBlock]
    last_norm: FixedNorm | None
    layers: Sequence[int]

    @classmethod
    def of(
        cls, frozen: FrozenLayers, ids: Tensor, padding: PaddingMask, segments: Any
    ) -> tuple[Tensor, "FixedFrozen"]:
        """Return the states that are read, and the layers as they are."""
        tokens, embedding = FixedEmbedding.of(frozen.embedding, ids, segments, None, None)
        found = {0: tokens}
        blocks = []
        masks = frozen.encoder.attention_masks(ids.shape[1], ids.device)
        for number in range(max(frozen.layers)):
            block: Any = frozen.encoder.blocks[number]
            given = (padding, masks[number])
            tokens, fixed = FixedBlock.of(block, tokens, given, None, ids.shape[1])
            found[number + 1] = tokens
            blocks.append(fixed)
        number = len(frozen.encoder.blocks)
        norm: FixedNorm | None = None
        if number in found:
            found[number], norm = FixedNorm.of(frozen.encoder.norm, found[number])
        states = torch.cat([found[layer] for layer in frozen.layers], dim=-1)
        return states, cls(embedding, blocks, norm, frozen.layers)

    def back(self, states: Float[Tensor, "N B T LD"]) -> tuple[Float[Tensor, "N B T"], Sums]:
        """Return what tokens and biases add by way of the states."""
        by_layer = dict(zip(self.layers, states.chunk(len(self.layers), dim=-1), strict=True))
        top = len(self.blocks)
        rows = torch.zeros_like(by_layer[top])
        bias: Any = 0
        for layer in range(top, 0, -1):
            if layer in by_layer:
                rows = rows + by_layer[layer]
            if layer == top and self.last_norm is not None:
                rows, of_norm = self.last_norm.back(rows)
                bias = bias + of_norm
            below, above, _ = self.blocks[layer - 1].back(rows, 1.0)
            rows = below.rows
            bias = bias + above + below.bias
        _, tokens, of_embedding = self.embedding.back(rows)
        return tokens, bias + of_embedding


# The network


class FixedMember(NamedTuple):
    """One network: all of it, or one of several whose mean answers."""

    embedding: FixedEmbedding
    blocks: Sequence[FixedBlock]
    read_out: FixedReadOut

    @classmethod
    def of(
        cls, model: TextClassifier, inputs: Sequence[Any], states: Any
    ) -> tuple[Tensor, "FixedMember"]:
        """Return the logits, and the network as it is for a batch."""
        ids, padding, segments, ngrams, *_ = [*inputs, None, None, None]
        ratios = None if model.evidence is None else model.evidence(ngrams, ids.shape[1])
        tokens, embedding = FixedEmbedding.of(model.embedding, ids, segments, ratios, states)
        encoder: Encoder = model.encoder
        masks = encoder.attention_masks(ids.shape[1], ids.device)
        blocks = []
        for number, block in enumerate(encoder.blocks):
            is_last = number == len(encoder.blocks) - 1
            Q = 1 if is_last and encoder.reads_first else tokens.shape[1]
            given = (padding, masks[number])
            tokens, fixed = FixedBlock.of(block, tokens, given, ratios, Q)  # type: ignore[arg-type]
            blocks.append(fixed)
        logits, read_out = FixedReadOut.of(model, tokens, padding)
        return logits, cls(embedding, blocks, read_out)


@dataclass
class Words:
    """What went back once, of N sums.

    Attributes:
        tokens: what each adds.
        biases: those that are added before the attention of each layer, and after the last.
        heads: rows at the outputs of the heads of each layer.
    """

    tokens: Any = 0
    biases: list[Any] = field(default_factory=list)
    heads: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class FixedNetwork:
    """A `TextClassifier`, or an `Ensemble` of them, as it is for a batch: linear."""

    members: Sequence[FixedMember]
    frozen: FixedFrozen | None
    logits: Float[Tensor, "B C"]
    num_tokens: int

    @classmethod
    def of(cls, model: nn.Module, inputs: Sequence[Any]) -> "FixedNetwork":
        """Run a batch, and keep what is held fixed."""
        ids, padding, segments, *_ = [*inputs, None, None]
        networks: Any = model.members if isinstance(model, Ensemble) else [model]
        features: Any = model.features
        states = None
        frozen: FixedFrozen | None = None
        if features is not None:
            states, frozen = FixedFrozen.of(features, ids, padding, segments)
        found = [FixedMember.of(network, inputs, states) for network in networks]
        logits = torch.stack([each for each, _ in found]).mean(dim=0)
        return cls([member for _, member in found], frozen, logits, ids.shape[1])

    @property
    def blocks(self) -> list[FixedBlock]:
        """All blocks that have heads of our own, in the order in which they ran."""
        return [block for member in self.members for block in member.blocks]

    def words(
        self, directions: Float[Tensor, "N B C"], scales: Sequence[Scale] | None = None
    ) -> Words:
        """Split N sums of the logits, sum_c direction_c logit_c, into tokens and biases.

        `scales` are of the heads of each layer, by default 1.
        """
        scales = scales or [1.0] * len(self.blocks)
        found = Words(biases=[0] * (len(self.blocks) + 1))
        read: Any = 0
        start = 0
        for member in self.members:
            rows, bias = member.read_out.back(directions / len(self.members))
            end = start + len(member.blocks)
            found.biases[end] = found.biases[end] + bias
            heads: list[Tensor] = []
            for number in range(end - 1, start - 1, -1):
                below, above, at_heads = member.blocks[number - start].back(rows, scales[number])
                rows = below.rows
                found.tokens = found.tokens + below.tokens
                found.biases[number + 1] = found.biases[number + 1] + above
                found.biases[number] = found.biases[number] + below.bias
                heads.insert(0, at_heads)
            below = member.embedding.back(rows)
            found.tokens = found.tokens + below.tokens
            found.biases[start] = found.biases[start] + below.bias
            found.heads += heads
            read = read + below.rows
            start = end
        if self.frozen is not None:
            tokens, bias = self.frozen.back(read)
            found.tokens = found.tokens + tokens
            found.biases[0] = found.biases[0] + bias
        return found

    def totals(self, directions: Float[Tensor, "N B C"]) -> list[Float[Tensor, "N B H"]]:
        """Return all that each head of each layer shares, of tokens and biases together.

        With all heads times x that is the integral of d sum / d x_lh, so a point costs one pass
        back, and one forward again, which is the gradient of the way back.
        """
        shapes = [(*directions.shape[:2], len(at.attention.value_weight)) for at in self.blocks]
        totals = [directions.new_zeros(shape) for shape in shapes]
        for x, weight in gauss_legendre(max(len(member.blocks) for member in self.members)):
            with torch.enable_grad():
                scales = [each.new_full((*each.shape, 1, 1), x).requires_grad_() for each in totals]
                found = self.words(directions, scales)
                sums = found.tokens.sum() + torch.stack(found.biases).sum()
            gradients = torch.autograd.grad(sums, scales)
            totals = [
                each + weight * gradient.flatten(2)
                for each, gradient in zip(totals, gradients, strict=True)
            ]
        return totals

    def past(self, directions: Float[Tensor, "N B C"]) -> tuple[Float[Tensor, "N B T"], Sums]:
        """Return what tokens and biases add through no head."""
        tokens: Any = 0
        bias: Any = 0
        for member in self.members:
            rows, of_read_out = member.read_out.back(directions / len(self.members))
            bias = bias + of_read_out
            for block in reversed(member.blocks):
                rows, above = block.above_heads(rows)
                rows = block.past(rows)
                bias = bias + above
            of_tokens, of_bias = self._leaves(member, rows)
            tokens = tokens + of_tokens
            bias = bias + of_bias
        return tokens, bias

    def shares(
        self, directions: Float[Tensor, "N B C"], chosen: Sequence[Sequence[int]]
    ) -> list[tuple[Float[Tensor, "H N B T"], Float[Tensor, "H N B"]]]:
        """Return what the chosen heads of each layer share of each token, and of the biases."""
        found = []
        start = 0
        for member in self.members:
            end = start + len(member.blocks)
            of_member: Any = [(0.0, 0.0)] * len(member.blocks)
            for x, weight in gauss_legendre(len(member.blocks)):
                at_point = self.shares_at(directions, member, x, chosen[start:end])
                of_member = [
                    (tokens + weight * more.cpu().double(), bias + weight * of_bias.cpu().double())
                    for (tokens, bias), (more, of_bias) in zip(of_member, at_point, strict=True)
                ]
            found += of_member
            start = end
        return found

    def shares_at(
        self,
        directions: Float[Tensor, "N B C"],
        member: FixedMember,
        x: float,
        chosen: Sequence[Sequence[int]],
    ) -> Iterator[tuple[Float[Tensor, "H N B T"], Float[Tensor, "H N B"]]]:
        """Yield for each layer z_h(x) . g_h(x) of its chosen heads by tokens, and of the biases.

        z_h is a head's output, g_h the row there, with all heads times x.
        """
        rows, _ = member.read_out.back(directions / len(self.members))
        pending: list[Parts] = []  # of each layer above, H N rows each
        for block, heads in zip(reversed(member.blocks), reversed(chosen), strict=True):
            pending = [self._onward(block, parts, x) for parts in pending]
            above, _ = block.above_heads(rows)
            at_values = block.attention.at_values(block.attention.at_heads(above))
            through = block.attention.back_apart(at_values, heads)
            pending.append(block.below_heads(*through))
            below, _, _ = block.back(rows, x)
            rows = below.rows
        N = len(directions)
        for parts in reversed(pending):
            tokens, bias = self._leaves(member, parts.rows)
            yield (
                (tokens + parts.tokens).unflatten(0, (-1, N)),
                (bias + parts.bias).unflatten(0, (-1, N)),
            )

    def _onward(self, block: FixedBlock, parts: Parts, x: float) -> Parts:
        """Take rows back through a block, beside what they have met: not too many at once."""
        widest = block.feedforward.gate[0].numel() * parts.rows.shape[1]
        found = []
        for rows in parts.rows.split(max(1, MOST_AT_ONCE // widest)):
            below, above, _ = block.back(rows, x)
            found.append((below.rows, below.tokens, above + below.bias))
        rows, tokens, bias = [torch.cat(each) for each in zip(*found, strict=True)]
        return Parts(rows, tokens + parts.tokens, bias + parts.bias)

    def _leaves(self, member: FixedMember, rows: Rows) -> tuple[Float[Tensor, "N B T"], Any]:
        """Return what tokens and biases add by way of a network's embedded vectors."""
        read, tokens, bias = member.embedding.back(rows)
        if self.frozen is None:
            return tokens, bias
        of_tokens, of_bias = self.frozen.back(read)
        return tokens + of_tokens, bias + of_bias


def is_linear_here(model: nn.Module) -> bool:
    """Return whether all parts of a model are written out here.

    A layer of the user's own is not, nor is one with hooks, by which heads are ablated.
    """
    if not isinstance(model, TextClassifier | Ensemble):
        return False
    kinds = (MultiHeadAttention, SharedProjectionAttention)
    blocks = [part for part in model.modules() if isinstance(part, EncoderBlock)]
    return all(
        type(block.attention) in kinds and not block.attention._forward_pre_hooks
        for block in blocks
    )
