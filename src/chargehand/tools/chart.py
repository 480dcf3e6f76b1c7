"""A tool that draws a chart: a picture as SVG, and what it shows in one sentence."""

import math
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Annotated, Literal

from msgspec import Struct

from chargehand.models.artifacts import Chart
from chargehand.tools.tool import Tool, ToolFailed, tool

WIDTH = 720
HEIGHT = 400
_TOP = 48
_RIGHT = 16
_INK = "#1f2933"
_FAINT = "#d5dbe1"
_COLOUR = "#2b6cb0"
_BELOW = "#b7472a"
_LETTER = 6.6  # about how wide a letter of 11 px is
_LONGEST_LABEL = 22
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Series(Struct, frozen=True):
    """What is drawn. There are as many labels as values, and at least one."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    unit: str = ""


class Scale(Struct, frozen=True):
    """Where the axis begins and ends, and how far apart its lines are."""

    low: float
    high: float
    step: float

    def ticks(self) -> list[float]:
        return [self.low + n * self.step for n in range(round((self.high - self.low) / self.step) + 1)]


class _Plot(Struct, frozen=True):
    """The area inside the axes, in pixels."""

    scale: Scale
    margin: float
    bottom: float
    slot: float
    slanted: bool

    def x(self, number: int) -> float:
        return self.margin + self.slot * (number + 0.5)

    def y(self, value: float) -> float:
        share = (value - self.scale.low) / (self.scale.high - self.scale.low)
        return self.bottom - share * (self.bottom - _TOP)


def draw(series: Series, *, line: bool) -> str:
    """The whole picture."""
    plot = _plot(series, zero=not line)
    name = text(series.title) or "Chart"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" width="{WIDTH}" height="{HEIGHT}"',
        f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="11" fill="{_INK}">',
        f"<title>{name}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_RIGHT}" y="22" font-size="15" font-weight="600">{text(_cut(series.title, 85))}</text>',
        *([f'<text x="{_RIGHT}" y="38">{text(_cut(series.unit, 60))}</text>'] if series.unit.strip() else []),
        *_axis(plot),
        *_labels(plot, series.labels),
        *(_line(plot, series) if line else _bars(plot, series)),
        "</svg>",
    ]
    return "\n".join(parts)


def _plot(series: Series, *, zero: bool) -> _Plot:
    """Room for the numbers on the left and the labels below; labels that do not fit side by side stand aslant."""
    scale = scale_of(series.values, zero=zero)
    margin = 16 + _LETTER * max(len(axis_number(tick, scale.step)) for tick in scale.ticks())
    longest = _LETTER * max(len(_short(label)) for label in series.labels)
    slanted = longest > (WIDTH - _RIGHT - margin) / len(series.labels) - 4
    margin = max(margin, 8 + longest * 0.71) if slanted else margin
    bottom = HEIGHT - (20 + longest * 0.75 if slanted else 32)
    return _Plot(
        scale=scale, margin=margin, bottom=bottom, slot=(WIDTH - _RIGHT - margin) / len(series.labels), slanted=slanted
    )


def scale_of(values: Sequence[float], *, zero: bool) -> Scale:
    """A scale with round numbers that holds all values. Bars start at zero, or they would lie."""
    low = min(values)
    high = max(values)
    if zero:
        low = min(low, 0.0)
        high = max(high, 0.0)
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    rough = max((high - low) / 5, abs(high) * 1e-9, abs(low) * 1e-9, 1e-99)  # finer than that floats are no use
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough * 0.999), 10 * power)
    return Scale(low=math.floor(low / step) * step, high=math.ceil(high / step) * step, step=step)


def axis_number(value: float, step: float) -> str:
    """As short as the step allows: 1,500 or 0.25 or 3 M."""
    if abs(value) < step / 1000:
        return "0"
    for size, mark in ((1e12, " tn"), (1e9, " bn"), (1e6, " M")):
        if step >= size / 100 and abs(value) >= size:
            return f"{value / size:.10g}{mark}"
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{places}f}" if places <= 6 else f"{value:.4g}"


def number(value: float) -> str:
    """A value in full, without zeros that say nothing."""
    if value and abs(value) < 0.005:
        return f"{value:.3g}"
    text_value = f"{value:,.2f}".removesuffix("0").removesuffix("0").removesuffix(".") if "." in f"{value:,.2f}" else ""
    return "0" if text_value in ("", "-0") else text_value


def text(content: str) -> str:
    """Safe inside an element or an attribute."""
    return escape(" ".join(_NOT_XML.sub("", content).split()), quote=True)


def _cut(content: str, most: int) -> str:
    return content if len(content) <= most else content[: most - 1] + "…"


def _short(label: str) -> str:
    return _cut(" ".join(label.split()), _LONGEST_LABEL)


def _axis(plot: _Plot) -> Iterator[str]:
    for tick in plot.scale.ticks():
        y = plot.y(tick)
        zero = abs(tick) < plot.scale.step / 1000
        colour = _INK if zero else _FAINT
        yield f'<line x1="{plot.margin:.1f}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'
        words = axis_number(tick, plot.scale.step)
        yield f'<text x="{plot.margin - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'


def _labels(plot: _Plot, labels: Sequence[str]) -> Iterator[str]:
    every = max(1, math.ceil(12 / plot.slot))  # 12 px a label, or they run into each other
    for place, label in enumerate(labels):
        if place % every:
            continue
        x = plot.x(place)
        y = plot.bottom + 16
        turn = ' text-anchor="middle"'
        if plot.slanted:
            turn = f' text-anchor="end" transform="rotate(-45 {x:.1f} {y:.1f})"'
        yield f'<text x="{x:.1f}" y="{y:.1f}"{turn}>{text(_short(label))}</text>'


def _bars(plot: _Plot, series: Series) -> Iterator[str]:
    width = min(plot.slot * 0.72, 90)
    base = plot.y(0)
    written = max(len(number(value)) for value in series.values) * _LETTER < plot.slot
    for place, (label, value) in enumerate(zip(series.labels, series.values, strict=True)):
        x = plot.x(place)
        y = plot.y(value)
        colour = _BELOW if value < 0 else _COLOUR
        yield (
            f'<rect x="{x - width / 2:.1f}" y="{min(y, base):.1f}" width="{width:.1f}" height="{abs(y - base):.1f}" '
            f'fill="{colour}"><title>{text(label)}: {number(value)}</title></rect>'
        )
        if written:
            above = y + (14 if value < 0 else -5)
            yield f'<text x="{x:.1f}" y="{above:.1f}" text-anchor="middle">{number(value)}</text>'


def _line(plot: _Plot, series: Series) -> Iterator[str]:
    points = [(plot.x(place), plot.y(value)) for place, value in enumerate(series.values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{_COLOUR}" stroke-width="2"/>'
    for (x, y), label, value in zip(points, series.labels, series.values, strict=True):
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLOUR}">'
            f"<title>{text(label)}: {number(value)}</title></circle>"
        )


MOST = 50
LARGEST = 1e15
LONGEST = 200


def chart(name: str = "draw_chart") -> Tool:
    return tool(name=name, quick=True, stable=True)(draw_chart)


def draw_chart(
    title: Annotated[str, "What the chart shows"],
    labels: Annotated[list[str], "One label for each value"],
    values: Annotated[list[float], "The values, in the order of the labels"],
    kind: Annotated[Literal["bar", "line"], "line only for values in the order of time"] = "bar",
    unit: Annotated[str, "Unit of the values, such as EUR"] = "",
) -> Chart:
    """Draw a bar or line chart of up to 50 values."""
    _check(title, labels, values)
    series = Series(title, labels, values, unit)
    plotted = tuple(zip(labels, values, strict=True))
    return Chart(title=title, svg=draw(series, line=kind == "line"), summary=_summary(series, kind), plotted=plotted)


def _check(title: str, labels: list[str], values: list[float]) -> None:
    if len(labels) != len(values):
        raise ToolFailed(f"there are {len(labels)} labels and {len(values)} values; each value needs one label")
    if not 1 <= len(values) <= MOST:
        raise ToolFailed(f"a chart has 1 to {MOST} values, not {len(values)}; group the small ones or draw fewer")
    if max(map(abs, values)) > LARGEST:
        raise ToolFailed("a value is beyond 10 to the power of 15; divide them all and say so in the unit")
    if max(map(len, (title, *labels))) > LONGEST:
        raise ToolFailed(f"the title or a label has more than {LONGEST} characters; shorten it")


def _summary(series: Series, kind: str) -> str:
    places = range(len(series.values))
    high = max(places, key=series.values.__getitem__)
    low = min(places, key=series.values.__getitem__)
    unit = f" {series.unit}" if series.unit else ""
    words = f"{kind.capitalize()} chart, {len(series.values)} value{'' if len(series.values) == 1 else 's'}: "
    if series.values[high] == series.values[low]:
        which = series.labels[high] if len(series.values) == 1 else "all"
        return words + f"{which} {number(series.values[high])}{unit}."
    top = f"highest {series.labels[high]} with {number(series.values[high])}{unit}"
    return words + f"{top}, lowest {series.labels[low]} with {number(series.values[low])}{unit}."
