"""The tables of trace: the steps of one computation, and their growth."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from headscope.tracing.cost import COSTS, MULTIPLY_ADDS, multiply_adds, work
from headscope.tracing.growth import Growth, exponent
from headscope.tracing.recording import Shape
from headscope.tracing.steps import Step, Trace

WIDE = 180  # columns from which on the cells of a step stand side by side; on a narrower screen they are stacked
FRESH_BYTES = 32 * 2**20  # glibc hands smaller memory out again as it is; for larger, Linux clears new pages each time
TIMED_LENGTHS = 3  # time is fitted at the longest texts: at short ones calling torch counts, and memory is used again
HEADINGS = ("step", "operations", "input", "output", "parameters", "multiply-adds", "", "order", "new bytes", "time")
# Headings whose cells stand below each other on a narrow screen.
STACKS = ((0, 1), (2, 3), (4,), (5, 6, 7), (8, 9))
LEFT = ("step", "operations", "input", "output")


def seconds_in_words(seconds: float) -> str:
    """Return a time with three digits and its unit."""
    return _with_unit(seconds * 1e6, {" s": 1e6, " ms": 1e3, " µs": 1.0})


def _with_unit(amount: int | float, units: dict[str, float]) -> str:
    """Return three digits and the first unit that is not too large; the last is the smallest."""
    unit = next((unit for unit, size in units.items() if amount >= 0.9995 * size), [*units][-1])
    return f"{amount / units[unit]:#.3g}".rstrip(".") + unit


def _count(count: int | float) -> str:
    """Return a count for a narrow column."""
    return _with_unit(count, {" G": 1e9, " M": 1e6, " k": 1e3}) if count >= 1000 else str(round(count))


def step_table(seen: Trace, width: int) -> Table:
    """Return the table of steps: cells side by side, or stacked where the screen is narrow.

    Args:
        seen: what was traced.
        width: columns of the screen.
    """
    stacks = [(number,) for number in range(len(HEADINGS))] if width >= WIDE else STACKS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), leading=1)
    for stack in stacks:
        left = HEADINGS[stack[0]] in LEFT
        table.add_column(_stacked(HEADINGS, stack), justify="left" if left else "right", overflow="fold")
    rows = [_input_cells(seen), *(_step_cells(step, seen) for step in seen.steps), _total_cells(seen)]
    for number, row in enumerate(rows):
        table.add_row(*(_stacked(row, stack) for stack in stacks), end_section=number == len(rows) - 2)
    return table


def _stacked(cells: Sequence[str], stack: Sequence[int]) -> str:
    return "\n".join(cells[number] for number in stack if cells[number])


def _input_cells(seen: Trace) -> tuple[str, ...]:
    return ("input", "", "", str(seen.input), "", "", "", "", "", "")


def _step_cells(step: Step, seen: Trace) -> tuple[str, ...]:
    cost = COSTS[step.name]
    unit = "" if cost.unit == MULTIPLY_ADDS else f"\n{cost.unit}"
    return (
        f"[bold]{step.name}[/]",
        "\n".join([_operations(step), *_details(step, seen)]),
        _shapes(step.inputs),
        _shapes(step.outputs),
        f"{step.parameters:,}" if step.parameters else "",
        cost.formula if work(step) else "",
        f"{work(step):,}{unit}",
        cost.order,
        f"{step.new_bytes:,}" if step.new_bytes else "0, a view",
        seconds_in_words(step.seconds),
    )


def _total_cells(seen: Trace) -> tuple[str, ...]:
    parameters, new_bytes = (sum(getattr(step, name) for step in seen.steps) for name in ("parameters", "new_bytes"))
    total = f"{sum(map(multiply_adds, seen.steps)):,}"
    time = seconds_in_words(seen.seconds)
    return ("[bold]total[/]", "", "", "", f"{parameters:,}", "", total, "", f"{new_bytes:,}", time)


def _operations(step: Step) -> str:
    """Say a step's operations, a repeated sequence once."""
    names = [operation.name for operation in step.operations]
    length = next(length for length in range(1, len(names) + 1) if names == names[:length] * (len(names) // length))
    times = len(names) // length
    return ", ".join(names[:length]) + (f", {times} times" if times > 1 else "")


def _details(step: Step, seen: Trace) -> list[str]:
    """Say what else was seen: the parameters' shapes, the divisor, the sums of rows."""
    weights = [" and ".join(map(str, operation.parameters)) for operation in step.operations if operation.parameters]
    divisors = [number for operation in step.operations for number in operation.numbers]
    scales = [f"by 1/√{round(number**2)} ≈ 1/{number:.3g}" for number in divisors]
    sums = [f"each row sums to {_range(*seen.row_sums)}"] if step.name == "softmax" else []
    return [*(f"with {weight}" for weight in weights), *scales, *sums]


def _range(low: float, high: float) -> str:
    return f"{low:.7g}" if low == high else f"{low:.7f} … {high:.7f}"


def _shapes(shapes: Sequence[Shape]) -> str:
    return "\n".join(f"{times} × {shape}" if times > 1 else str(shape) for shape, times in Counter(shapes).items())


def step_notes(seen: Trace) -> list[str]:
    """Return what a reader of the table should know beside it."""
    notes = [
        "a multiply-add is two FLOPs; biases, divisions and exponentials are not in the total; in O(), n is T, d is D"
    ]
    copies = {step.name: step.copied_bytes for step in seen.steps if step.copied_bytes}
    if copies:
        each = ", ".join(f"{size:,} bytes for {name}" for name, size in copies.items())
        notes.append(f"heads do not lie in one piece, so matmul copied them first, within its time: {each}")
    return notes


def growth_tables(growth: Growth) -> tuple[Table, Table]:
    """Return the table of what was counted and that of what was measured, each with the exponents."""
    return _counted_table(growth), _timed_table(growth)


def _counted_table(growth: Growth) -> Table:
    table = _growth_table("multiply-adds at n, and the exponent p of n^p fitted to them", growth)
    units = {MULTIPLY_ADDS: "", "divisions": " (div)", "exponentials": " (exp)"}
    for name in growth.steps:
        counts, cost = growth.work(name), COSTS[name]
        expected = str(cost.exponent) if any(counts) else "none"
        table.add_row(name + units[cost.unit], *map(_count, counts), _power(growth.lengths, counts, 4), expected)
    totals = _sums([list(map(multiply_adds, steps)) for steps in growth.steps.values()])
    table.add_section()
    table.add_row("total", *map(_count, totals), _power(growth.lengths, totals, 4), "1 to 2")
    return table


def _timed_table(growth: Growth) -> Table:
    longest = growth.lengths[-TIMED_LENGTHS:]
    table = _growth_table(f"time at n, and p fitted to it at n = {', '.join(map(str, longest))}", growth)
    for name in growth.steps:
        seconds = growth.seconds(name)
        expected = "0, view" if growth.is_view(name) else str(COSTS[name].exponent)
        table.add_row(name, *map(seconds_in_words, seconds), _power(longest, seconds[-TIMED_LENGTHS:], 2), expected)
    totals = _sums([growth.seconds(name) for name in growth.steps])
    table.add_section()
    table.add_row("total", *map(seconds_in_words, totals), _power(longest, totals[-TIMED_LENGTHS:], 2), "1 to 2")
    return table


def _sums(rows: Sequence[Sequence[int | float]]) -> list[int | float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _growth_table(title: str, growth: Growth) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    table.add_column("step")
    for heading in (*map(str, growth.lengths), "p", "expected"):
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _power(lengths: Sequence[int], amounts: Sequence[int | float], digits: int) -> str:
    """Return the fitted exponent; nothing where there is nothing to fit."""
    fitted = exponent(lengths, amounts)
    return "" if fitted is None else f"{fitted:.{digits}f}"


def growth_notes(growth: Growth, d_model: int) -> list[str]:
    """Return what the tables lead to.

    Args:
        growth: what was traced.
        d_model: D.
    """
    largest = max(step.new_bytes for steps in growth.steps.values() for step in steps)
    notes = [
        f"scores and weighted sum take 2·B·n²·D multiply-adds, the projections 4·B·n·D²: the former take more above "
        f"n = 2·D = {2 * d_model}",
        f"largest result: {largest / 2**20:,.1f} MiB at n = {growth.lengths[-1]}; the fused kernel of "
        "headscope.attention.MultiHeadAttention never builds scores and weights",
    ]
    if largest >= FRESH_BYTES:
        notes.append(
            "on a CPU, results of 32 MiB and more get fresh memory from the system each time, and times jump there"
        )
    return notes
