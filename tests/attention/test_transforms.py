"""What goes through the layer beside a forward and a backward pass: second derivatives, gradients of each text."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from headscope.attention import MultiHeadAttention, RotaryPositions, attention_weights, functional

B, T, H, E = 3, 5, 2, 4
D = H * E
HIDDEN = torch.arange(T) >= torch.tensor([5, 3, 0])[:, None]  # the last text is all padding


def layer(dropout: float = 0.0) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(D, H, dropout, batch_first=True, dtype=torch.float64, rotary=RotaryPositions(E, T))


def tokens() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)


def loss_of(attention: MultiHeadAttention, **options: bool) -> Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]:
    def loss(weights: dict[str, Tensor], text: Tensor, hidden: Tensor) -> Tensor:
        given = (text[None], text[None], text[None], hidden[None])
        return functional_call(attention, weights, given, options)[0].square().sum()  # type: ignore[no-any-return]

    return loss


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(("dropout", "need_weights"), [(0.0, True), (0.3, True), (0.3, False)])
def test_second_derivatives_are_those_of_small_differences(dropout: float, need_weights: bool) -> None:
    attention = layer(dropout)

    def output(text: Tensor) -> Tensor:
        torch.manual_seed(2)
        return attention(text, text, text, HIDDEN, need_weights)[0]  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(output, tokens())
    assert torch.autograd.gradgradcheck(output, tokens())


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_fused_kernel_has_second_derivatives_where_torch_is_told_to_write_it_out() -> None:
    attention = layer()
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(lambda text: attention(text, text, text, need_weights=False)[0], tokens())


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's kernel takes the texts one by one
def test_gradients_of_each_text_are_those_of_the_text_alone(need_weights: bool) -> None:
    attention = layer()
    weights, texts = dict(attention.named_parameters()), tokens().detach()
    loss = loss_of(attention, need_weights=need_weights)
    together = vmap(grad(loss), in_dims=(None, 0, 0))(weights, texts, HIDDEN)
    for row in range(B):
        alone = torch.autograd.grad(loss(weights, texts[row], HIDDEN[row]), [*weights.values()])
        for found, expected in zip(together.values(), alone, strict=True):
            torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("need_weights", [True, False])
def test_with_dropout_each_text_draws_its_own(need_weights: bool) -> None:
    attention = layer(0.5)
    weights, texts = dict(attention.named_parameters()), tokens().detach()[:1].expand(B, T, D)
    loss = loss_of(attention, need_weights=need_weights)
    found = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(weights, texts, HIDDEN)
    assert not torch.equal(found["in_proj_weight"][0], found["in_proj_weight"][1])
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    alone = grad(loss)(weights, texts[0], HIDDEN[0])
    assert alone["in_proj_weight"].shape == found["in_proj_weight"].shape[1:]


@pytest.mark.usefixtures("unchecked_shapes")
def test_one_query_goes_with_the_mask_of_each_text() -> None:
    heads = torch.randn(2, 1, H, T, E)
    found = vmap(lambda hidden: attention_weights(heads[0], heads[1], hidden[None, None, None]))(HIDDEN)
    for row in range(B):
        torch.testing.assert_close(found[row], attention_weights(heads[0], heads[1], HIDDEN[row, None, None, None]))
    assert found[2].abs().max() == 0


def test_the_causal_flag_reaches_the_kernel_where_nobody_needs_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, text, flags = layer(0.2).eval(), tokens(), []
    kernel = functional.F.scaled_dot_product_attention
    monkeypatch.setattr(
        functional.F, "scaled_dot_product_attention", lambda *given: flags.append(given[3:]) or kernel(*given)
    )
    expected, weights = attention(text, text, text, is_causal=True)
    found = attention(text, text, text, need_weights=False, is_causal=True)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert flags == [(None, 0.0, True)]
    assert weights.triu(1).abs().max() == 0
    attention.train()(text, text, text, need_weights=False, is_causal=True)  # drops weights, which the kernel has not
    assert len(flags) == 1
    attention.eval()(text, text, text, torch.zeros(B, T, dtype=torch.bool), need_weights=False, is_causal=True)
    assert flags[1][0] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_stays_near_float64(dtype: torch.dtype) -> None:
    def outcome(attention: MultiHeadAttention, text: Tensor) -> tuple[Tensor, ...]:
        output = attention(text, text, text, HIDDEN, need_weights=False)[0]
        return output.double(), torch.autograd.grad(output.double().square().sum(), text)[0].double()

    bound = 64 * torch.finfo(dtype).eps
    found = outcome(layer().to(dtype), tokens().detach().to(dtype).requires_grad_())
    torch.testing.assert_close(found, outcome(layer(), tokens()), rtol=bound, atol=bound)
