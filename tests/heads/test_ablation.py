"""Ablating heads: a planted head is found, nothing is left changed, effects hold beyond chance."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.data.batching import Batch
from headscope.heads.ablation import (
    INCONCLUSIVE,
    MATTERS,
    NO_EFFECT,
    ablation_effect,
    outcomes,
)
from headscope.heads.capture import (
    Change,
    headed_layers,
    intervene,
    intervene_layers,
    logits_of,
)
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective
from headscope.settings.config import ModelConfig

H, E, PLANTED, CLASSES = 3, 4, 1, 3


def changes(
    model: nn.Module,
    batches: list[Batch],
    objective: Objective = ONE_CLASS,
    change: Change = "zero",
) -> torch.Tensor:
    """Return what ablating each head changes, loss and accuracy: [head, text, 2]."""
    whole = outcomes(model, batches, objective, {})
    heads = [
        (name, head)
        for name, layer in headed_layers(model).items()
        for head in range(layer.num_heads)
    ]
    return torch.stack(
        [outcomes(model, batches, objective, {head: change}) - whole for head in heads]
    )


class Planted(nn.Module):
    """One layer of attention, of which one head alone reaches the logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, H * E)
        self.attention = MultiHeadAttention(H * E, H, batch_first=True)
        self.head = nn.Linear(H * E, CLASSES)
        nn.init.normal_(self.head.weight, std=5)  # so that not all texts are given one class
        with torch.no_grad():
            others = [column for column in range(H * E) if column // E != PLANTED]
            self.attention.out_proj.weight[:, others] = 0

    def forward(
        self,
        token_ids: torch.Tensor,
        padding: torch.Tensor | None = None,
        segment_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        tokens = self.embedding(token_ids)
        given = self.attention(tokens, tokens, tokens, padding, need_weights=False)[0]
        kept = torch.ones_like(token_ids, dtype=torch.bool) if padding is None else ~padding
        return self.head((given * kept[..., None]).sum(1) / kept.sum(1, keepdim=True))


def batch(lengths: list[int], seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    padding = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    ids = torch.randint(1, 20, padding.shape, generator=random).masked_fill(padding, 0)
    labels = torch.randint(0, CLASSES, (len(lengths),), generator=random)
    return Batch(ids, padding if padding.any() else None, None, labels, torch.arange(len(lengths)))


def classifier() -> TextClassifier:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 3, "num_layers": 2, "feedforward_size": 16}
    config = ModelConfig(**sizes, pooling="mean", evidence=False)
    model = TextClassifier(config, 20, CLASSES, 16).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture
def planted() -> nn.Module:
    return Planted().double().eval()


@pytest.fixture
def sample(planted: nn.Module) -> list[Batch]:
    """Texts whose labels the model gets right, so that it has something to lose."""
    batches = [batch([5, 9, 7, 9]), batch([4] * 8, seed=1)]
    return [each._replace(labels=logits_of(planted, each).argmax(-1)) for each in batches]


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "several"])
def test_the_planted_head_alone_matters(
    planted: nn.Module, sample: list[Batch], objective: Objective
) -> None:
    if isinstance(objective, MultiLabel):  # the labels that the model gives the texts at 0.5
        sample = [each._replace(labels=(logits_of(planted, each) >= 0).long()) for each in sample]
    for change in ("zero", "uniform"):
        losses = changes(planted, sample, objective, change)[..., 0]
        assert (losses != 0).any(dim=1).tolist() == [head == PLANTED for head in range(H)]
    loss, accuracy = changes(planted, sample, objective)[PLANTED].T
    assert loss.mean() > 0
    assert accuracy.mean() < 0
    # Nothing comes out of any head but the planted one: without it the bias alone is left.
    bias = planted.head(planted.attention.out_proj.bias)
    expected = torch.cat(
        [
            objective.losses(bias.expand(len(each.labels), -1), each.labels)
            - objective.losses(logits_of(planted, each), each.labels)
            for each in sample
        ]
    )
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)


# --- nothing is left changed ---


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("on purpose")

    model = classifier().train()
    model.encoder.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    layers = headed_layers(model)
    layers["encoder.blocks.0.attention"].intervention = kept = lambda sums: 2 * sums
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    if fails:
        with pytest.raises(RuntimeError, match="on purpose"):
            monkeypatch.setattr(model.head, "forward", broken)
            changes(model, [batch([3, 4])])
    else:
        changes(model, [batch([3, 4])], change="uniform")
    assert [module.training for module in model.modules()] == modes
    assert [layer.intervention for layer in layers.values()] == [kept, None]
    assert all(
        torch.equal(parameter.grad, torch.ones_like(parameter)) for parameter in model.parameters()
    )
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_an_intervention_comes_after_those_that_are_there(planted: nn.Module) -> None:
    seen: list[float] = []
    texts = batch([4])
    with intervene_layers(planted, {"attention": lambda sums: torch.full_like(sums, 3.0)}):
        with intervene_layers(
            planted, {"attention": lambda sums: seen.append(sums.mean().item()) or sums}
        ):
            logits_of(planted, texts)
        assert planted.attention.intervention is not None
    assert seen == [3.0]
    assert planted.attention.intervention is None


@pytest.mark.parametrize(
    ("ablated", "message"),
    [
        ({("attention", 3): "zero"}, "got 3 of 'attention'"),
        ({("elsewhere", 0): "zero"}, "got 0 of 'elsewhere'"),
    ],
)
def test_what_cannot_be_done_is_refused(
    planted: nn.Module, ablated: dict[tuple[str, int], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message), intervene(planted, ablated):
        pass
    assert planted.attention.intervention is None


# --- effects ---


RANDOM = np.random.default_rng(7)


def increases(mean: float, spread: float, texts: int) -> list[float]:
    values = RANDOM.normal(size=texts)
    return (mean + spread * (values - values.mean()) / values.std(ddof=1)).tolist()


@pytest.mark.parametrize(
    ("mean", "spread", "texts", "state"),
    [
        (0.4, 0.5, 101, MATTERS),
        (-0.4, 0.5, 101, MATTERS),  # it does harm
        (0.0, 0.03, 101, NO_EFFECT),
        (0.004, 0.02, 401, NO_EFFECT),  # surely above 0, and surely too small to count
        (0.02, 0.5, 101, INCONCLUSIVE),
        (0.011, 0.01, 101, INCONCLUSIVE),  # surely above 0, but perhaps below what counts
        (0.4, 0.0, 29, INCONCLUSIVE),  # the same for all texts, of which there are too few
        (0.0, 0.0, 29, INCONCLUSIVE),
    ],
)
def test_an_effect_has_one_of_three_states(
    mean: float, spread: float, texts: int, state: str
) -> None:
    found = ablation_effect(increases(mean, spread, texts))
    assert found.state == state
    assert (found.loss_increase, found.standard_error) == pytest.approx(
        (mean, spread / texts**0.5), abs=1e-9
    )


def test_more_tests_ask_for_more() -> None:
    values = increases(0.1, 0.4, 101)  # 2.26 errors beyond what counts
    assert (ablation_effect(values).state, ablation_effect(values, num_tests=100).state) == (
        MATTERS,
        INCONCLUSIVE,
    )


def test_chance_alone_rarely_makes_a_head_matter() -> None:
    alarms = sum(
        any(
            ablation_effect(RANDOM.normal(0.01, 0.3, 60).tolist(), num_tests=8).state
            != INCONCLUSIVE
            for _ in range(8)
        )
        for _ in range(200)
    )
    assert alarms / 200 <= 0.08  # 0.05 is promised for a head that lies on the limit
