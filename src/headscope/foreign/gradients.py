"""The sums of any model's logits, by torch's gradients with the gates held fixed.

`headscope.heads.contributions` says what the parts are, and asks here for models that are not ours.
Shape letters: B texts, T tokens, H heads, Q queries, K keys, C classes, S sums that are split, N
gradients that are taken at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from headscope.foreign.fixed_gates import FixedGates, HeadOutputs, given
from headscope.foreign.gate_rules import depends
from headscope.foreign.recomputation import no_recomputation
from headscope.heads.capture import NotObservedError, device_of, eval_mode, named_layers
from headscope.heads.contributions import Contributions, SumsOf, exact_products, passing
from headscope.heads.linear import Shares, gauss_legendre
from headscope.record.explanation import MOST_MISSED

LEAST_PRECISE = 1e-4  # of a type whose rounding is no module's
MOST_AT_ONCE = 2**20  # numbers of head outputs whose gradients are taken at once
FirstOf = Callable[[Sequence[Tensor]], Tensor]


def decompose(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf
) -> Contributions:
    """Split sums of a model's logits; arguments as of `headscope.heads.contributions.decompose`."""
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        found = _contributions(gates, logits, sums_of(logits.cpu().double()))
    return _with_unknown(found, model, inputs, num_tokens)


def shares(model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf) -> Shares:
    """Let the heads share every token and bias; arguments as in `decompose`."""
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        return shares_of(gates, sums_of(logits.cpu().double()))


def split(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int, sums_of: SumsOf, first_of: FirstOf
) -> tuple[Contributions, Shares, list[Tensor], list[str], list[str]]:
    """Return all parts of one text: see `headscope.heads.contributions.Split`.

    `first_of` returns, of the sums, the one whose maps are wanted.
    """
    with _fixed_gates(model, inputs, num_tokens) as (gates, logits):
        sums = sums_of(logits.cpu().double())
        parts = _contributions(gates, logits, sums)
        of_heads = shares_of(gates, sums)
        maps = _maps(gates, first_of(sums.unbind(dim=1)))
    parts = _with_unknown(parts, model, inputs, num_tokens)
    return parts, of_heads, maps, gates.layers, [*gates.heads]


def _contributions(
    gates: FixedGates, logits: Float[Tensor, "B C"], sums: Float[Tensor, "B S"]
) -> Contributions:
    parts = [_parts(gates, of_texts) for of_texts in sums.unbind(dim=1)]
    words, heads, by_call = tree_map(lambda *of_sums: torch.stack(of_sums, dim=-1), *parts)
    ends = [0, *(number + 1 for number in gates.heads.values()), by_call.shape[1]]
    groups = [by_call[:, slice(*pair)].sum(dim=1) for pair in pairwise(ends)]
    biases = torch.stack(groups, dim=1)  # [B, layers_and_1, S]
    return Contributions(words, heads, biases, sums.detach().cpu(), logits.detach().cpu())


def _with_unknown(
    found: Contributions, model: nn.Module, inputs: Sequence[Any], num_tokens: int
) -> Contributions:
    """Name the module that is not the sum of its parts, if there is one."""
    if bool((found.missed.abs() <= MOST_MISSED).all()):  # NaN is none
        return found
    if torch.finfo(found.logits.dtype).eps > LEAST_PRECISE:
        name = str(found.logits.dtype).removeprefix("torch.")
        return replace(found, unknown=f"rounding in {name}")
    return replace(found, unknown=_unknown_module(model, inputs, num_tokens))


@contextmanager
def _fixed_gates(
    model: nn.Module, inputs: Sequence[Any], num_tokens: int
) -> Iterator[tuple[FixedGates, Float[Tensor, "B C"]]]:
    """Run the model with its gates held fixed; in the block gradients can be taken."""
    with (
        eval_mode(model),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device_of(model).type, enabled=False),
        exact_products(),
        no_recomputation(),
    ):
        padding = inputs[1] if len(inputs) > 1 else None
        gates = FixedGates(len(inputs[0]), num_tokens)
        try:
            with named_layers(model), gates:
                logits = model(*given(inputs[:3], padding), *inputs[3:])
        except NotObservedError:  # found out at the end: words are explained without heads
            gates = FixedGates(len(inputs[0]), num_tokens)
            with gates:
                logits = model(*given(inputs[:3], padding), *inputs[3:])
        yield gates, logits


def _parts(gates: FixedGates, sums: Float[Tensor, " B"]) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return words, heads and biases of a sum of each text: each leaf times its gradient."""
    leaves = gates.leaves
    calls = [gates.calls[number] for number in gates.heads.values()]
    gradients = _gradients(sums, [*leaves, *(call.head_outputs for call in calls)])
    words, biases = gates.of_leaves([each[None] for each in gradients[: len(leaves)]], 1)
    pairs = zip(calls, gradients[len(leaves) :], strict=True)
    return words[0], [passing(*pair).sum(dim=2).cpu().double() for pair in pairs], biases[0]


def _maps(gates: FixedGates, sums: Float[Tensor, " B"]) -> list[Float[Tensor, "B H Q K"]]:
    """Return what passes from each key at each query of each head to a sum of each text."""
    calls = [gates.calls[number] for number in gates.heads.values()]
    gradients = _gradients(sums, [call.head_outputs for call in calls])
    return [passing(*pair) for pair in zip(calls, gradients, strict=True)]


def _gradients(sums: Float[Tensor, " *B"], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return d sum / d tensor for each tensor: 0 where it is not used."""
    if not sums.requires_grad or not tensors:
        return [torch.zeros_like(tensor) for tensor in tensors]
    return torch.autograd.grad(sums.sum(), tensors, retain_graph=True, materialize_grads=True)


