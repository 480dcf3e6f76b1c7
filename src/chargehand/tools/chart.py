"""A tool that draws a chart: a picture as SVG, and what it shows in one sentence."""

from typing import Annotated, Literal

from chargehand.models.exhibits import Chart
from chargehand.tools.drawing import Series, draw, number
from chargehand.tools.tool import Tool, ToolFailed, tool

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
