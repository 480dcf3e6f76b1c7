"""A tool that draws a chart: a picture as SVG, and what it shows in one sentence."""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

from msgspec import Struct

from chargehand.models.artifacts import Chart
from chargehand.tools.tool import Tool, ToolFailed, tool

WIDTH = 720
HEIGHT = 400
MOST = 50
LARGEST = 1e15
LONGEST = 200
_TOP = 48
_RIGHT = 16
_INK = "#1f2933"
_FAINT = "#d5dbe1"
_COLOUR = "#2b6cb0"
_BELOW = "#b7472a"
_LETTER = 6.6  # about how wide a letter of 11 px is
_LONGEST_LABEL = 22
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
    if len(labels) != len(values):
        raise ToolFailed(f"there are {len(labels)} labels and {len(values)} values; each value needs one label")
    if not 1 <= len(values) <= MOST:
        raise ToolFailed(f"a chart has 1 to {MOST} values, not {len(values)}; group the small ones or draw fewer")
    if max(map(abs, values)) > LARGEST:
        raise ToolFailed("a value is beyond 10 to the power of 15; divide them all and say so in the unit")
    if max(map(len, (title, *labels))) > LONGEST:
        raise ToolFailed(f"the title or a label has more than {LONGEST} characters; shorten it")
    points = list(zip(labels, values, strict=True))
    return Chart(
        title=title,
        svg=_draw(title, points, unit, kind),
        summary=_summarize(points, unit, kind),
        plotted=tuple(points),
    )


def _summarize(points: Sequence[tuple[str, float]], unit: str, kind: str) -> str:
    high_label, high = max(points, key=lambda point: point[1])
    low_label, low = min(points, key=lambda point: point[1])
    after = f" {unit}" if unit else ""
    if len(points) == 1:
        return f"{kind.capitalize()} chart, 1 value: {high_label} {number(high)}{after}."
    words = f"{kind.capitalize()} chart, {len(points)} values: "
    if high == low:
        return f"{words}all {number(high)}{after}."
    return f"{words}highest {high_label} with {number(high)}{after}, lowest {low_label} with {number(low)}{after}."


def number(value: float) -> str:
    """A value to two decimals, or to three digits where it is below one; without zeros that say nothing."""
    short = round(value, 2) if abs(value) >= 1 else float(f"{value:.3g}")
    return f"{short + 0.0:,.15g}"


def axis_ticks(values: Sequence[float], *, zero: bool) -> list[float]:
    """Round numbers around all values. Bars start at zero, or they would lie."""
    low = min(values)
    high = max(values)
    if zero:
        low = min(low, 0.0)
        high = max(high, 0.0)
    if low == high:
        high = low + (abs(low) or 1.0)
    rough = max((high - low) / 5, abs(high) * 1e-9, abs(low) * 1e-9, 1e-99)  # finer than that floats are no use
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step)
    last = max(first + 1, math.ceil(high / step))
    return [multiple * step for multiple in range(first, last + 1)]


# --- the picture


class _Plot(Struct, frozen=True):
    """The area inside the axes, in pixels."""

    ticks: list[float]
    left: float
    bottom: float
    slot: float
    """The width for each value."""
    slanted: bool
    """Whether the labels do not fit side by side."""

    def x(self, place: int) -> float:
        return self.left + self.slot * (place + 0.5)

    def y(self, value: float) -> float:
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return self.bottom - share * (self.bottom - _TOP)


