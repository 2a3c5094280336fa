"""How an amount grows: p of amount ~ n^p, over all sizes and from each to the next, and where it bends."""

from collections.abc import Sequence

import numpy as np

from headscope.tracing import growth

LEAST_BEND = 0.25  # between the first and the last exponent; less is noise


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float | None:
    """Return p of amount = c n^p, or None if there are fewer than two sizes, or an amount of 0 or less."""
    return None if len(sizes) < 2 else growth.exponent(sizes, amounts)


def local_exponents(sizes: Sequence[float], amounts: Sequence[float]) -> list[float | None]:
    """Return p from each size to the next: log(b / a) / log(m / n) for amounts a at n and b at m."""
    return [exponent(sizes[place : place + 2], amounts[place : place + 2]) for place in range(len(sizes) - 1)]


def bend(sizes: Sequence[float], amounts: Sequence[float]) -> float | None:
    """Return the size at which the local exponent comes half-way from the first to the last one.

    An exponent between n and m is taken to be that of sqrt(n m); between these it is interpolated over log n. None
    where an exponent is missing, or where the first and the last are less than 0.25 apart.
    """
    found = local_exponents(sizes, amounts)
    local = np.array([each for each in found if each is not None])
    if len(local) < max(2, len(found)) or abs(local[-1] - local[0]) < LEAST_BEND:
        return None
    middles = np.log(np.multiply(sizes[1:], sizes[:-1])) / 2
    passed = (local - (local[0] + local[-1]) / 2) * np.sign(local[-1] - local[0])  # from below 0 to above it
    last = int(np.argmax(passed >= 0))  # the first one past the middle
    share = -passed[last - 1] / (passed[last] - passed[last - 1])
    return float(np.exp(middles[last - 1] + share * (middles[last] - middles[last - 1])))


def exponents_column(sizes: Sequence[float], amounts: Sequence[float]) -> list[str]:
    """Return a table's cells: the local exponent since the row before, nothing in the first row or where it is none."""
    return ["", *map(_shown, local_exponents(sizes, amounts))]


def _shown(found: float | None) -> str:
    return "" if found is None else f"{found:.2f}"


def sentence(what: str, size: str, sizes: Sequence[float], amounts: Sequence[float]) -> str:
    """Return what the fit says in words, such as "Seconds ~ length^1.32; ...".

    Args:
        what: the amount.
        size: the name of n.
        sizes: n.
        amounts: what was measured at each.
    """
    overall, local, place = exponent(sizes, amounts), local_exponents(sizes, amounts), bend(sizes, amounts)
    if overall is None:
        return f"{what}: too small somewhere for an exponent."
    ends = f"{what} ~ {size}^{overall:.2f} over all, from {_shown(local[0])} at first to {_shown(local[-1])} at last"
    return f"{ends}; half-way at {size} {place:,.0f}." if place is not None else f"{ends}; no bend."
