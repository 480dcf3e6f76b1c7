"""One command: the verb it names, and its errors in one line with the exit code they deserve."""

import logging
import shlex
import sys
from argparse import Namespace

from chargehand.cli import look, verbs
from chargehand.cli.console import Console, clean
from chargehand.errors import ChargehandError, PlanInvalid, StoreError

_VERBS = {"play": verbs.play, "resume": verbs.resume, "runs": look.runs, "show": look.show, "plan": look.plan}


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(f"chargehand: {super().format(record)}")


def perform(options: Namespace) -> int:
    """Do it. 1 is for errors an operator can put right, 2 for those of whoever typed the command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        return _VERBS[options.verb](options)
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
