"""Charts and tables that results hold: written to files, and charts drawn with characters."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from chargehand.cli.console import cells, short
from chargehand.errors import Invalid
from chargehand.models.artifacts import Artifact, Chart, Table
from chargehand.runtime.trace import Trace

# a picture is looked at in a browser: it must not do anything there
_ACTIVE = re.compile(
    r"<\s*(script|foreignobject|iframe|image|use|!doctype|!entity)|\son\w+\s*=|href\s*=|javascript:", re.IGNORECASE
)


class _Shown(msgspec.Struct):
    artifacts: list[Artifact] = []


def save_artifacts(trace: Trace, folder: Path | None, journal: Path) -> list[Path]:
    """Write the charts, and with a folder of one's own also the tables and the answer; where they lie."""
    place = folder or journal.parent / "artifacts" / _file_name(trace.run)
    written: list[Path] = []
    try:
        for name, artifact in artifacts_of(trace):
            if isinstance(artifact, Chart) and artifact.svg and not _ACTIVE.search(artifact.svg):
                written.append(_write(place / f"{name}.svg", artifact.svg))
            elif isinstance(artifact, Table) and folder is not None:
                written.append(_write_table(place / f"{name}.csv", artifact))
        if folder is not None and isinstance(trace.answer, str):
            written.append(_write(place / "answer.md", trace.answer.rstrip() + "\n"))
    except OSError as error:
        problem = f"{error.filename or place} cannot be written: {error.strerror}"
        raise Invalid(f"{problem}; the run is in the journal, name another folder with --save") from error
    return written


def make_save_folder(folder: Path) -> None:
    """Better now than after a run that was paid for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{folder} cannot be made: {error.strerror}; name another folder with --save") from error


def artifacts_of(trace: Trace) -> Iterator[tuple[str, Artifact]]:
    for task in trace.tasks:
        results = cast("list[object]", task.result) if isinstance(task.result, list) else [task.result]
        number = 0
        for result in results:
            try:
                shown = msgspec.convert(result, _Shown).artifacts
            except msgspec.ValidationError:
                continue  # a result of some other shape
            for artifact in shown:
                number += 1
                yield f"{_file_name(task.id)}-{number}", artifact


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _write_table(path: Path, table: Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(_cell, table.columns))
        writer.writerows([_cell(value) for value in row] for row in table.rows)
    return path


def _cell(value: object) -> object:
    """A spreadsheet must not take text for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


_MOST_BARS = 12
_LONGEST_LABEL = 24
_LEAST_ROOM = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


def chart_lines(trace: Trace, columns: int) -> Iterator[str]:
    """The lines of every chart of a run whose values are known; nothing where there is none."""
    for _, artifact in artifacts_of(trace):
        if isinstance(artifact, Chart) and artifact.plotted:
            yield from draw_chart(artifact, columns)
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
