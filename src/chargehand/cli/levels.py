"""A run and the runs inside it as a tree for people: who had it, how it ended, and what it cost by itself."""

from collections.abc import Iterator

from chargehand.cli.console import Console, Tone, clean
from chargehand.cli.phrases import counted, money
from chargehand.cli.render import seconds
from chargehand.runtime.nested_trace import attempts_of
from chargehand.runtime.traced import Trace
from chargehand.terms.budget import Amount

_TONES: dict[str, Tone] = {"complete": "plain", "failed": "bad"}


def show_levels(console: Console, found: Trace) -> None:
    """The tree, where there is more than one run in it."""
    if not any(attempts_of(found)):
        return
    console.line("levels:", "bold")
    for line, tone in _lines(found, clean(found.run), "  ", "  "):
        console.line(line, tone)


def _lines(found: Trace, name: str, first: str, rest: str) -> Iterator[tuple[str, Tone]]:
    inside = [(task, attempt.worker, one) for task, attempt in attempts_of(found) for one in attempt.runs]
    own = _less(found.used, [one.used for _, _, one in inside])
    reason = f" ({found.reason})" if found.reason in ("budget", "deadline") else ""
    parts = [f"{found.ending or 'not yet'}{reason}", counted(len(found.tasks), "task"), seconds(found.seconds)]
    cost = money(found.used) + (f", of its own {money(own)}" if inside else "")
    yield f"{first}{name}: {', '.join(parts)}; cost: {cost}", _TONES.get(found.ending, "warn")
    for number, (task, worker, one) in enumerate(inside, 1):
        last = number == len(inside)
        branch, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
        label = f"{clean(task)} {clean(worker)} {_kind(one)}"
        yield from _lines(one, f"{label} {clean(one.run)}", f"{rest}{branch}", f"{rest}{under}")


def _kind(found: Trace) -> str:
    return "in" if found.combine != "none" else "asks in"  # nobody sums up what came of a message


def _less(whole: Amount, parts: list[Amount]) -> Amount:
    tokens, micros = sum(one.tokens for one in parts), sum(one.micros for one in parts)
    calls = sum(one.calls for one in parts)
    return Amount(max(0, whole.tokens - tokens), max(0, whole.micros - micros), max(0, whole.calls - calls))
