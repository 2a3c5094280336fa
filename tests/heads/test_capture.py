"""Observing an attention layer: rows, gradients, and what is put back; verify checks the maps."""

import pytest
import torch
from torch import nn

from headscope.attention import MultiHeadAttention
from headscope.heads.capture import capture, observe

B, T, H, E = 3, 7, 5, 4


def layer(**options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(H * E, H, batch_first=True, **options).eval()


def padding() -> torch.Tensor:
    return torch.arange(T) >= torch.tensor([[7], [4], [6]])


@pytest.mark.parametrize("rows", [[1], [2, 0], slice(1, 3)])
def test_rows_are_chosen_before_anything_is_computed(rows: list[int] | slice) -> None:
    model, tokens = layer(), torch.randn(B, T, H * E)
    with capture(model) as everything:
        model(tokens, tokens, tokens, key_padding_mask=padding())
    with capture(model, rows) as chosen:
        model(tokens, tokens, tokens, key_padding_mask=padding())
    assert torch.equal(chosen[""], everything[""][rows])


def test_gradients_and_training_go_on_as_before() -> None:
    model, tokens = layer(), torch.randn(B, T, H * E)
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        if watched:
            with capture(model):
                model(tokens, tokens, tokens, need_weights=False)[0].sum().backward()
        else:
            model(tokens, tokens, tokens, need_weights=False)[0].sum().backward()
        gradients.append(model.in_proj_weight.grad.clone())
    assert torch.equal(*gradients)


def test_observers_are_put_back_even_after_an_error() -> None:
    model = nn.ModuleDict({"a": layer(), "b": layer()})

    def outer(*_: object) -> None: ...

    model["a"].observer = outer
    with pytest.raises(RuntimeError, match="on purpose"), observe(model, lambda *_: None):
        raise RuntimeError("on purpose")
    assert model["a"].observer is outer
    assert model["b"].observer is None
