"""Which call it is that nobody knows the outcome of, read off the entries of a run."""

from collections.abc import Iterator, Sequence
from typing import cast

from chargehand.runtime.trace import trace
from chargehand.terms import events as ev
from chargehand.terms.failure import Question
from chargehand.terms.plan import TaskId


def doubtful_calls(run: str, entries: Sequence[ev.Entry], task: TaskId) -> Iterator[Question]:
    """The calls of a task's last attempt that were begun and never came back."""
    for found in trace(run, entries).tasks:
        if found.id != task or not found.attempts:
            continue
        for step in found.attempts[-1].steps:
            if step.effect == "effect" and step.seconds is None:
                given = step.arguments
                arguments = cast("dict[str, object]", given) if isinstance(given, dict) else {}
                yield Question("effect", step.name, arguments)


def doubtful_call(run: str, entries: Sequence[ev.Entry], task: TaskId) -> Question | None:
    return next(doubtful_calls(run, entries, task), None)
