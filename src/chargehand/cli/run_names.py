"""Which run is meant where one is named: its name, the beginning of it, or `last`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from chargehand.errors import Refused
from chargehand.stores.reader import read_rows

LAST = "last"
_MOST_CANDIDATES = 10
_ARGUMENTS = {
    "run": ("reuse",),
    "play": ("reuse",),
    "runs": ("name", "other"),
    "watch": ("name",),
    "resume": ("name",),
    "replay": ("name",),
    "feedback": ("name",),
}
"""The arguments of each verb that name a run."""


def resolve_runs(options: Namespace) -> None:
    """Put the whole name in the place of every run that the command names. Refused where several are meant."""
    for argument in _ARGUMENTS.get(options.verb, ()):
        typed: str | None = getattr(options, argument, None)
        if typed:
            setattr(options, argument, resolve_run(Path(options.journal), typed))


def resolve_run(journal: Path, typed: str) -> str:
    """The name of the run that is meant; what was typed, where there is no such run or no journal."""
    if not journal.exists():
        return typed
    names = [row.run for row in read_rows(journal) if not row.damage]
    if typed in names:
        return typed
    outermost = [name for name in names if not is_nested(name, set(names))]
    if typed == LAST:
        if not outermost:
            raise Refused(f"there are no runs in {journal}; run something first, or name another with --journal")
        return outermost[0]
    candidates = [name for name in outermost if name.startswith(typed)]
    candidates = candidates or [name for name in names if name.startswith(typed)]
    if len(candidates) > 1:
        raise Refused(f"{typed!r} may be any of {_listed(candidates)}; type more of its name")
    return candidates[0] if candidates else typed


def _listed(candidates: Sequence[str]) -> str:
    more = len(candidates) - _MOST_CANDIDATES
    shown = ", ".join(candidates[:_MOST_CANDIDATES])
    return f"{len(candidates)} runs: {shown}{f' and {more} more' if more > 0 else ''}"


def is_nested(name: str, names: set[str]) -> bool:
    """Whether a run works for another of these: its name begins with that one's."""
    return any(sign == "/" and name[:at] in names for at, sign in enumerate(name))
