"""The exit codes of every verb, in words, for its help and the reference. Which one a run deserves is in `verbs`."""

from chargehand.errors import ChargehandError, StoreError

EXITS = {
    0: "complete, or done",
    1: "failed, or the journal cannot be used",
    2: "usage or invalid input; nothing is written",
    3: "partial: there is an answer, with gaps",
    4: "a person is asked; resume with an answer goes on",
    5: "the budget or the deadline ended it, or the budget was overspent",
    6: "a gate of eval was not reached",
    130: "stopped by Ctrl-C, or cancelled",
    143: "stopped by SIGTERM",
}
"""What each code means."""

_LEAD = "exit codes: "
_STREAMS = """\
Data goes to standard output, progress to standard error.
NO_COLOR turns colours off.
"""
_ANY = (0, 1, 2, 130, 143)
_RUNS = (0, 1, 2, 3, 4, 5, 130, 143)
_ENDS = {
    "run": _RUNS,
    "watch": _RUNS,
    "resume": _RUNS,
    "replay": _RUNS,
    "play": _RUNS,
    "message": (0, 1, 2, 3, 4, 130, 143),
    "eval": (0, 1, 2, 5, 6, 130, 143),
}


def exits_of(verb: str) -> tuple[int, ...]:
    """The codes a verb can end with. A verb that carries no run out has five; "" stands for all verbs together."""
    return _ENDS.get(verb, _ANY) if verb else tuple(EXITS)


def exit_of(error: type[ChargehandError]) -> int:
    """1 is for errors an operator can put right, 2 for those of whoever typed the command."""
    return 1 if issubclass(error, StoreError) else 2


def told(verb: str = "") -> str:
    """The end of a verb's help."""
    lines = f"\n{' ' * len(_LEAD)}".join(f"{code} {EXITS[code]}" for code in exits_of(verb))
    return f"{_LEAD}{lines}\n{_STREAMS}"
