"""Tokens that are hidden from an encoder, which has to guess them."""

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer
from torch import Tensor

from headscope.data.tokenizer import MASK
from headscope.errors import ConfigError

MASKS = (MASK, "<mask>")  # as BERT and as RoBERTa call it
SHOWN_AS_MASK, SHOWN_AS_ANOTHER = 0.8, 0.1  # of the hidden tokens; the rest stay as they are


def mask_id_of(tokenizer: Tokenizer) -> int:
    """Return the id that stands where a token is hidden.

    Raises:
        ConfigError: if the tokenizer has no such token.
    """
    known = (tokenizer.token_to_id(mask) for mask in MASKS)
    found = next((number for number in known if number is not None), None)
    if found is None:
        raise ConfigError(
            f"pretraining.epochs: takes a tokenizer with a token {' or '.join(MASKS)} to hide others behind, "
            "and that of model.path has none; take pretraining=none"
        )
    return found


def ordinary_tokens(tokenizer: Tokenizer) -> Bool[Tensor, " V"]:
    """Return True for the ids that stand for parts of texts, False for [SEP] and its like and for ids of nothing."""
    vocabulary = tokenizer.get_vocab()
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    special |= {vocabulary[mask] for mask in MASKS if mask in vocabulary}
    ordinary = torch.zeros(max(vocabulary.values()) + 1, dtype=torch.bool)
    ordinary[sorted({*vocabulary.values()} - special)] = True
    return ordinary


def hide(
    token_ids: Int[Tensor, "B T"],
    ordinary: Bool[Tensor, " V"],
    mask_id: int,
    share: float,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Return the ids with some of them hidden, and True at those places.

    Each ordinary token is hidden with probability `share`, by itself: parts of one word are not hidden together. Of the
    hidden ones 80 % are shown as [MASK], 10 % as another token, and 10 % as they are: no text has a [MASK] later on, so
    the encoder must not learn to look at that alone (Devlin et al. 2019, BERT, section 3.1, task 1, and appendix A.1).

    Args:
        token_ids: padded with the id of a special token.
        ordinary: of every id, whether it may be hidden and shown instead of another.
        mask_id: of [MASK].
        share: of the ordinary tokens.
        generator: of the random numbers, on the device of token_ids; None for torch's own.
    """

    def drawn() -> Tensor:
        return torch.rand(token_ids.shape, device=token_ids.device, generator=generator)

    hidden, lot = (drawn() < share) & ordinary[token_ids], drawn()
    known = ordinary.nonzero()[:, 0]  # [number of ordinary tokens]
    others = known[torch.randint(len(known), token_ids.shape, device=token_ids.device, generator=generator)]
    shown = torch.where(hidden & (lot < SHOWN_AS_MASK), mask_id, token_ids)
    return torch.where(hidden & (lot >= 1 - SHOWN_AS_ANOTHER), others, shown), hidden
