"""Exit codes: what each means, which verb can end with which, and the code of an ending or an error."""

from textwrap import fill

from chargehand.errors import BudgetExceeded, ChargehandError, StoreError

EXIT_CODES = {
    0: "complete, or done",
    1: "failed, or the journal cannot be used",
    2: "usage or invalid input; nothing is written",
    3: "partial: there is an answer, with gaps",
    4: "waiting for an answer; resume with one goes on",
    5: "the budget or the deadline ended it, or the budget was overspent",
    6: "a gate of eval was not reached",
    130: "stopped by Ctrl-C, or cancelled",
    143: "stopped by SIGTERM",
}
"""What each code means."""
_IN_SHORT = {
    0: "complete",
    1: "failed",
    2: "usage",
    3: "partial",
    4: "waiting for an answer",
    5: "budget or deadline",
    6: "a gate",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}
_WIDTH = 78
_STREAMS = "Data goes to standard output, progress to standard error.\n"
_ANY = (0, 1, 2, 130, 143)
_RUNS = (0, 1, 2, 3, 4, 5, 130, 143)
_ENDS = {
    "run": _RUNS,
    "plan": (0, 1, 2, 5, 130, 143),
    "watch": _RUNS,
    "resume": _RUNS,
    "replay": _RUNS,
    "play": _RUNS,
    "message": (0, 1, 2, 3, 4, 130, 143),
    "eval": (0, 1, 2, 5, 6, 130, 143),
}


def exit_codes_of(verb: str) -> tuple[int, ...]:
    """The codes a verb can end with. A verb that executes no run has five; "" stands for all verbs together."""
    return _ENDS.get(verb, _ANY) if verb else tuple(EXIT_CODES)


def error_exit_code(error: type[ChargehandError]) -> int:
    """1 is for errors an operator can put right, 2 for those of the person who typed the command, 5 for budgets."""
    if issubclass(error, BudgetExceeded):
        return 5
    return 1 if issubclass(error, StoreError) else 2


def help_text(verb: str = "") -> str:
    """The end of a verb's help; without one, of the program's."""
    codes = ", ".join(f"{code}\xa0{_IN_SHORT[code]}" for code in exit_codes_of(verb))
    lines = fill(f"exit codes: {codes}", _WIDTH).replace("\xa0", " ")  # a code stays on the line of its meaning
    return f"{lines}\n" if verb else f"{lines}\n{_STREAMS}"


_CODES = {"complete": 0, "partial": 3, "failed": 1, "cancelled": 130, "needs_input": 4}
TERMINATED = 143
"""What a shell says of whatever SIGTERM ended: also of us, where something had to be said first."""
INTERRUPTED = 130
"""The same of Ctrl-C."""
GATE_MISSED = 6
"""A gate of `eval` was not reached."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came, and what was under way was stopped in order."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came, and what was under way is stopped as Ctrl-C would stop it."""


def exit_code(ending: str, reason: str) -> int:
    return 5 if reason in ("budget", "deadline", "overspent") else _CODES[ending]


def stop_code(stop: KeyboardInterrupt) -> int:
    """The code of a command that a signal stopped."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
