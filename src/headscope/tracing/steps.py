"""The computation of self-attention as named steps, observed while `PackedAttention` ran.

Written down beforehand is only which operations make up which step (`PLAN`); a layer that does more is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.attention import MultiHeadAttention
from headscope.attention.reference import PackedAttention
from headscope.proof.carry import carry
from headscope.tracing.recording import Operation, Recorder, Shape, now

# Which operations make up which step, in the order of PackedAttention.forward.
PLAN: dict[str, tuple[str, ...]] = {
    "project to Q, K, V": ("linear",),
    "cut into Q, K, V": ("chunk",),
    "split into heads": ("unflatten", "transpose") * 3,
    "scores Q·Kᵀ": ("transpose", "matmul"),
    "scale": ("div",),
    "softmax": ("softmax",),
    "weighted sum A·V": ("matmul",),
    "concatenate heads": ("transpose", "flatten"),
    "output projection": ("linear",),
}


@dataclass(frozen=True)
class Step:
    """A named step: some operations that follow each other.

    Attributes:
        name: a key of PLAN.
        first: number of its first operation in the whole pass.
        operations: what it does.
        seconds: how long it takes.
    """

    name: str
    first: int
    operations: tuple[Operation, ...]
    seconds: float

    @property
    def inputs(self) -> tuple[Shape, ...]:
        """Shapes of what the step takes from outside, parameters left out."""
        return tuple(
            shape
            for operation in self.operations
            for shape, source in zip(operation.inputs, operation.sources, strict=True)
            if source < self.first
        )

    @property
    def outputs(self) -> tuple[Shape, ...]:
        """Shapes of what the step makes and does not use up itself."""
        used = {source for operation in self.operations for source in operation.sources}
        kept = [each for number, each in enumerate(self.operations, self.first) if number not in used]
        return tuple(shape for operation in kept for shape in operation.outputs)

    @property
    def parameters(self) -> int:
        """How many parameters the step uses."""
        return sum(prod(shape) for operation in self.operations for shape in operation.parameters)

    @property
    def new_bytes(self) -> int:
        """Memory of what the step makes; 0 if all of it is views."""
        return sum(operation.new_bytes for operation in self.operations)

    @property
    def copied_bytes(self) -> int:
        """Memory of copies that are no result."""
        return sum(operation.copied_bytes for operation in self.operations)


@dataclass(frozen=True)
class Trace:
    """One computation of self-attention, step by step.

    Attributes:
        input: shape of what the layer took.
        steps: what the layer did.
        row_sums: smallest and largest sum of a row of softmax.
        output: what the layer returned.
    """

    input: Shape
    steps: tuple[Step, ...]
    row_sums: tuple[float, float]
    output: Float[Tensor, "B T D"]

    @property
    def seconds(self) -> float:
        """How long all steps take."""
        return sum(step.seconds for step in self.steps)


def grouped(operations: list[Operation]) -> Iterator[Step]:
    """Yield the steps that the operations make up.

    Raises:
        ValueError: if they are not those of PLAN, in its order.
    """
    expected = [name for names in PLAN.values() for name in names]
    found = [operation.name for operation in operations]
    if found != expected:
        raise ValueError(f"the layer computed {', '.join(found)}; the steps are known for {', '.join(expected)}")
    first = 0
    for name, names in PLAN.items():
        part = tuple(operations[first : first + len(names)])
        yield Step(name, first, part, sum(operation.seconds for operation in part))
        first += len(names)


def trace(
    layer: PackedAttention, tokens: Float[Tensor, "B T D"], repeats: int, passed: Callable[[], None] = lambda: None
) -> Trace:
    """Run self-attention and return what was seen.

    Args:
        layer: the textbook form, whose operations stand in its code one by one.
        tokens: what it takes as query, key and value.
        repeats: passes that are timed, after one that warms up; each step's time is their median.
        passed: called after each pass.

    Raises:
        ValueError: if the layer does anything that is not in PLAN.
    """
    # The first pass warms up; it is also the one that is looked at closely, since that would disturb the clock.
    steps, output, weights = _one_pass(layer, tokens, watch_copies=True)
    sums = weights.sum(dim=-1, dtype=torch.promote_types(weights.dtype, torch.float32))  # [B, H, T]
    row_sums = (float(sums.min()), float(sums.max()))
    del weights
    passed()
    timed = []
    for _ in range(repeats):
        timed.append(_one_pass(layer, tokens)[0])
        passed()
    steps = [
        replace(step, seconds=median(again.seconds for again in column))
        for step, *column in zip(steps, *timed, strict=True)
    ]
    return Trace(tuple(tokens.shape), tuple(steps), row_sums, output)


@torch.no_grad()
def _one_pass(
    layer: PackedAttention, tokens: Float[Tensor, "B T D"], watch_copies: bool = False
) -> tuple[list[Step], Float[Tensor, "B T D"], Float[Tensor, "B H T T"]]:
    with Recorder(tokens.device, watch_copies) as recorder:
        output, weights = layer(tokens, tokens, tokens)
    return list(grouped(recorder.operations)), output, weights


@torch.no_grad()
def against_layer(
    layer: PackedAttention, tokens: Float[Tensor, "B T D"], output: Float[Tensor, "B T D"], repeats: int
) -> tuple[float, float]:
    """Carry the weights into MultiHeadAttention and run that by its fused kernel.

    Args:
        layer: what was traced.
        tokens: what it took.
        output: what it returned.
        repeats: passes that are timed, after one that warms up.

    Returns:
        The largest absolute difference between both outputs, and the median of the seconds.
    """
    bias = layer.out_proj.bias is not None
    ours = MultiHeadAttention(
        tokens.shape[-1], layer.num_heads, bias=bias, batch_first=True, device=tokens.device, dtype=tokens.dtype
    )
    carry(layer, ours)
    found, _ = ours(tokens, tokens, tokens, need_weights=False)
    seconds = []
    for _ in range(repeats):
        started = now(tokens.device)
        ours(tokens, tokens, tokens, need_weights=False)
        seconds.append(now(tokens.device) - started)
    return float((found - output).abs().max()), median(seconds)
