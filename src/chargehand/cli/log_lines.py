"""Log lines of the command line: for people, lines of text; for programs, one JSON object a record."""

import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec

from chargehand.cli.console import Console, clean
from chargehand.errors import Invalid
from chargehand.runtime.context import CURRENT_WORK

FORMAT = "CHARGEHAND_LOG_FORMAT"
FORMATS = ("text", "json")


class TextLines(logging.Handler):
    """A line a record, to whatever standard error is then: a live view may have taken its place.

    Further lines of a record, such as a traceback, are indented: none of them looks like another record.
    """

    def emit(self, record: logging.LogRecord) -> None:
        console = Console(sys.stderr)
        first, _, more = self.format(record).partition("\n")
        console.prose(f"chargehand: {record.levelname.lower()}: {first}", "warn")
        if more:
            console.text("\n".join(f"  {clean(line)}" for line in more.splitlines()), "warn")


class JsonLines(logging.StreamHandler[TextIO]):
    """One JSON object a line: time, level, logger, message, and the run, task and attempt that it is about.

    With traces, `trace_id` and `span_id` name the trace and the span of the run.
    """

    trace_ids: Callable[[str], dict[str, str]] | None = None
    """Finds the ids of a run."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        document: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_place(record),
        }
        run = document.get("run")
        if isinstance(run, str) and self.trace_ids is not None:
            document |= self.trace_ids(run)
        if record.exc_info:
            document["exception"] = record.exc_text or logging.Formatter().formatException(record.exc_info)
        return msgspec.json.encode(document).decode()


def _place(record: logging.LogRecord) -> dict[str, object]:
    """The run, task and attempt that a record is about: its own, else those of the code that logged it."""
    place = {name: getattr(record, name, None) for name in ("run", "task", "attempt")}
    current = CURRENT_WORK.get()
    if place["run"] is None and current is not None:
        place = {"run": current.run, "task": current.work.task, "attempt": current.work.number}
    return {name: value for name, value in place.items() if value}


def log_handler(wanted: str) -> logging.Handler:
    """The handler of a format; Invalid for one that there is not."""
    if wanted not in FORMATS:
        raise Invalid(f"the log format {wanted!r} is not known; use {' or '.join(FORMATS)}")
    return JsonLines(sys.stderr) if wanted == "json" else TextLines()
