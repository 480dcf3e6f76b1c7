"""Charts as text: a bar of characters for each value, beside its label. What is written to files is in `exhibits`."""

from collections.abc import Iterator

from chargehand.cli.console import cells, short
from chargehand.cli.exhibits import exhibits_of
from chargehand.models.exhibits import Chart
from chargehand.runtime.traced import Trace

_MOST_BARS = 12
_LONGEST_LABEL = 24
_LEAST_ROOM = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


def draw_charts(trace: Trace, columns: int) -> Iterator[str]:
    """The lines of every chart of a run whose values are known; nothing where there is none."""
    for _, exhibit in exhibits_of(trace):
        if isinstance(exhibit, Chart) and exhibit.plotted:
            yield from draw_chart(exhibit, columns)
            yield ""


def draw_chart(chart: Chart, columns: int) -> Iterator[str]:
    """Title, then a line for each value. Values below zero have no bar; of many values the first are drawn."""
    yield f"chart: {short(chart.title, max(_LEAST_ROOM, columns - 7))}"
    shown = chart.plotted[:_MOST_BARS]
    labels = [short(label, _LONGEST_LABEL) for label, _ in shown]
    numbers = [f"{value:,.10g}" for _, value in shown]
    label_room = max(map(cells, labels))
    number_room = max(map(len, numbers))
    bar_room = max(_LEAST_ROOM, columns - label_room - number_room - 6)
    largest = max(value for _, value in shown)
    for label, number, (_, value) in zip(labels, numbers, shown, strict=True):
        padding = " " * (label_room - cells(label))
        yield f"  {label}{padding}  {number:>{number_room}}  {_bar(value, largest, bar_room)}".rstrip()
    if len(chart.plotted) > len(shown):
        yield f"  … and {len(chart.plotted) - len(shown)} more"


def _bar(value: float, largest: float, room: int) -> str:
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value / largest * room * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
