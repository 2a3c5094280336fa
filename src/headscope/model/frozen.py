"""The first layers of a network, which never learn: their hidden states are computed once.

`model.features` reads them from a checkpoint below our own layers, `model.frozen_layers` from the
network that is fine-tuned. Shape letters: B texts, T tokens, D model width, F width of the states.
"""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from headscope.model.embedding import TokenEmbedding, TokenIds
from headscope.model.encoder import Encoder
from headscope.model.pooling import PaddingMask


class FrozenLayers(nn.Module):
    """An embedding and the blocks above it, in eval mode; the states of some layers side by side.

    Args:
        embedding: of token ids.
        encoder: its blocks are run up to the highest layer that is read.
        layers: that are read: layer N is what block N returns, counted from 1, and after the last
            block of all what the last norm returns.
    """

    def __init__(self, embedding: TokenEmbedding, encoder: Encoder, layers: Sequence[int]) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder
        self.layers = layers

    @property
    def layer_width(self) -> int:
        """D, of one layer."""
        block = self.encoder.blocks[0]
        return int(block.attention.embed_dim)  # type: ignore[union-attr, arg-type]

    @property
    def width(self) -> int:
        """F, of all layers that are read together."""
        return len(self.layers) * self.layer_width

    def train(self, mode: bool = True) -> "FrozenLayers":
        """Stay in eval mode."""
        return super().train(False)

    def forward(
        self,
        token_ids: TokenIds,
        key_padding_mask: PaddingMask = None,
        segment_ids: TokenIds | None = None,
    ) -> Float[Tensor, "B T F"]:
        """Return the hidden states of the layers that are read."""
        tokens = self.embedding(token_ids, segment_ids)
        states = self.encoder.states(tokens, key_padding_mask, self.layers)
        return input_vectors(torch.cat(states, dim=-1))

    def digest(self) -> str:
        """Return a digest of the weights that the states depend on."""
        found = hashlib.blake2b(repr(self).encode(), digest_size=16)
        parts = [self.embedding, *self.encoder.blocks[: max(self.layers)], self.encoder.norm]
        for weight in (weight for part in parts for weight in part.parameters()):
            found.update(weight.detach().cpu().numpy().tobytes())
        return found.hexdigest()


def learning_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules of a model, by name, but for those of a frozen encoder below it."""
    frozen: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, FrozenLayers):
            frozen.append(f"{name}.")
        if not any(f"{name}.".startswith(outer) for outer in frozen):
            yield name, module


def input_vectors(vectors: Float[Tensor, "B T F"]) -> Float[Tensor, "B T F"]:
    """Return the vectors unchanged; the call tells `FixedGates` that layers count from here."""
    if has_torch_function_unary(vectors):
        marked: Tensor = handle_torch_function(input_vectors, (vectors,), vectors)
        return marked
    return vectors