def _draw(title: str, points: Sequence[tuple[str, float]], unit: str, kind: str) -> str:
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", viewBox=f"0 0 {WIDTH} {HEIGHT}")
    name = _plain(title) or "Chart"
    look = {"aria-label": name, "font-family": "system-ui, sans-serif", "font-size": "11", "fill": _INK}
    svg.attrib |= {**look, "width": str(WIDTH), "height": str(HEIGHT)}
    _add(svg, "title", name)
    _add(svg, "rect", width=WIDTH, height=HEIGHT, fill="#ffffff")
    _add(svg, "text", _cut(title, 85), x=_RIGHT, y=22, font_size=15, font_weight=600)
    _add(svg, "text", _cut(unit, 60), x=_RIGHT, y=38)
    plot = _plot([label for label, _ in points], [value for _, value in points], zero=kind == "bar")
    for tick in plot.ticks:
        y = plot.y(tick)
        _add(svg, "line", x1=plot.left, x2=WIDTH - _RIGHT, y1=y, y2=y, stroke=_FAINT if tick else _INK)
        _add(svg, "text", _axis_number(tick), x=plot.left - 6, y=y + 4, text_anchor="end")
    _add_labels(svg, plot, [label for label, _ in points])
    if kind == "line":
        _add_line(svg, plot, points)
    else:
        _add_bars(svg, plot, points)
    return tostring(svg, encoding="unicode")


def _plot(labels: Sequence[str], values: Sequence[float], *, zero: bool) -> _Plot:
    """Room for the numbers on the left and the labels below."""
    ticks = axis_ticks(values, zero=zero)
    left = 16 + _LETTER * max(len(_axis_number(tick)) for tick in ticks)
    longest = _LETTER * max(len(_cut(label, _LONGEST_LABEL)) for label in labels)
    slanted = longest > (WIDTH - _RIGHT - left) / len(labels) - 4
    bottom = HEIGHT - 32.0
    if slanted:
        left = max(left, 8 + longest * 0.71)
        bottom = HEIGHT - 20 - longest * 0.75
    slot = (WIDTH - _RIGHT - left) / len(labels)
    return _Plot(ticks=ticks, left=left, bottom=bottom, slot=slot, slanted=slanted)


def _add_labels(svg: Element, plot: _Plot, labels: Sequence[str]) -> None:
    every = math.ceil(12 / plot.slot)  # 12 px a label, or they run into each other
    y = plot.bottom + 16
    for place in range(0, len(labels), every):
        x = plot.x(place)
        text = _add(svg, "text", _cut(labels[place], _LONGEST_LABEL), x=x, y=y, text_anchor="middle")
        if plot.slanted:
            text.attrib |= {"text-anchor": "end", "transform": f"rotate(-45 {x:.1f} {y:.1f})"}


def _add_bars(svg: Element, plot: _Plot, points: Sequence[tuple[str, float]]) -> None:
    width = min(plot.slot * 0.72, 90)
    base = plot.y(0)
    fits = max(len(number(value)) for _, value in points) * _LETTER < plot.slot
    for place, (label, value) in enumerate(points):
        x = plot.x(place)
        y = plot.y(value)
        fill = _BELOW if value < 0 else _COLOUR
        bar = _add(svg, "rect", x=x - width / 2, y=min(y, base), width=width, height=abs(y - base), fill=fill)
        _add(bar, "title", f"{label}: {number(value)}")
        if fits:
            _add(svg, "text", number(value), x=x, y=y + (14 if value < 0 else -5), text_anchor="middle")


def _add_line(svg: Element, plot: _Plot, points: Sequence[tuple[str, float]]) -> None:
    path = " ".join(f"{plot.x(place):.1f},{plot.y(value):.1f}" for place, (_, value) in enumerate(points))
    _add(svg, "polyline", points=path, fill="none", stroke=_COLOUR, stroke_width=2)
    for place, (label, value) in enumerate(points):
        dot = _add(svg, "circle", cx=plot.x(place), cy=plot.y(value), r=3, fill=_COLOUR)
        _add(dot, "title", f"{label}: {number(value)}")


def _add(parent: Element, tag: str, text: str = "", **attributes: float | str) -> Element:
    """An element with its attributes; numbers to a tenth of a pixel."""
    element = SubElement(parent, tag)
    element.text = _plain(text)
    for name, value in attributes.items():
        element.set(name.replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else str(value))
    return element


def _axis_number(tick: float) -> str:
    return f"{tick:,.10g}"


def _plain(text: str) -> str:
    return " ".join(_NOT_XML.sub("", text).split())


def _cut(text: str, most: int) -> str:
    plain = _plain(text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"
