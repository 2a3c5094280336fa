"""The answer and the sets of heads: planted heads are told, and chance alone is not."""

import numpy as np
import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.data.batching import Batch
from headscope.heads.answer import accuracy_change, answer
from headscope.heads.measures import SpecialTokens
from headscope.heads.sets import HeadSets, exact_gains, head_sets, stand_ins
from headscope.heads.study import Study, study, study_plan
from headscope.model.objective import ONE_CLASS

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


def texts() -> list[Batch]:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % 2
    ids = torch.randint(3, VOCABULARY, (N, T), generator=random)
    ids[torch.arange(N), torch.randint(1, T, (N,), generator=random)] = 1 + labels
    order = torch.randperm(N, generator=random)
    return [Batch(ids[order], None, None, labels[order], torch.arange(N))]


def studied(model: nn.Module) -> Study:
    return study(model.eval(), [texts()], SpecialTokens((), ()))


def test_one_head_alone_carries_the_answer() -> None:
    found = studied(Planted({1: 9.0}, heads=2))
    assert found.answer.startswith(
        "1 of 2 heads matters when ablated alone: without head 1 accuracy falls from 100.0 to "
    )
    assert "without head 0 it is 100.0 %" in found.answer
    assert "Where they look does not matter: with plain averages" in found.answer  # it averages
    assert found.details.startswith("240 validation texts: accuracy 100.0 %")
    assert found.texts == N
    gains = found.numbers["attention"]["shapley_accuracy"][0]
    assert gains == pytest.approx([0.0, 0.5], abs=0.05)


def test_a_head_that_must_look_is_told() -> None:
    found = studied(Planted({0: 9.0}, heads=1, looks=True))
    assert found.answer.startswith("The one head matters: without head 0 accuracy falls")
    assert (
        "Where they look matters: with plain averages put in place of every trained map accuracy falls"
        in (found.answer)
    )


def test_two_equal_copies_stand_in_for_each_other() -> None:
    found = studied(Planted({0: 9.0, 1: 9.0}, heads=2))
    assert found.answer.startswith(
        "Neither head is shown to matter when ablated alone, since one can replace the other: "
    )
    assert "; without any head " in found.answer
    assert found.sets is not None
    assert found.sets.accuracy.tolist()[1:] == [1.0, 1.0]
    means = found.numbers["attention"]["shapley_loss"][0]
    assert means[0] == pytest.approx(means[1], abs=1e-9)
    (pair,) = found.sets.pairs
    assert pair.heads == (("attention", 0), ("attention", 1))
    assert pair.both > 0.3 > sum(pair.alone)
    assert "; head 0 and head 1 stand in for each other: ablating both changes" in found.details
    (fact,) = found.sets.facts()["pairs"]
    assert fact["heads"] == [[0, 0], [0, 1]]


def test_heads_that_add_up_do_not_stand_in_for_each_other() -> None:
    """Over 1,000 draws of three pairs: by chance alone any does in at most 5 %."""
    random = np.random.default_rng(0)
    alarms = 0
    members = (np.arange(8)[:, None] >> np.arange(3)) & 1
    heads = [("attention", head) for head in range(3)]
    for _ in range(1000):
        gains = random.normal(0.1, 0.5, (3, 100))
        noise = random.normal(0, 0.1, (8, 100))
        alarms += bool(stand_ins(heads, noise - members @ gains))
    assert alarms <= 65  # 50 are promised; three standard errors are 21


def test_a_study_knows_beforehand_how_much_it_runs() -> None:
    model = Planted({0: 2.0}, heads=3).eval()
    samples = [texts(), texts()]
    for shares in ((), (0.2, 0.5)):
        seen: list[tuple[int, int]] = []
        advance = lambda done, total, seen=seen: seen.append((done, total))  # noqa: E731
        study(model, samples, SpecialTokens((), ()), shares, advance=advance)
        plan = study_plan(model, samples, shares)
        totals = {total for _, total in seen}
        assert totals == {plan.runs}
        assert 0.9 * plan.runs < seen[-1][0] <= plan.runs
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_of_many_heads_those_that_are_enough_are_told() -> None:
    found = studied(Planted({2: 9.0}, heads=4))
    assert found.answer.startswith(
        "1 of 4 heads is enough: with head 2 alone accuracy is 100.0 %, with all heads 100.0 %"
    )
    assert found.details.startswith(
        "240 validation texts, of which 120 chose the sets of heads; on the other 120 accuracy 100.0 %"
    )
    assert found.sets is not None
    assert found.sets.order[0] == ("attention", 2)
    arrays = found.extra()
    assert arrays["sets/heads"].shape == (4, 2)
    assert arrays["sets/accuracy"].shape == (5,)
    assert str(arrays["answer"]) == found.answer


def test_a_model_whose_answers_are_alike_gets_a_warning() -> None:
    found = studied(Planted({}, heads=2))
    assert found.answer.startswith("Warning: the model gives all 240 texts the same class")