def _unknown_module(model: nn.Module, inputs: Sequence[Any], num_tokens: int) -> str:
    """Return the first module, in the order in which they are done, that misses something."""
    outputs: list[tuple[str, Tensor]] = []

    def keep(name: str, module: nn.Module, _: Any, output: Any) -> None:
        title = f"{name} ({type(module).__name__})"
        outputs.extend((title, each) for each in tree_leaves(output) if depends(each))

    with ExitStack() as stack:
        stack.enter_context(eval_mode(model))  # no other thread runs it meanwhile
        for name, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):  # which cannot be looked into
                stack.callback(module.register_forward_hook(partial(keep, name)).remove)
        gates, _ = stack.enter_context(_fixed_gates(model, inputs, num_tokens))
        for title, output in outputs:
            signs = torch.linspace(-1, 1, output.numel()).to(output).view(output.shape)
            total = (output * signs).sum()
            gradients = _gradients(total, gates.leaves)
            parts = zip(gates.leaves, gradients, strict=True)
            found = sum((leaf * gradient).sum().item() for leaf, gradient in parts)
            if not abs(found - total.item()) <= MOST_MISSED * (output * signs).abs().sum().item():
                return title
    return type(getattr(model, "model", model)).__name__  # not our wrapper's


# What heads share


def shares_of(gates: FixedGates, sums: Float[Tensor, "B S"]) -> Shares:
    """One gradient for each x to all heads; then one for each layer to what is below its heads."""
    B, S = sums.shape
    numbers = [*gates.heads.values()]
    calls = [gates.calls[number] for number in numbers]
    others = [call for number, call in enumerate(gates.calls) if number not in numbers]
    heads = [torch.zeros(call.weights.shape[1], S, B, gates.num_tokens + 1) for call in calls]
    table = [of_layer.double() for of_layer in heads]  # tokens, then biases
    outputs = [call.head_outputs for call in calls]
    each = torch.eye(S, dtype=sums.dtype, device=sums.device)
    with _scaled_heads(calls) as scale:
        scale(0.0)
        past = _below(gates, sums.sum(dim=0), each, len(gates.calls))
        with _scaled_heads(others) as scale_others:
            scale_others(0.0)
            unobserved = past - _below(gates, sums.sum(dim=0), each, len(gates.calls))
        for x, weight in gauss_legendre(len(calls)):
            scale(x)
            gradients = _gradients_of_rows(sums.sum(dim=0), outputs, each)  # x g(x), [S, ...] each
            for layer, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
                H = len(table[layer])
                of_heads = gradient.reshape(S, B, H, -1)
                alone = torch.eye(H).to(gradient)[:, None, None, :, None] * of_heads
                rows = alone.reshape(H * S, *output.shape)
                found = _below(gates, output, rows, numbers[layer])
                table[layer] += weight / x * found.unflatten(0, (H, S))
    table = [of_layer.permute(2, 0, 3, 1) for of_layer in table]  # [B, H, T + 1, S]
    past = past.permute(1, 2, 0)  # [B, T + 1, S]
    return Shares(
        [of_layer[:, :, :-1] for of_layer in table],
        [of_layer[:, :, -1] for of_layer in table],
        past[:, :-1],
        past[:, -1],
        unobserved.sum(dim=-1).T,
    )


@contextmanager
def _scaled_heads(calls: Sequence[HeadOutputs]) -> Iterator[Callable[[float], None]]:
    """Let the gradient of all that passes a head be scaled, as if its output were."""
    scale = 1.0

    def set_scale(x: float) -> None:
        nonlocal scale
        scale = x

    with ExitStack() as stack:
        for call in calls:
            handle = call.passed_on.register_hook(
                lambda gradient: None if gradient is None else gradient * scale
            )
            stack.callback(handle.remove)
        yield set_scale


def _below(
    gates: FixedGates, output: Tensor, rows: Float[Tensor, "N ..."], layer: int
) -> Float[Tensor, "N B tokens_and_1"]:
    """Return rows times an output, as a sum over tokens and over the biases that are below it."""
    biases = [leaf for place, leaf in gates.biases if place <= layer]
    leaves = [*gates.words, *biases]
    size = max(1, MOST_AT_ONCE // output.numel())
    parts = []
    for some in rows.split(size):
        gradients = _gradients_of_rows(output, leaves, some)
        words, of_biases = gates.of_leaves(gradients, len(some))
        parts.append(torch.cat([words, of_biases.sum(dim=-1, keepdim=True)], dim=-1))
    return torch.cat(parts)


def _gradients_of_rows(
    output: Tensor, tensors: Sequence[Tensor], rows: Float[Tensor, "N ..."]
) -> list[Float[Tensor, "N ..."]]:
    """Return the gradients of N sums, rows times an output: in one pass if its functions can."""
    zeros = [tensor.new_zeros(1).expand(len(rows), *tensor.shape) for tensor in tensors]
    if not output.requires_grad or not tensors:
        return zeros
    take = partial(torch.autograd.grad, output, tensors, retain_graph=True)
    try:
        found = take(rows, is_grads_batched=True, allow_unused=True)
    except RuntimeError:  # a module's own function has no rule for vmap
        each = [take(row, materialize_grads=True) for row in rows]
        found = tuple(map(torch.stack, zip(*each, strict=True)))
    pairs = zip(found, zeros, strict=True)
    return [zero if gradient is None else gradient for gradient, zero in pairs]
