"""Batches keep to the budget, hold every row once, and come in an order that seed and epoch decide."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.batching import (
    BatchLoader,
    EncodedTexts,
    TextBatches,
    TokenBudgetSampler,
    encode_texts,
)
from headscope.data.tokenizer import train_tokenizer
from headscope.data.units import beginning
from headscope.settings.config import TokenizerConfig

LENGTHS = np.random.default_rng(0).integers(3, 60, 200)
some_lengths = st.lists(st.integers(1, 64), min_size=1, max_size=80).map(np.array)


def epoch(sampler: TokenBudgetSampler, number: int = 0) -> list[list[int]]:
    sampler.set_epoch(number)
    return list(sampler)


def texts(lengths: np.ndarray, with_segments: bool = False) -> EncodedTexts:
    """Texts whose ids tell row and place: 100 * row + place + 1."""
    ids = [100 * row + place + 1 for row, length in enumerate(lengths) for place in range(length)]
    segments = np.array([place % 2 for length in lengths for place in range(length)], np.uint8)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return EncodedTexts(np.array(ids, np.int32), starts, segments if with_segments else None, 0)


def loader(shares: np.ndarray | None = None) -> BatchLoader:
    batches = TextBatches(texts(LENGTHS), np.arange(len(LENGTHS)) % 3)
    return BatchLoader(batches, TokenBudgetSampler(LENGTHS, 200, seed=0, shares=shares))


@settings(max_examples=60, deadline=None)
@given(
    lengths=some_lengths,
    budget=st.integers(64, 300),
    seed=st.none() | st.integers(0, 9),
    number=st.integers(0, 5),
)
def test_no_batch_exceeds_the_budget_and_each_row_comes_once(
    lengths: np.ndarray, budget: int, seed: int | None, number: int
) -> None:
    sampler = TokenBudgetSampler(lengths, budget, seed)
    batches = epoch(sampler, number)
    assert all(len(rows) * lengths[rows].max() <= budget for rows in batches)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    assert len(batches) == len(sampler) == len(epoch(sampler, number + 1))


def test_the_order_is_that_of_seed_and_epoch() -> None:
    first, again, other = (TokenBudgetSampler(LENGTHS, 200, seed) for seed in (1, 1, 2))
    assert epoch(first, 3) == epoch(again, 3) == epoch(first, 3)
    orders = [epoch(first, 3), epoch(first, 4), epoch(other, 3)]
    assert all(one != another for one, another in itertools.combinations(orders, 2))


def test_an_epoch_of_several_passes_is_that_of_several_epochs() -> None:
    once = TokenBudgetSampler(LENGTHS, 200, seed=1)
    sampler = TokenBudgetSampler(LENGTHS, 200, seed=1, passes=3)
    assert len(sampler) == 3 * len(once)
    assert epoch(sampler, 1) == epoch(once, 3) + epoch(once, 4) + epoch(once, 5)


def test_short_and_long_batches_are_shuffled_and_mixed_anew_within_a_bucket() -> None:
    sampler = TokenBudgetSampler(LENGTHS, 200, seed=1)
    first, second = ([frozenset(rows) for rows in epoch(sampler, number)] for number in (0, 1))
    assert len(set(first) & set(second)) < len(first) / 2
    mean_lengths = [LENGTHS[rows].mean() for rows in epoch(sampler)]
    assert abs(np.corrcoef(mean_lengths, range(len(mean_lengths)))[0, 1]) < 0.5


def test_without_a_seed_the_short_texts_come_first_in_their_own_order() -> None:
    lengths = np.array([20, 3, 9, 7, 30, 8])
    sampler = TokenBudgetSampler(lengths, 24)
    assert epoch(sampler) == epoch(sampler, 1) == [[1, 3, 5], [2], [0], [4]]


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_the_batches_of_texts_drawn_by_shares(world_size: int) -> None:
    shares = 1.0 + np.arange(200) % 7
    places = [(0, rank, world_size, 1, shares) for rank in range(world_size)]
    ranks = [TokenBudgetSampler(LENGTHS, 64, *place) for place in places]
    shared = [tuple(rows) for rank in ranks for rows in epoch(rank)]
    alone = epoch(TokenBudgetSampler(LENGTHS, 64, 0, shares=shares))
    assert Counter(shared) <= Counter(map(tuple, alone))
    assert {len(rank) for rank in ranks} == {len(alone) // world_size}


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_processes_share_the_batches_in_rounds_of_neighbours(world_size: int) -> None:
    buckets = -(-LENGTHS // 8)
    places = [(0, rank, world_size) for rank in range(world_size)]
    shares = [epoch(TokenBudgetSampler(LENGTHS, 64, *place)) for place in places]
    rows = [row for share in shares for batch in share for row in batch]
    count = len(TokenBudgetSampler(LENGTHS, 64, 0)) // world_size
    assert {len(share) for share in shares} == {count}
    assert len(rows) == len(set(rows))
    longest = np.array([[buckets[batch].max() for batch in share] for share in shares])
    for together in longest.T:  # no batch lies between the shortest and the longest of a round
        assert not ((longest > together.min()) & (longest < together.max())).any()
    # Those that are not shuffled are dealt out, all of them.
    parts = [epoch(TokenBudgetSampler(LENGTHS, 64, None, *place[1:])) for place in places]
    dealt = [row for part in parts for batch in part for row in batch]
    assert sorted(dealt) == list(range(len(LENGTHS)))


def test_batches_that_fill_no_round_are_left_out_and_others_in_each_epoch() -> None:
    lengths = 8 * np.arange(2, 13)
    # 11 texts, a batch each.
    ranks = [TokenBudgetSampler(lengths, 16, 0, rank, 3) for rank in range(3)]
    seen = [{row for rank in ranks for (row,) in epoch(rank, number)} for number in range(11)]
    assert [len(found) for found in seen] == [9] * 11
    assert all(sum(row in found for found in seen) > 4 for row in range(11))


@settings(max_examples=60, deadline=None)
@given(lengths=some_lengths, budget=st.integers(64, 300), number=st.integers(0, 5), data=st.data())
def test_texts_drawn_by_shares_come_as_often_as_expected_within_the_budget(
    lengths: np.ndarray, budget: int, number: int, data: st.DataObject
) -> None:
    some_shares = st.lists(st.floats(0.01, 1), min_size=len(lengths), max_size=len(lengths))
    shares = np.array(data.draw(some_shares))
    sampler = TokenBudgetSampler(lengths, budget, seed=1, shares=shares)
    batches = epoch(sampler, number)
    assert all(len(rows) * lengths[rows].max() <= budget for rows in batches)
    assert len(batches) == len(sampler) == len(epoch(sampler, number + 1))
    counts = np.bincount([*itertools.chain(*batches)], minlength=len(lengths))
    assert counts.sum() == len(lengths)
    assert (abs(counts - len(lengths) * shares / shares.sum()) < 1 + 1e-9).all()


def test_each_class_has_its_share_of_the_draws_and_each_pass_its_own() -> None:
    labels = np.repeat([0, 1, 2], [160, 35, 5])
    shares = np.bincount(labels)[labels] ** -0.5
    sampler = TokenBudgetSampler(LENGTHS, 200, seed=1, shares=shares)
    passes = [[row for rows in epoch(sampler, number) for row in rows] for number in range(9)]
    for rows in passes:
        roots = np.sqrt([160, 35, 5])
        assert np.bincount(labels[rows]) == pytest.approx(200 * roots / roots.sum(), abs=6)
    assert len({*map(frozenset, passes)}) == 9


def test_a_batch_holds_the_texts_of_its_rows_padded_to_the_longest() -> None:
    lengths = np.array([3, 1, 2])
    batch = TextBatches(texts(lengths, with_segments=True), np.array([7, 8, 9]))[[2, 0]]
    assert batch.token_ids.tolist() == [[201, 202, 0], [1, 2, 3]]
    assert batch.key_padding_mask is not None
    assert batch.key_padding_mask.tolist() == [[False, False, True], [False] * 3]
    assert batch.segment_ids is not None
    assert batch.segment_ids.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert (batch.labels.tolist(), batch.rows.tolist()) == ([9, 7], [2, 0])
    tensors = (batch.token_ids, batch.segment_ids, batch.labels, batch.rows)
    assert {tensor.dtype for tensor in tensors} == {torch.int64}


def test_batches_are_padded_to_a_multiple_but_not_beyond_the_longest_text() -> None:
    batches = TextBatches(texts(np.array([3, 1, 10, 9])), multiple=8)
    assert [batches[rows].token_ids.shape[1] for rows in ([0, 1], [3], [2])] == [8, 10, 10]
    assert batches[[1]].token_ids.tolist() == [[101] + 7 * [0]]
    mask = batches[[1]].key_padding_mask
    assert mask is not None
    assert mask.tolist() == [[False] + 7 * [True]]


def test_a_batch_without_padding_has_no_mask_and_single_texts_no_segments() -> None:
    batch = TextBatches(texts(np.array([2, 3, 2])), np.array([0, 1, 0]))[[0, 2]]
    assert batch.token_ids.tolist() == [[1, 2], [201, 202]]
    assert batch.key_padding_mask is None
    assert batch.segment_ids is None


def rows_of(batches: BatchLoader) -> list[list[int]]:
    return [batch.rows.tolist() for batch in batches]


@pytest.mark.parametrize("shares", [None, np.arange(1, 201)])
@pytest.mark.parametrize("stop", [1, 5])
def test_a_stopped_epoch_goes_on_after_the_batches_that_were_done(
    stop: int, shares: np.ndarray | None
) -> None:
    stopped = loader(shares)
    stopped.sampler.set_epoch(2)
    whole = list(stopped.sampler)
    done = [batch.rows.tolist() for batch in itertools.islice(iter(stopped), stop)]
    state = stopped.state_dict()
    resumed = loader(shares)
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(2)
    assert done + rows_of(resumed) == whole
    assert resumed.state_dict() == {"done": len(whole)}
    resumed.sampler.set_epoch(3)
    assert rows_of(resumed) == list(resumed.sampler)  # the epoch after it is whole again


@pytest.mark.parametrize("text", ["some words, and more of them. ", "日本語 テキスト。"])
def test_of_a_very_long_text_no_more_is_read_than_the_kept_tokens_need(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.data.units.MOST_CHARACTERS", 5000)
    config = TokenizerConfig(kind="bpe", vocab_size=400)
    tokenizer = train_tokenizer(iter([text, "some words of others"] * 3), config)
    tokenizer.enable_truncation(64)
    long = text * 3000
    for row in ((long,), (long, "short")):
        assert encode_texts(tokenizer, [row]).ids.tolist() == tokenizer.encode(*row).ids
    assert 2500 < len(beginning(long, 64)) <= 5000
    assert beginning(long, len(long)) == long
