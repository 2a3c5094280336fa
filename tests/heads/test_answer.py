"""The answer and the sets of heads: planted heads are named, and chance alone is not."""

import numpy as np
import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.data.batching import Batch
from headscope.heads.ablation import INCONCLUSIVE, MATTERS, NO_EFFECT
from headscope.heads.answer import accuracy_change, answer
from headscope.heads.measures import SpecialTokens
from headscope.heads.sets import HeadSets
from headscope.heads.study import Study, study

N, T, VOCABULARY = 240, 7, 12


class Planted(nn.Module):
    """Heads of two numbers each, of which those in `votes` give the class of a text.

    Token 1 or 2, somewhere in the text, is the class; a head that looks finds it by its key, one
    that averages takes the mean of all values.
    """

    def __init__(self, votes: dict[int, float], heads: int, looks: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 2 * heads)
        self.attention = MultiHeadAttention(2 * heads, heads, batch_first=True)
        self.head = nn.Linear(2 * heads, 2)
        D = 2 * heads
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.embedding.weight[1, 0], self.embedding.weight[2, 0] = 1.0, -1.0
            if looks:  # a decoy votes as well, but no head that looks sees it
                self.embedding.weight[3:7, 0], self.embedding.weight[7:, 0] = 1.0, -1.0
            self.embedding.weight[1:3, 1] = 1.0
            weight = self.attention.in_proj_weight
            for head in votes:
                weight[2 * D + 2 * head, 0] = 1.0
                if looks:
                    self.attention.in_proj_bias[2 * head] = 20.0
                    weight[D + 2 * head, 1] = 1.0
            self.attention.out_proj.weight.copy_(torch.eye(D))
            for head, vote in votes.items():
                self.head.weight[0, 2 * head], self.head.weight[1, 2 * head] = vote, -vote

    def forward(
        self, token_ids: torch.Tensor, padding: torch.Tensor | None = None, _: None = None
    ) -> torch.Tensor:
        tokens = self.embedding(token_ids)
        given = self.attention(tokens, tokens, tokens, padding, need_weights=False)[0]
        return self.head(given[:, 0])


def texts() -> list[list[Batch]]:
    """Return the halves of some texts."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % 2
    ids = torch.randint(3, VOCABULARY, (N, T), generator=random)
    ids[torch.arange(N), torch.randint(1, T, (N,), generator=random)] = 1 + labels
    halves = torch.randperm(N, generator=random).chunk(2)
    return [[Batch(ids[half], None, None, labels[half], half)] for half in halves]


def studied(model: nn.Module) -> Study:
    return study(model.eval(), *texts(), SpecialTokens((), ()))


def test_one_head_alone_carries_the_answer() -> None:
    found = studied(Planted({1: 9.0}, heads=2))
    assert found.answer.startswith("On 120 other texts head 1 alone keeps 100.0 of 100.0 % (")
    assert " points), without heads " in found.answer
    # It averages.
    assert "Replacing attention by plain averages costs nothing measurable (" in found.answer
    assert found.details.startswith("240 texts, 120 of which chose the order of the heads; ")
    assert found.texts == N
    losses, _ = found.numbers["attention"]["loss_zeroed"]
    assert [loss > 0.1 for loss in losses] == [False, True]
    assert [effect.state for effect in found.effects.values()] == [NO_EFFECT, MATTERS]


def test_a_head_that_must_look_costs_accuracy_when_averaged() -> None:
    found = studied(Planted({0: 9.0}, heads=1, looks=True))
    assert found.answer.startswith("On 120 other texts the network without heads keeps ")
    assert "Replacing attention by plain averages costs " in found.answer
    assert "nothing" not in found.answer


def test_of_many_heads_the_fewest_that_are_enough_are_named() -> None:
    found = studied(Planted({2: 9.0}, heads=4))
    assert found.answer.startswith("On 120 other texts head 2 alone keeps 100.0 of 100.0 %")
    assert found.sets.order[0] == ("attention", 2)
    arrays = found.extra()
    assert arrays["sets/heads"].shape == (4, 2)
    assert arrays["sets/enough"] == found.facts()["enough"] == 1
    assert str(arrays["answer"]) == found.answer


def test_more_heads_than_can_be_searched_are_ordered_by_what_each_alone_does() -> None:
    found = studied(Planted({3: 9.0, 11: 9.0}, heads=20))
    assert {head for _, head in found.sets.order[:2]} == {3, 11}
    assert found.sets.sizes == [0, 1, 2, 4, 8, 16, 20]


def test_heads_that_add_nothing_are_not_praised() -> None:
    found = studied(Planted({}, heads=2))
    assert found.answer.startswith("Heads are not shown to help: on 120 other texts accuracy is ")
    assert "enough" not in found.answer


@pytest.mark.parametrize("heads", [1, 3, 20])
def test_the_bar_counts_runs_over_the_texts(heads: int) -> None:
    seen: list[tuple[int, int]] = []
    model = Planted({0: 2.0}, heads).eval()
    study(model, *texts(), SpecialTokens((), ()), advance=lambda *both: seen.append(both))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Over 1,000 draws of 400 texts, of which a change moves 4 % in either direction alike."""
    random = np.random.default_rng(0)
    alarms = 0
    for _ in range(1000):
        whole = (random.random(400) < 0.9).astype(float)
        flips = random.random(400) < np.where(whole > 0, 0.04, 0.36)
        alarms += accuracy_change(whole, np.where(flips, 1 - whole, whole)).state == MATTERS
    assert alarms <= 65  # 50 are promised; three standard errors are 21


