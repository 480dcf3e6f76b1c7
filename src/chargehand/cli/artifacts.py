"""Charts and tables that results hold, written to files."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from chargehand.errors import Invalid
from chargehand.models.artifacts import Artifact, Chart, Table
from chargehand.runtime.trace import Trace

# a picture is looked at in a browser: it must not do anything there
_ACTIVE = re.compile(
    r"<\s*(script|foreignobject|iframe|image|use|!doctype|!entity)|\son\w+\s*=|href\s*=|javascript:", re.IGNORECASE
)


class _WithArtifacts(msgspec.Struct):
    artifacts: list[Artifact] = []


def save_artifacts(trace: Trace, folder: Path | None, journal: Path) -> list[Path]:
    """Write the charts, and into a folder that was named also the tables and the answer; the paths of the files."""
    place = folder or journal.parent / "artifacts" / _file_name(trace.run)
    charts = charts_of(trace).items()
    files = {f"{name}.svg": chart.svg for name, chart in charts if chart.svg and not _ACTIVE.search(chart.svg)}
    if folder is not None:
        files |= {f"{name}.csv": _csv(item) for name, item in artifacts_of(trace) if isinstance(item, Table)}
        files |= {"answer.md": f"{trace.answer.rstrip()}\n"} if isinstance(trace.answer, str) else {}
    try:
        for name, text in files.items():
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        problem = f"{error.filename or place} cannot be written: {error.strerror}"
        raise Invalid(f"{problem}; the run is in the journal, name another folder with --save") from error
    return [place / name for name in files]


def make_save_folder(folder: Path) -> None:
    """Better now than after a run that was paid for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{folder} cannot be made: {error.strerror}; name another folder with --save") from error


def charts_of(trace: Trace) -> dict[str, Chart]:
    """The charts of a run by the names of their files."""
    return {name: item for name, item in artifacts_of(trace) if isinstance(item, Chart)}


def artifacts_of(trace: Trace) -> Iterator[tuple[str, Artifact]]:
    """What the results of a run hold to be looked at, each with the name of its file."""
    for task in trace.tasks:
        results = cast("list[object]", task.result) if isinstance(task.result, list) else [task.result]
        number = 0
        for result in results:
            try:
                artifacts = msgspec.convert(result, _WithArtifacts).artifacts
            except msgspec.ValidationError:
                continue  # a result of some other shape
            for artifact in artifacts:
                number += 1
                yield f"{_file_name(task.id)}-{number}", artifact


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(_cell, table.columns))
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """A spreadsheet must not take text for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
