"""The trace of a run with those of the runs inside it, each under the attempt that started it.

Pure but for what it is given to read with. How a trace is shown is not known here.
"""

from collections.abc import Callable, Iterable, Iterator

from chargehand.runtime.trace import trace
from chargehand.runtime.traced import AttemptTrace, Trace
from chargehand.stores.journal import Journal, Readable
from chargehand.terms import events as ev


def nested_trace(run: str, runs: Iterable[str], read: Callable[[str], Readable]) -> Trace:
    """What the entries of a run tell, and of all runs inside it. `runs` are the names that there are to look among.

    Of a damaged run it is what can be read; Corrupt where that is nothing.
    """
    readable = read(run)
    if readable.damage is not None and not readable.entries:
        raise readable.damage
    inside = {name: read(name) for name in runs if name.startswith(f"{run}/")}
    return _whole(run, readable, {name: each for name, each in inside.items() if each.entries})


async def whole_trace(journal: Journal, run: str, runs: Iterable[str] | None = None) -> Trace:
    """The same for a journal that is open. Without `runs`, all of it is looked through for them."""
    names = [row.run for row in await journal.runs()] if runs is None else runs
    inside = [name for name in names if name.startswith(f"{run}/")]
    return _whole(run, Readable(await journal.read(run)), {name: Readable(await journal.read(name)) for name in inside})


def _trace(run: str, readable: Readable) -> Trace:
    found = trace(run, readable.entries)
    found.damage = "" if readable.damage is None else str(readable.damage)
    return found


def _whole(run: str, outer: Readable, inside: dict[str, Readable]) -> Trace:
    found = {run: _trace(run, outer), **{name: _trace(name, each) for name, each in inside.items()}}
    for name in sorted(inside, key=lambda one: (found[one].began, one)):
        first = inside[name].entries[0].event
        parent = first.parent if isinstance(first, ev.RunRequested) else None
        above = None if parent is None else found.get(parent.run)
        if parent is not None and above is not None:  # else only its name begins like ours
            _put(above, parent, found[name])
    return found[run]


def _put(above: Trace, parent: ev.Parent, inner: Trace) -> None:
    tasks = [one for one in (*above.tasks, *above.dropped) if one.id == parent.task]
    attempts = [one for task in tasks for one in task.attempts if one.attempt == parent.attempt]
    named = [one for one in attempts if inner.run in one.nested]
    for one in (named or attempts)[:1]:
        one.runs.append(inner)


def attempts_of(found: Trace) -> Iterator[tuple[str, AttemptTrace]]:
    """Every attempt of a run that started others, with the task it belongs to."""
    for task in found.tasks:
        yield from ((task.id, one) for one in task.attempts if one.runs)
