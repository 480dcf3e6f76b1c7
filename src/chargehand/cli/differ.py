"""What is different between two runs: their plans, how their tasks went, costs, times, answers."""

from collections.abc import Iterator
from difflib import unified_diff

import msgspec
from msgspec import Struct

from chargehand.cli.console import Tone, clean, short
from chargehand.cli.phrases import money
from chargehand.cli.render import seconds
from chargehand.runtime.traced import TaskTrace, Trace
from chargehand.terms.budget import Amount


class Side(Struct, frozen=True):
    """One of the two runs."""

    run: str
    goal: str
    ending: str
    tasks: int
    attempts: int
    used: Amount
    seconds: float


class Changed(Struct, frozen=True):
    """One thing about a task that is not the same in both runs."""

    task: str
    what: str
    one: str
    other: str


class Differences(Struct, frozen=True):
    one: Side
    other: Side
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    changed: tuple[Changed, ...]
    answer: tuple[str, ...]


def differences(one: Trace, other: Trace) -> Differences:
    left, right = ({task.id: task for task in side.tasks} for side in (one, other))
    changed = [found for name, task in left.items() if name in right for found in _changed(task, right[name])]
    return Differences(
        _side(one),
        _side(other),
        tuple(name for name in left if name not in right),
        tuple(name for name in right if name not in left),
        tuple(changed),
        tuple(unified_diff(_answer(one), _answer(other), one.run, other.run, lineterm="", n=1)),
    )


def _side(found: Trace) -> Side:
    attempts = sum(len(task.attempts) for task in found.tasks)
    ending = found.ending or "not yet"
    return Side(found.run, found.goal, ending, len(found.tasks), attempts, found.used, found.seconds)


def _answer(found: Trace) -> list[str]:
    if isinstance(found.answer, str):
        return found.answer.splitlines()
    return [] if found.answer is None else msgspec.json.format(msgspec.json.encode(found.answer)).decode().splitlines()


def _changed(one: TaskTrace, other: TaskTrace) -> Iterator[Changed]:
    pairs = (
        ("instruction", one.instruction, other.instruction),
        ("worker", one.worker, other.worker),
        ("needs", ", ".join(one.after), ", ".join(other.after)),
        ("status", one.status, other.status),
        ("attempts", str(len(one.attempts)), str(len(other.attempts))),
        ("result", _short_value(one.result), _short_value(other.result)),
    )
    yield from (Changed(one.id, what, left, right) for what, left, right in pairs if left != right)


def _short_value(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def lines(found: Differences) -> Iterator[tuple[str, Tone]]:
    """The differences in words, a tone for each line."""
    wide = max(len(clean(found.one.run)), len(clean(found.other.run)))
    for side in (found.one, found.other):
        facts = f"{side.ending}, {side.tasks} tasks, {side.attempts} attempts, {seconds(side.seconds)}"
        yield f"{clean(side.run):{wide}}  {facts}, {money(side.used)}", "bold"
    if found.one.goal != found.other.goal:
        yield f"- goal: {short(found.one.goal, 100)}", "bad"
        yield f"+ goal: {short(found.other.goal, 100)}", "good"
    for name in found.only_one:
        yield f"- task {clean(name)}", "bad"
    for name in found.only_other:
        yield f"+ task {clean(name)}", "good"
    for one in found.changed:
        yield f"  {clean(one.task)}: {one.what}", "plain"
        yield f"-   {short(one.one, 100)}", "bad"
        yield f"+   {short(one.other, 100)}", "good"
    for line in found.answer:
        tone: Tone = "bad" if line.startswith("-") else "good" if line.startswith("+") else "dim"
        yield clean(line), tone
    if not (found.only_one or found.only_other or found.changed or found.answer):
        yield "no difference in plan, results or answer", "plain"
