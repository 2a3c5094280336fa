"""What a step costs: counted from the shapes that were seen, and the formula that the count follows.

Symbols: B texts, T tokens of a text, D model width, H heads, E = D / H width of a head; in O(...), n is T and d is D.
A multiply-add is one multiplication and one addition, two FLOPs. Adding a bias is not counted, as is usual.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from headscope.tracing.recording import Operation
from headscope.tracing.steps import Step

MULTIPLY_ADDS = "multiply-adds"


@dataclass(frozen=True)
class Cost:
    """What theory says of a step.

    Attributes:
        formula: how many `unit` it takes, in the symbols B, T, D, H and E.
        order: how its cost grows.
        exponent: of n in `order`.
        unit: what is counted.
    """

    formula: str
    order: str
    exponent: int
    unit: str = MULTIPLY_ADDS


COSTS: dict[str, Cost] = {
    "project to Q, K, V": Cost("B·T·3D·D", "O(n·d²)", 1),
    "cut into Q, K, V": Cost("0", "O(n)", 1),
    "split into heads": Cost("0", "O(n)", 1),
    "scores Q·Kᵀ": Cost("B·H·T²·E", "O(n²·d)", 2),
    "scale": Cost("B·H·T²", "O(n²)", 2, "divisions"),
    "softmax": Cost("B·H·T²", "O(n²)", 2, "exponentials"),
    "weighted sum A·V": Cost("B·H·T²·E", "O(n²·d)", 2),
    "concatenate heads": Cost("0", "O(n)", 1),
    "output projection": Cost("B·T·D·D", "O(n·d²)", 1),
}


def work(step: Step) -> int:
    """Return how many of its unit a step takes: of multiply-adds, divisions or exponentials."""
    return sum(map(_counted, step.operations))


def multiply_adds(step: Step) -> int:
    """Return how many multiply-adds a step takes."""
    return work(step) if COSTS[step.name].unit == MULTIPLY_ADDS else 0


def _counted(operation: Operation) -> int:
    """Return how many numbers of the result there are, times what each takes."""
    results = sum(map(prod, operation.outputs))
    match operation.name:
        case "linear":  # each is a product of a row of the weight [out, in] with a token
            return results * operation.parameters[0][1]
        case "matmul":  # each is a product of a row of the first with a column of the second
            return results * operation.inputs[0][-1]
        case "div" | "softmax":
            return results
    return 0  # views and copies


def sizes(steps: tuple[Step, ...]) -> dict[str, int]:
    """Return B, T, D, H and E as they were seen: before the cut into heads and after it."""
    B, T, D = steps[0].inputs[0]
    _, H, _, E = next(step for step in steps if step.name == "split into heads").outputs[0]
    return {"B": B, "T": T, "D": D, "H": H, "E": E}


def value(formula: str, symbols: Mapping[str, int]) -> int:
    """Return the number that a formula gives, such as B·T·3D·D.

    Args:
        formula: factors between dots, each a number, a symbol, or both, perhaps squared.
        symbols: what each symbol stands for.
    """
    result = 1
    for factor in formula.split("·"):
        found = re.fullmatch(r"(\d*)([A-Z]?)(²?)", factor)
        assert found, f"{factor} is no factor"
        number, symbol, square = found.groups()
        result *= int(number or 1) * symbols.get(symbol, 1) ** (2 if square else 1)
    return result
