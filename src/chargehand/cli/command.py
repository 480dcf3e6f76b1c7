"""One command: the verb it names, and its errors in one line with the exit code they deserve."""

import logging
import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from chargehand.cli.console import Console, OutputLost, clean
from chargehand.cli.exits import exit_of
from chargehand.cli.lost import journal_words, kept
from chargehand.cli.run_names import resolve_runs
from chargehand.cli.verbs import function_of, loading
from chargehand.errors import ChargehandError, PlanInvalid, RunUnknown

_TELLS_RUNS = ("run", "resume", "replay", "play", "message", "doctor")
_TOLD_ANYWAY = ("chargehand.runtime.run_log", "chargehand.models.guard")
"""Loggers whose warnings those verbs tell in words of their own."""


class _Lines(logging.Handler):
    """One line a record, to whatever standard error is then: a view that moves may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        Console(sys.stderr).prose(clean(f"chargehand: {record.levelname.lower()}: {self.format(record)}"), "warn")


def perform(options: Namespace) -> int:
    """Do it; the exit code it deserves."""
    given = vars(options)
    if given.get("no_color"):
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    lines = _Lines()
    if options.verb in _TELLS_RUNS and not given.get("verbose"):
        lines.addFilter(lambda record: record.name not in _TOLD_ANYWAY)
    logging.basicConfig(
        level=logging.INFO if given.get("verbose") else logging.WARNING, handlers=[lines], format="%(message)s"
    )
    try:
        with loading():
            verb = function_of(options.verb)
        resolve_runs(options)
        return verb(options)
    except ChargehandError as error:
        Console(sys.stderr).prose(f"chargehand: {clean(_sentence(error, options))}", "bad")
        return exit_of(type(error))
    except FileNotFoundError:
        if _somewhere():
            raise
        Console(sys.stderr).line("chargehand: the folder you are in is not there any more; go to one that is", "bad")
        return 2


def _somewhere() -> bool:
    """Whether the folder we are in is still there: somebody may have deleted it under a shell."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _sentence(error: ChargehandError, options: Namespace) -> str:
    if isinstance(error, RunUnknown):
        return f"{error}; those there are: chargehand runs{journal_words(vars(options))}"
    if isinstance(error, OutputLost):
        return f"{error}; {kept(options)}"
    if not isinstance(error, PlanInvalid):
        return str(error)
    file: str = next((found for name in ("plan", "source", "file") if (found := vars(options).get(name))), "the plan")
    first, more = error.findings[0], len(error.findings) - 1
    see = f" ({more} more: chargehand plan --from {shlex.quote(file)})" if more else ""
    return f"{file}: {first.place}: {first.message} [{first.code}]{see}"
