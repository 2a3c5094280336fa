"""headscope.ablate on the three kinds of models: uniform weights, names, errors."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import headscope
from headscope.attention import MultiHeadAttention
from headscope.heads.capture import headed_layers

B, T, D, H = 3, 6, 16, 4
PADDING = torch.arange(T) >= torch.tensor([6, 4, 5])[:, None]


class Encoder(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.attention = layer

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        options = {"key_padding_mask": padding, "need_weights": False}
        return self.attention(tokens, tokens, tokens, **options)[0]


def made(kind: str) -> tuple[nn.Module, tuple[Any, ...] | dict[str, Any]]:
    torch.manual_seed(0)
    if kind == "ours":
        return Encoder(MultiHeadAttention(D, H, batch_first=True)), (torch.randn(B, T, D), PADDING)
    if kind == "torch":
        layer = nn.MultiheadAttention(D, H, batch_first=True)
        return Encoder(layer), (torch.randn(B, T, D), PADDING)
    ids = torch.randint(1, 50, (B, T))
    given = {"input_ids": ids, "attention_mask": (~PADDING).long()}
    if kind == "GPT2":
        sizes = {"n_embd": D, "n_layer": 2, "n_head": H, "vocab_size": 50, "use_cache": False}
        return GPT2Model(GPT2Config(**sizes)), given
    sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H}
    return BertModel(BertConfig(vocab_size=50, intermediate_size=D, **sizes)), given


def run(model: nn.Module, given: Any) -> torch.Tensor:
    output = model(**given) if isinstance(given, dict) else model(*given)
    return output if isinstance(output, torch.Tensor) else output[0]


@pytest.fixture(params=["ours", "torch", "Bert", "GPT2"])
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Any, bool]:
    model, given = made(request.param)
    return model.double().eval(), _double(given), request.param == "GPT2"


def _double(given: Any) -> Any:
    if isinstance(given, dict):
        return given
    return given[0].double(), given[1]


@torch.no_grad()
def test_a_uniform_head_looks_alike_at_all_keys_that_it_may_see(case: Any) -> None:
    model, given, is_causal = case
    whole = run(model, given)
    name = list(headed_layers(model))[-1]
    with headscope.capture(model) as plain:
        run(model, given)
    with headscope.ablate(model, {(name, 2): "uniform"}), headscope.capture(model) as maps:
        changed = run(model, given)
    may_see = (~PADDING)[:, None].expand(B, T, T)
    if is_causal:
        may_see = may_see & torch.ones(T, T).tril().bool()
    expected = may_see.double() / may_see.sum(-1, keepdim=True)
    torch.testing.assert_close(maps[name][:, 2].double(), expected)
    others = [0, 1, 3]
    assert torch.equal(maps[name][:, others], plain[name][:, others])
    assert (changed - whole).abs().max() > 1e-6
    assert torch.equal(run(model, given), whole)


@torch.no_grad()
def test_layers_have_numbers_and_names(case: Any) -> None:
    model, given, _ = case
    name = list(headed_layers(model))[-1]
    last = len(headed_layers(model)) - 1
    found = [
        _ablated(model, given, layer)
        for layer in (name, f"model.{name}", last, name.split(".", 1)[-1])
    ]
    assert all(torch.equal(each, found[0]) for each in found)
    assert (found[0] - run(model, given)).abs().max() > 1e-5


def _ablated(model: nn.Module, given: Any, layer: Any) -> torch.Tensor:
    with headscope.ablate(model, {(layer, 1): "uniform", (layer, 0): "zero"}):
        return run(model, given)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({(2, 0): "zero"}, "layer: expected a number from 0 to 0, got 2"),
        ({("elsewhere", 0): "zero"}, "layer: expected a number, or one of .*, got 'elsewhere'"),
        ({(0, 9): "zero"}, "head: expected one of a layer"),
    ],
)
def test_what_cannot_be_ablated_says_what_can(heads: Any, message: str) -> None:
    model, _ = made("ours")
    with pytest.raises(ValueError, match=message), headscope.ablate(model, heads):
        pass
    no_heads = pytest.raises(ValueError, match="model: expected attention")
    with no_heads, headscope.ablate(nn.Linear(2, 2), {}):
        pass
