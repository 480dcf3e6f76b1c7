"""Workers who work after turns of their team, not in them: who may be one, and what such a worker gets to read.

When one works, and where its runs come from, is the runtime's business.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.setup import own_archives, own_blocks, toolset
from chargehand.agents.worker import Worker
from chargehand.engine.events import Material
from chargehand.engine.failure import Gap
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.memory.blocks import Grant
from chargehand.memory.catalog import Memory
from chargehand.tools.rules import needs_approval

INSTRUCTION = (
    "Keep the memory of your team in order. The data are the turns since you last worked, oldest first: what was "
    "asked, what was answered, and what was missing. Note what is worth knowing later, correct what is no longer true, "
    "and shorten what is nearly full. What stands there already need not be noted again. Then say in one line what you "
    "changed."
)
_ROOM = 48_000  # characters of all turns together
_ASKED = 0.3  # of a turn's share, for what was asked
_MOST_GAPS = 5
_WRITES = ("append", "write")


class TurnTold(Struct, frozen=True, tag_field="kind", tag="turn", omit_defaults=True):
    """One turn, for whoever looks back on it. `gaps` say what was missing."""

    request: str
    answer: str
    gaps: tuple[str, ...] = ()


# --- what it reads


def turns_material(turns: Sequence[tuple[str, TurnTold]]) -> tuple[Material, ...]:
    """What a background run is given: the turns, by name of their runs, cut to size."""
    share = _ROOM // max(1, len(turns))
    return tuple(
        Material(TaskId(f"turn {number}, run {run}"), Raw(msgspec.json.encode(_cut(turn, share))))
        for number, (run, turn) in enumerate(turns, 1)
    )


def missing(gaps: Sequence[Gap]) -> tuple[str, ...]:
    """What was missing, in a few lines."""
    more = (f"and {len(gaps) - _MOST_GAPS} more",) if len(gaps) > _MOST_GAPS else ()
    return (*(gap.message for gap in gaps[:_MOST_GAPS]), *more)


def _cut(turn: TurnTold, share: int) -> TurnTold:
    asked = _short(turn.request, int(share * _ASKED))
    gaps = tuple(_short(gap, share // 20) for gap in turn.gaps)
    left = share - len(asked) - sum(map(len, gaps))
    return TurnTold(asked, _short(turn.answer, max(0, left)), gaps)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


# --- who may be one


def parted(workers: Sequence[Worker]) -> tuple[tuple[Worker, ...], tuple[Worker, ...]]:
    """Those who work in turns, and those who work after them."""
    return tuple(worker for worker in workers if worker.every is None), tuple(
        worker for worker in workers if worker.every is not None
    )


def check(memory: Memory | None, front: Sequence[Worker], background: Sequence[Worker]) -> None:
    """Raise Invalid for a worker who cannot work in the background, and for one who could change nothing there."""
    names = [one.name for one in (*front, *background)]
    for worker in background:
        owner = f"worker {worker.name!r}"
        _check_alone(owner, worker)
        if names.count(worker.name) > 1:
            raise Invalid(f"two workers are called {worker.name!r}; give one of them another name")
        if memory is None:
            raise Invalid(f"{owner} works on the team's memory, and there is none; give the team one, with a block")
        if not _may_write(worker, memory):
            raise Invalid(
                f"{owner} works on text from outside, and there is nothing it may write that to; let it write to a "
                'block, for example blocks={"notes": "write"} (in a team file: list it under `write` of the block, and '
                "under `tainted` if the block is trusted)"
            )


def _check_alone(owner: str, worker: Worker) -> None:
    """Raise Invalid for what nobody is there for once a turn is over."""
    every = worker.every
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise Invalid(f"{owner}: every is {every!r}; say after how many turns it works: 1 or more")
    if worker.is_delegated:
        kind = "a team" if worker.call is None else "a function"
        raise Invalid(f"{owner} is {kind}, which does not work in the background; give `every` to a worker")
    if worker.fallbacks:
        raise Invalid(f"{owner} works after turns, and nobody stands in for it; use fallback_models instead")
    if worker.contacts:
        raise Invalid(f"{owner} works after turns, when nobody reads messages; leave out its contacts")
    if worker.accept:
        raise Invalid(f"{owner} works after turns, unchecked; leave out `accept`")
    tools = toolset(owner, worker.tools)
    asks = next((tool.name for tool in tools.values() if tool.approve or needs_approval(worker.rules, tool.name)), "")
    if asks:
        raise Invalid(f"{owner} has the tool {asks!r}, which a person must allow, and works when nobody is there")


def _may_write(worker: Worker, memory: Memory) -> bool:
    """Whether there is anything it may write text from outside to."""
    own = own_blocks(worker)
    held = own_archives(worker, memory.archives)
    for block in memory.blocks:
        grant = own.get(block.label, Grant(block.share))
        if grant.access in _WRITES and not block.read_only and (grant.tainted or not block.trusted):
            return True
    return any(held.get(archive.name, Grant(archive.share)).access in _WRITES for archive in memory.archives)
