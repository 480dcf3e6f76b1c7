"""One command: the verb it names, and its errors in one line with the exit code they deserve."""

import logging
import os
import shlex
import sys
from argparse import Namespace

from chargehand.cli.console import Console, clean
from chargehand.cli.verbs import function_of
from chargehand.errors import ChargehandError, PlanInvalid, StoreError


class _Lines(logging.Handler):
    """One line a record, to whatever standard error is then: a view that moves may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        Console(sys.stderr).line(clean(f"chargehand: {record.levelname.lower()}: {self.format(record)}"), "warn")


def perform(options: Namespace) -> int:
    """Do it. 1 is for errors an operator can put right, 2 for those of whoever typed the command."""
    given = vars(options)
    if given.get("no_color"):
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    logging.basicConfig(
        level=logging.INFO if given.get("verbose") else logging.WARNING, handlers=[_Lines()], format="%(message)s"
    )
    try:
        return function_of(options.verb)(options)
    except ChargehandError as error:
        Console(sys.stderr).line(f"chargehand: {clean(_sentence(error, options))}", "bad")
        return 1 if isinstance(error, StoreError) else 2


def _sentence(error: ChargehandError, options: Namespace) -> str:
    if not isinstance(error, PlanInvalid):
        return str(error)
    file: str = next((found for name in ("plan", "source", "file") if (found := vars(options).get(name))), "the plan")
    first, more = error.findings[0], len(error.findings) - 1
    see = f" ({more} more: chargehand plan --from {shlex.quote(file)})" if more else ""
    return f"{file}: {first.place}: {first.message} [{first.code}]{see}"