HEADS = [("attention", head) for head in (1, 3, 0, 2)]


def told(right: list[int], enough: int, texts: int = 200, averaged: int = 0) -> str:
    """Return the answer where 0 to 4 heads alone get so many texts right."""
    correct = np.stack([np.arange(texts) < count for count in right]).astype(float)
    sets = HeadSets(HEADS, [0, 1, 2, 3, 4], correct, enough)
    whole = np.concatenate([correct[-1], correct[-1]])
    after = (np.arange(len(whole)) < averaged).astype(float)
    return answer(whole, after, sets, ["attention"])[0]


@pytest.mark.parametrize(
    ("right", "enough", "words"),
    [
        ([100, 150, 196, 197, 198], 2, "On 200 other texts heads 1 and 3 alone keep 98.0 of 99.0 % ("),
        ([100, 190, 196, 197, 198], 3, "On 200 other texts heads 1, 3 and 0 alone keep 98.5 of"),
        ([100, 120, 130, 150, 198], 4, "On 200 other texts heads 1, 3 and 0 alone keep 75.0 of 99.0 %"),
        ([100, 150, 196, 197, 198], 0, "On 200 other texts the network without heads keeps 50.0 of"),
        ([100, 100, 101, 100, 101], 2, "Heads are not shown to help: on 200 other texts accuracy is 50.5 %"),
        ([120, 100, 90, 80, 80], 1, "Heads lower the accuracy: on 200 other texts accuracy is 40.0 % with"),
    ],
)  # fmt: skip
def test_praise_stands_only_where_heads_are_shown_to_help(
    right: list[int], enough: int, words: str
) -> None:
    assert told(right, enough).startswith(words)


def test_of_few_texts_nothing_is_claimed() -> None:
    sentences = told([5, 6, 6, 6, 7], 2, texts=10, averaged=12)
    assert sentences.startswith("Too few texts to tell whether heads help: on 10 other texts ")
    assert "Too few texts to tell what replacing attention by plain averages costs (" in sentences


@pytest.mark.parametrize(
    ("averaged", "words"),
    [
        (380, "costs 4.0 points ("),
        (396, "costs nothing measurable ("),
        (300, "costs 24.0 points ("),
    ],
)
def test_what_averages_cost_has_its_interval(averaged: int, words: str) -> None:
    correct = np.stack([np.arange(200) < count for count in (100, 190, 190, 190, 198)])
    sets = HeadSets(HEADS, [0, 1, 2, 3, 4], correct.astype(float), 1)
    whole = (np.arange(400) < 396).astype(float)
    after = (np.arange(400) < averaged).astype(float)
    sentences, details = answer(whole, after, sets, ["attention"])
    assert f"Replacing attention by plain averages {words}" in sentences
    assert "accuracy on all 99.0 % (" in details


def test_an_interval_that_is_wide_is_inconclusive() -> None:
    half = np.tile([0.0, 1.0], 20)
    assert accuracy_change(half, 1 - half).state == INCONCLUSIVE
    assert accuracy_change(np.ones(400), np.ones(400)).state == NO_EFFECT
    assert accuracy_change(np.zeros(400), np.ones(400)).state == MATTERS


def test_heads_of_several_layers_have_their_layer() -> None:
    correct = np.stack([np.arange(200) < count for count in (100, 150, 196, 198)]).astype(float)
    order = [("a", 1), ("b", 0), ("a", 0)]
    whole = np.concatenate([correct[-1], correct[-1]])
    sentence, _ = answer(whole, whole, HeadSets(order, [0, 1, 2, 3], correct, 2), ["a", "b"])
    assert "layer 0 head 1 and layer 1 head 0 alone keep 98.0 of 99.0 %" in sentence
