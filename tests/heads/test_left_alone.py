"""Whatever is asked of a model, it is left as it was, after an error too."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert import modeling_bert

import headscope
from foreign_classifiers import classifier
from headscope.heads.contributions import decompose
from headscope.model.architecture import architecture_from
from headscope.model.classifier import TextClassifier
from headscope.settings.config import ModelConfig

IDS = torch.tensor([[2, 7, 9, 5, 3]])


def made(kind: str) -> nn.Module:
    """Return a model that is trained, some of its modules in eval mode, with gradients."""
    torch.manual_seed(0)
    if kind == "Bert":
        model, _ = classifier()
    elif kind == "torch":
        block = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
        encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        model = nn.Sequential(nn.Embedding(50, 12), encoder, nn.Flatten(), nn.Linear(60, 2))
    else:
        config = ModelConfig(d_model=12, num_heads=3, feedforward_size=8, evidence=False)
        model = TextClassifier(architecture_from(config, 50, 16), 2)
    model.train()
    next(module for module in model.modules() if isinstance(module, nn.LayerNorm)).eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model


def state_of(model: nn.Module) -> list[Any]:
    """Return all that could be changed, but for the weights."""
    functions = [ALL_ATTENTION_FUNCTIONS["sdpa"], modeling_bert.eager_attention_forward]
    attributes = ("training", "observers", "ablation", "_qkv_same_embed_dim")
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return [
        functions,
        getattr(getattr(model, "config", None), "_attn_implementation", None),
        [[getattr(each, name, None) for name in attributes] for each in model.modules()],
        [[len(getattr(each, name)) for name in hooks] for each in model.modules()],
        ["forward" in vars(each) for each in model.modules()],
    ]


def captured(model: nn.Module) -> None:
    with headscope.capture(model):
        model(IDS)


def ablated(model: nn.Module) -> None:
    with headscope.ablate(model, {(0, 1): "zero", (1, 2): "uniform"}):
        model(IDS)


def split(model: nn.Module) -> None:
    decompose(model, (IDS,), 5, lambda found: getattr(found, "logits", found))


def shown(model: nn.Module) -> None:
    headscope.show(model, [*"abcde"], IDS)


OWN = (captured, ablated, split, shown)
USES = [(kind, use) for kind in ("ours", "torch") for use in OWN]
USES += [("Bert", use) for use in (captured, ablated, shown)]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("kind", "use"), USES)
def test_a_model_is_left_as_it_was(
    kind: str, use: Callable[[nn.Module], None], fails: bool
) -> None:
    model = made(kind)
    weights = copy.deepcopy(model.state_dict())
    if fails:
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        last.register_forward_hook(lambda *_: 1 / 0)
    before = state_of(model)
    if fails:
        with pytest.raises(ZeroDivisionError):
            use(model)
    else:
        random = torch.get_rng_state()
        use(model)
        draws = use in (captured, ablated)  # for dropout, as the model is trained
        assert draws or torch.equal(torch.get_rng_state(), random)
    assert state_of(model) == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(bool((parameter.grad == 1).all()) for parameter in model.parameters())
