"""The one table: what was measured, ours, the floor, their ratio, the target, and whether it was met."""

import operator
from collections.abc import Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

_HOLDS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge}
_HEAD = ("what", "ours", "min..max", "also", "floor", "ratio", "target", "met")
_LEFT = (0, 3)


class Target(Struct, frozen=True):
    """What the median of ours, or where `of` says so its ratio to the floor, is held against."""

    sign: Literal["<=", "<", ">="]
    bound: float
    of: Literal["ours", "ratio"] = "ours"


class Row(Struct, frozen=True):
    """Repetitions of ours and of the floor, in one unit. Without a target it is only reported.

    `also` is what else was seen, in words. `floor` is empty where bare asyncio has nothing like it.
    """

    what: str
    unit: str
    ours: tuple[float, ...]
    floor: tuple[float, ...] = ()
    target: Target | None = None
    also: str = ""

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.floor) if self.floor and median(self.floor) else None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        value = median(self.ours) if self.target.of == "ours" else self.ratio
        assert value is not None, "a target for a ratio needs a floor"
        return _HOLDS[self.target.sign](value, self.target.bound)

    def cells(self) -> tuple[str, ...]:
        ratio = self.ratio
        target = self.target
        return (
            f"{self.what}, {self.unit}",
            shown(median(self.ours)),
            f"{shown(min(self.ours))}..{shown(max(self.ours))}" if len(self.ours) > 1 else "",
            self.also,
            shown(median(self.floor)) if self.floor else "-",
            f"{shown(ratio)}x" if ratio is not None else "-",
            f"{target.sign} {target.bound:g}{'x' * (target.of == 'ratio')}" if target is not None else "-",
            {True: "yes", False: "NO", None: "-"}[self.met],
        )


def shown(number: float) -> str:
    """As many digits as matter: more where small differences count, as in ratios near one."""
    size = abs(number)
    if size >= 100:
        return f"{number:,.0f}"
    if size >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if size >= 2 else f"{number:.3f}" if size >= 1 else f"{number:.3g}"


def rendered(rows: Sequence[Row]) -> str:
    """The table as text, under one head."""
    lines = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEAD))]
    made = [_line(line, widths) for line in lines]
    return "\n".join([made[0], "  ".join("-" * width for width in widths), *made[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        f"{cell:<{width}}" if at in _LEFT else f"{cell:>{width}}" for at, (cell, width) in _numbered(cells, widths)
    )
    return "  ".join(padded).rstrip()


def _numbered(cells: Sequence[str], widths: Sequence[int]) -> enumerate[tuple[str, int]]:
    return enumerate(zip(cells, widths, strict=True))
