"""What every benchmark can be told, and the shape of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, final

import attrs

from .measure import Case


@final
@attrs.frozen(kw_only=True)
class Options:
    """The options of a benchmark."""

    sizes: tuple[int, ...] = ()
    """``--n``; empty for the benchmark's own."""
    reps: int | None = None
    """``--reps``; None for the benchmark's own."""
    quick: bool = False
    """Small and few: that everything works, not what it costs."""
    tools: str | None = None
    """``--tools module:name``."""

    def choose(self, normal: Sequence[int], quick: Sequence[int]) -> tuple[int, ...]:
        """The sizes to measure."""
        return self.sizes or tuple(quick if self.quick else normal)

    def repeat(self, normal: int) -> int:
        """How many pairs of samples to take."""
        if self.reps is not None:
            return self.reps
        return min(normal, 2) if self.quick else normal


@final
@attrs.frozen
class Planned:
    """A case, and how often it is sampled."""

    case: Case
    reps: int


Benchmark: TypeAlias = Callable[[Options], Iterator[Planned]]
"""Makes the cases of a benchmark; nothing is measured before it is asked for the next one."""
