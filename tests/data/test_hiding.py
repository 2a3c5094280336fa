"""Which tokens are hidden, what is shown in their place, and what is never touched."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models

from headscope.data.config import TokenizerConfig
from headscope.data.hiding import hide, mask_id_of, ordinary_tokens
from headscope.data.tokenizer import MASK, SPECIAL_TOKENS, trained_tokenizer
from headscope.errors import ConfigError

V, MASK_ID = 1009, 4
ORDINARY = torch.arange(V) >= 5


def ids_of(rows: int = 211, length: int = 307) -> torch.Tensor:
    return torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(0))


def test_so_many_tokens_are_hidden_and_shown_as_they_should_be() -> None:
    ids = ids_of()
    shown, hidden = hide(ids, ORDINARY, MASK_ID, 0.15, torch.Generator().manual_seed(1))
    ordinary = ORDINARY[ids]
    count = int(hidden.sum())
    # Four standard deviations of a share of so many.
    assert count / int(ordinary.sum()) == pytest.approx(0.15, abs=4 * (0.15 * 0.85 / int(ordinary.sum())) ** 0.5)
    masked, kept = (shown == MASK_ID) & hidden, (shown == ids) & hidden
    assert int(masked.sum()) / count == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / count) ** 0.5)
    assert int(kept.sum()) / count == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / count) ** 0.5 + 1 / V)
    others = shown[hidden & ~masked & ~kept]
    assert ORDINARY[others].all()
    assert len(others.unique()) > 0.5 * len(others)  # drawn among all of them


def test_all_else_stays_and_special_tokens_are_never_hidden() -> None:
    ids = ids_of()
    shown, hidden = hide(ids, ORDINARY, MASK_ID, 0.5)
    assert torch.equal(shown[~hidden], ids[~hidden])
    assert ORDINARY[ids[hidden]].all()


def test_the_same_numbers_hide_the_same_and_others_hide_others() -> None:
    ids = ids_of()
    first, again, other = (
        hide(ids, ORDINARY, MASK_ID, 0.15, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_special_tokens_are_not_ordinary(kind: str, tmp_path: Path) -> None:
    texts = ["a lovely film [MASK] with rain", "an awful day"] * 40
    tokenizer = trained_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=300), 16, tmp_path)
    ordinary = ordinary_tokens(tokenizer)
    assert len(ordinary) == tokenizer.get_vocab_size()
    assert {tokenizer.id_to_token(number) for number in (~ordinary).nonzero()[:, 0].tolist()} == {*SPECIAL_TOKENS}
    assert mask_id_of(tokenizer) == tokenizer.token_to_id(MASK)


def test_roberta_calls_it_otherwise_and_without_one_a_line_says_so() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    with pytest.raises(ConfigError) as caught:
        mask_id_of(tokenizer)
    assert str(caught.value) == (
        "pretraining.epochs: takes a tokenizer with a token [MASK] or <mask> to hide others behind, and that of "
        "model.path has none; take pretraining=none"
    )
    tokenizer.add_special_tokens(["<mask>"])
    assert mask_id_of(tokenizer) == 2


def test_a_mask_of_the_vocabulary_alone_and_ids_of_nothing_are_not_ordinary() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[MASK]": 1, "b": 5}, unk_token="a"))
    assert ordinary_tokens(tokenizer).tolist() == [True, False, False, False, False, True]