def test_shapley_values_sum_to_the_gain_and_samples_come_near() -> None:
    model = Planted({0: 2.0, 1: 1.0, 3: -1.0}, heads=4, looks=True).eval()
    random = np.random.default_rng(0)
    values = random.random((16, 5, 2))
    total = (values[-1] - values[0]) * [-1, 1]
    assert exact_gains(values).sum(axis=1) == pytest.approx(total)
    exact = head_sets(model, texts(), texts(), ONE_CLASS, passes=16)
    sampled = head_sets(model, texts(), [], ONE_CLASS, passes=12)
    assert (exact.is_exact, sampled.is_exact) == (True, False)
    of_sample = sampled.shapley["attention"]
    for name, (means, _) in exact.shapley["attention"].items():
        found, errors = of_sample[name]
        for mean, estimate, error in zip(means, found, errors, strict=True):
            assert abs(mean - estimate) <= 4 * error + 1e-9


def test_a_head_of_which_no_text_says_anything_is_not_put_first() -> None:
    """Of 41 heads each of eight texts says something of two."""
    model = Planted(dict.fromkeys(range(41), 1.0), heads=41).eval()
    (batch,) = texts()
    few = batch._replace(token_ids=batch.token_ids[:8], labels=batch.labels[:8])
    sets = head_sets(model, [few], [], ONE_CLASS, passes=3)
    means, errors = sets.shapley["attention"]["shapley_loss"]
    assert np.isnan(means).any()
    assert np.isfinite(errors).all()
    (_, first), *_ = sets.order
    assert means[first] > 0


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Over 1,000 draws of 400 texts, of which each head changes 4 % in either direction alike."""
    random = np.random.default_rng(0)
    alarms = missed = 0
    for _ in range(1000):
        whole = (random.random(400) < 0.9).astype(float)
        flips = random.random((2, 400)) < np.where(whole > 0, 0.04, 0.36)
        heads = [np.where(flip, 1 - whole, whole) for flip in flips]
        changes = [accuracy_change(whole, head, num_tests=2) for head in heads]
        alarms += any(change.matters for change in changes)
        missed += not changes[0].low <= 0 <= changes[0].high
    assert alarms <= 65  # 50 are promised; three standard errors are 21
    assert missed <= 45


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (np.r_[np.zeros(40), np.ones(160)], "accuracy falls from 100.0 to 80.0 %"),
        (np.ones(200), "accuracy stays at 100.0 %"),
    ],
)
def test_signs_are_told_rightly(after: np.ndarray, words: str) -> None:
    whole = np.ones(200)
    sentence, details = answer(whole, {("a", 0): after}, whole)
    assert words in sentence
    assert "inconclusive" not in sentence
    assert "200 validation texts" in details


def test_of_many_heads_the_answer_speaks_of_one_set_of_texts() -> None:
    """Those that did not choose the sets: the accuracy with all heads stands there once."""
    whole = np.tile([0.0, 1.0, 1.0, 1.0], 60)
    heads = [("attention", head) for head in range(3)]
    correct = np.tile(whole[1::2], (4, 1))
    sets = HeadSets(heads, correct, np.zeros(4), np.full(4, 0.5), {}, True)
    sentence, details = answer(whole, dict.fromkeys(heads, whole), whole, sets)
    assert "with all heads 100.0 %" in sentence
    assert "accuracy is 100.0 % instead of 100.0 %" in sentence
    assert "75.0" not in sentence + details


@pytest.mark.parametrize(
    ("right", "chosen", "words"),
    [  # texts of 200 that each size gets right; accuracies that chose
        ([100, 191, 196], [0.5, 0.975, 0.98], "1 of 3 heads is nearly enough: with head 0 alone"),
        ([100, 198, 199], [0.5, 0.975, 0.98], "1 of 3 heads is enough: with head 0 alone"),
        ([100, 150, 196], [0.5, 0.975, 0.98], "1 of 3 heads is not enough: with head 0 alone"),
        ([100, 190, 196], [0.98, 0.98, 0.98], "Heads are needed: without any"),
        ([192, 190, 196], [0.98, 0.98, 0.98], "Hardly any head is needed: without any"),
        ([100, 120, 150], [0.5, 0.6, 0.9], "It takes all 3 heads: with the best 2 alone"),
        (
            [100, 120, 198],
            [0.5, 0.6, 0.9],
            "It may take all 3 heads: on the texts that chose, fewer were over a point less accurate",
        ),
    ],
)
def test_heads_are_enough_only_where_accuracy_is_not_shown_to_fall(
    right: list[int], chosen: list[float], words: str
) -> None:
    correct = np.stack([np.arange(200) < count for count in [*right, 200]]).astype(float)
    heads = [("attention", head) for head in range(3)]
    sizes = np.array([*chosen, 0.985])
    sets = HeadSets(heads, correct, np.zeros(4), sizes, {}, True)
    whole = np.repeat(correct[-1], 2)
    sentence, _ = answer(whole, dict.fromkeys(heads, whole), whole, sets)
    assert sentence.startswith(words)


def test_of_few_texts_heads_may_be_enough() -> None:
    correct = np.stack([np.arange(10) < count for count in (3, 8, 10, 10)]).astype(float)
    heads = [("attention", head) for head in range(3)]
    sets = HeadSets(heads, correct, np.zeros(4), np.array([0.3, 1.0, 1.0, 1.0]), {}, True)
    whole = np.ones(20)
    sentence, _ = answer(whole, dict.fromkeys(heads, whole), whole, sets)
    assert sentence.startswith("1 of 3 heads may be enough: with head 0 alone accuracy is 80.0 %")
