"""What is made of samples: quantiles, and ratios of samples that were taken side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import attrs


def quantile(values: Sequence[float], q: float) -> float:
    """The q-th quantile, interpolated between neighbours; the median for 0.5.

    Raises:
      ValueError: there are no values, or q is not within 0 and 1.
    """
    if not values:
        raise ValueError("no values, so no quantile; measure at least once")
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is asked for between 0 and 1, not {q!r}")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@final
@attrs.frozen
class Spread:
    """The middle of samples, and how far they lie apart."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of samples; at least one."""
        return cls(quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9))

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.p10 * factor, self.p90 * factor)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return attrs.asdict(self)


def paired_ratios(values: Sequence[float], floors: Sequence[float]) -> list[float]:
    """Each sample as a multiple of the floor that was measured beside it.

    The ratio is taken pair by pair and the median afterwards: what slowed the machine for a moment
    slowed both of a pair.
    """
    return [value / floor for value, floor in zip(values, floors, strict=True)]


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent with which a cost grows, by least squares over logarithms: 1 is linear, 2 quadratic.

    Raises:
      ValueError: there are fewer than two different sizes.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"growth needs two different sizes, not {list(sizes)!r}")
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    up = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return up / sum((x - middle_x) ** 2 for x in xs)
