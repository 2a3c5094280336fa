"""Whether choosers of tokens are told apart, by a model of which one token decides."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headscope.attention import MultiHeadAttention
from headscope.config import ModelConfig
from headscope.data.batching import Batch
from headscope.heads import faithfulness as module
from headscope.heads.faithfulness import Faithfulness, contributed, faithfulness
from headscope.model.classifier import TextClassifier
from headscope.model.objective import ONE_CLASS, MultiLabel, Objective

CLASS, SEPARATOR, OTHER, DECIDES = 2, 3, 5, 7
SPECIAL = (CLASS, SEPARATOR)
TEXT = [CLASS, OTHER, 8, 8, 9, 8, 8, 9, 9, DECIDES, 8, SEPARATOR]  # ten tokens that are not special
CERTAIN = 1 / (1 + torch.tensor(-10.0, dtype=torch.float64).exp().item())


class Bag(nn.Module):
    """Class 1 if a token 7 is there; one head attends to 7, one to 5, and none has an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8, dtype=torch.float64)
        self.attention = MultiHeadAttention(8, 2, batch_first=True, dtype=torch.float64)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        with torch.no_grad():
            self.embedding.weight[DECIDES, 0] = self.embedding.weight[OTHER, 1] = 1
            self.attention.in_proj_bias[[0, 4]] = (
                30  # every query, in the first number of either head
            )
            self.attention.in_proj_weight[8, 0] = self.attention.in_proj_weight[12, 1] = 1  # keys

    def forward(
        self,
        token_ids: torch.Tensor,
        padding: torch.Tensor | None = None,
        segment_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        tokens = self.embedding(token_ids)
        tokens = tokens + self.attention(tokens, tokens, tokens, padding, need_weights=False)[0]
        kept = torch.ones_like(token_ids, dtype=torch.bool) if padding is None else ~padding
        score = 20 * (tokens[..., 0] * kept).sum(1) - 10
        return torch.stack([torch.zeros_like(score), score], dim=1)


def batch(texts: list[list[int]]) -> Batch:
    longest = max(map(len, texts))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    padding = torch.arange(longest) >= torch.tensor([len(text) for text in texts])[:, None]
    rows = torch.arange(len(texts))
    return Batch(ids, padding if padding.any() else None, None, torch.full_like(rows, -1), rows)


def measured(*arguments: Any, **options: Any) -> Faithfulness:
    found = faithfulness(*arguments, **options)
    assert found is not None
    return found


@pytest.mark.parametrize("objective", [ONE_CLASS, MultiLabel()], ids=["one", "several"])
def test_the_chooser_that_names_the_token_is_told_from_those_that_do_not(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several labels too: without token 7 class 0, at a half, would be the likelier one."""
    monkeypatch.setattr(module, "NUM_RANDOM", 400)
    texts = batch([TEXT, TEXT[:1] + TEXT[2:]])
    found = measured(Bag(), [texts], SPECIAL, objective=objective)
    certain = 2 * CERTAIN - 1  # with the token 1 / (1 + exp -10), without it 1 / (1 + exp 10)
    heads = found.heads["attention"]
    assert heads["comprehensiveness"][0] == pytest.approx([certain, 0], abs=1e-9)
    assert heads["sufficiency"][0] == pytest.approx([0, certain], abs=1e-9)
    assert found.choosers["gradient"]["comprehensiveness"] == pytest.approx((certain, 0), abs=1e-9)
    assert found.choosers["gradient"]["sufficiency"] == pytest.approx((0, 0), abs=1e-9)
    # Of ten tokens (nine in the other text) 1, 1, 1, 2 and 5 are chosen: the deciding one that
    # often by chance.
    by_chance = sum(k / 10 + k / 9 for k in (1, 1, 1, 2, 5)) / 10
    assert found.choosers["chance"]["comprehensiveness"][0] == pytest.approx(by_chance, abs=0.04)
    assert found.choosers["chance"]["sufficiency"][0] == pytest.approx(1 - by_chance, abs=0.04)


def test_rollout_follows_the_heads() -> None:
    """Half of its mass is the token itself; a token that one of two heads attends to stands out."""
    found = measured(Bag(), [batch([TEXT[:1] + TEXT[2:]])], SPECIAL)
    assert found.choosers["rollout"]["comprehensiveness"][0] == pytest.approx(2 * CERTAIN - 1)


def test_special_tokens_are_neither_ranked_nor_hidden() -> None:
    """Were 7 special, nothing that is hidden could matter."""
    found = measured(Bag(), [batch([TEXT])], (*SPECIAL, DECIDES))
    of_heads = {name: means for name, (means, _) in found.heads["attention"].items()}
    for measures in (*found.choosers.values(), of_heads):
        assert all(value == pytest.approx((0, 0), abs=1e-9) for value in measures.values())


def test_hidden_tokens_number_a_share_rounded_up_and_never_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NUM_RANDOM", 1)
    model, hidden = Bag(), []
    model.register_forward_pre_hook(lambda _, args: hidden.append(args[1].sum(-1)))
    faithfulness(model, [batch([TEXT])], SPECIAL, shares=(0.2, 0.11))
    # Two numbers alike, of five choosers: two hidden, then the eight others.
    assert hidden[-1].tolist() == [2] * 5 + [8] * 5
    faithfulness(model, [batch([[CLASS, DECIDES, 8, SEPARATOR]])], SPECIAL, shares=(0.9,))
    assert hidden[-1].tolist() == [1] * 10


def test_texts_of_one_token_are_passed_over() -> None:
    short = [CLASS, DECIDES, SEPARATOR]
    together, alone = (
        measured(Bag(), [batch([short, TEXT])], SPECIAL),
        measured(Bag(), [batch([TEXT])], SPECIAL),
    )
    assert together.heads == alone.heads
    assert faithfulness(Bag(), [batch([short])], SPECIAL) is None


def classifier(pooling: str = "mean") -> TextClassifier:
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=12, num_heads=3, num_layers=2, feedforward_size=16, pooling=pooling, evidence=False
    )
    model = TextClassifier(config, 20, 3, 16).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def drawn(lengths: list[int]) -> list[list[int]]:
    return [[CLASS, *torch.randint(4, 20, (length,)).tolist(), SEPARATOR] for length in lengths]


@pytest.mark.parametrize("pooling", ["mean", "first", "max", "additive"])
def test_padding_changes_nothing(pooling: str) -> None:
    model, texts = classifier(pooling), drawn([2, 9, 5])
    together = measured(model, [batch(texts)], SPECIAL)
    apart = measured(model, [batch([text]) for text in texts], SPECIAL)
    for layer, measures in together.heads.items():
        for name, value in measures.items():
            assert value[0] == pytest.approx(apart.heads[layer][name][0], abs=1e-9)
            assert value[1] == pytest.approx(apart.heads[layer][name][1], abs=1e-9)
    for name in ("rollout", "gradient"):
        for measure, value in together.choosers[name].items():
            assert value == pytest.approx(apart.choosers[name][measure], abs=1e-9)


def test_the_same_is_measured_again_and_the_model_is_left_alone() -> None:
    model, batches = classifier().train(), [batch(drawn([4, 6]))]
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        first, second = measured(model, batches, SPECIAL), measured(model, batches, SPECIAL)
    assert first == second
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert list(first.heads) == ["encoder.blocks.0.attention", "encoder.blocks.1.attention"]


def test_what_contributes_most_is_hidden_first_and_others_may_be_compared() -> None:
    texts = batch(drawn([9, 8, 7]))
    model = classifier("first")
    found = faithfulness(
        model, [texts], shares=(0.2,), more={"its own": contributed, "zeros": zeros}
    )
    assert found is not None
    names = ["rollout", "gradient", "contributions", "its own", "zeros", "chance"]
    assert list(found.choosers) == names
    assert found.choosers["its own"] == found.choosers["contributions"]
    assert found.choosers["zeros"] != found.choosers["contributions"]
    assert "contributions" not in measured_names("mean")


def zeros(model: nn.Module, texts: Batch, objective: Objective) -> Tensor:
    return torch.zeros(texts.token_ids.shape)


def measured_names(pooling: str) -> list[str]:
    found = faithfulness(classifier(pooling), [batch(drawn([9, 8]))], shares=(0.2,))
    assert found is not None
    return list(found.choosers)
