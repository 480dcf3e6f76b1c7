"""What workers may do with the memory of their team, as it is declared and as they go to work. Others open it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from msgspec import Struct, field, structs

from chargehand.agents.recall import Desk
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Access, Block, Grant
from chargehand.memory.declared import Memory
from chargehand.memory.opened import OpenMemory
from chargehand.text.names import did_you_mean, listed
from chargehand.tools.remember import ARCHIVE_TOOLS, BLOCK_TOOLS, NAMES, memory_tools, usual_tools
from chargehand.tools.tool import Tool

_ACCESS: tuple[Access, ...] = get_args(Access)


def check(memory: Memory | None, workers: Sequence[Worker]) -> None:
    """Raise Invalid for who is no worker, a memory nobody could use, and workers who ask for what is not in it."""
    if strange := next((one for one in workers if not isinstance(one, Worker)), None):  # pyright: ignore[reportUnnecessaryIsInstance] - people pass teams
        hint = (
            "a team is made one by  team.as_worker()"
            if hasattr(strange, "as_worker")
            else "write Worker(name, description)"
        )
        raise Invalid(f"{type(strange).__name__} is no worker; {hint}")
    if memory is None:
        for worker in workers:
            _check_without(worker)
        return
    labels = [one.label for one in memory.blocks]
    names = [one.name for one in memory.archives]
    for what, found in (("block", labels), ("archive", names)):
        if double := next((one for one in found if found.count(one) > 1), None):
            raise Invalid(f"the memory has two {what}s called {double!r}; give one of them another name")
    for one in (*memory.blocks, *memory.archives):
        _check_access(f"{_name(one)!r}: share", one.share)
    for worker in workers:
        owner = f"worker {worker.name!r}"
        _check_known(owner, "block", worker.blocks, labels)
        _check_known(owner, "archive", worker.archives or (), names)
        for label, given in worker.blocks.items():
            _check_access(f"{owner}: block {label!r}", given.access if isinstance(given, Grant) else given)
        for name, access in worker.archives.items() if isinstance(worker.archives, Mapping) else ():
            _check_access(f"{owner}: archive {name!r}", access)


def own_blocks(worker: Worker) -> dict[str, Grant]:
    """What a worker may do with blocks where that is not what everybody may, by label."""
    return {label: one if isinstance(one, Grant) else Grant(one) for label, one in worker.blocks.items()}


def own_archives(worker: Worker, archives: Sequence[Archive]) -> dict[str, Grant]:
    """The same for archives, by name: one that names some may use no others."""
    named = worker.archives
    if named is None:
        return {}
    if isinstance(named, Mapping):
        return {one.name: Grant(named.get(one.name, "none")) for one in archives}
    usual: dict[str, Access] = {one.name: "write" if one.share == "none" else one.share for one in archives}
    return {one.name: Grant(usual[one.name] if one.name in named else "none") for one in archives}


def _usual(worker: Worker, blocks: Iterable[Access], archives: Iterable[Access]) -> list[str]:
    """The memory tools a worker gets without naming them: for what it declares, or for all if it remembers."""
    named = {one for one in worker.tools if isinstance(one, str)}
    uses_blocks = worker.remembers or bool(worker.blocks) or bool(named & set(BLOCK_TOOLS))
    uses_archives = worker.remembers or bool(worker.archives) or bool(named & set(ARCHIVE_TOOLS))
    return usual_tools(blocks if uses_blocks else (), archives if uses_archives else (), remembers=worker.remembers)


def outfitted(worker: Worker, memory: Memory | None) -> Worker:
    """The worker with the memory tools that it gets without naming them, after its own. Most workers need none."""
    if memory is None:
        return worker
    own = own_blocks(worker)
    held = own_archives(worker, memory.archives)
    blocks: list[Access] = [_bounded(one, own.get(one.label, Grant(one.share))) for one in memory.blocks]
    archives: list[Access] = [held.get(one.name, Grant(one.share)).access for one in memory.archives]
    return _with(worker, _usual(worker, blocks, archives))


class Furnished(Struct, frozen=True):
    """A worker with all its tools, those that can be named by what is behind them, and its desk in the memory."""

    worker: Worker
    named: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    desk: Desk | None = None


async def furnished(
    memory: OpenMemory | None, worker: Worker, *, with_usual_tools: bool = True, conversation: str = ""
) -> Furnished:
    """A worker as it goes to work with an open memory. People may have attached more to it than is declared.

    Without the usual tools it has those that it names, and no others. In a `conversation` beside its own it remembers
    that one.
    """
    if memory is None:
        return Furnished(worker)
    agent = memory.agents[worker.name]
    held = await memory.catalog.attached(agent)
    blocks: dict[str, Access] = {
        one.thing.label: _bounded(one.thing, one.grant) for one in held if isinstance(one.thing, Block)
    }
    archives: dict[str, Access] = {one.thing.name: one.grant.access for one in held if isinstance(one.thing, Archive)}
    whole = worker
    if with_usual_tools:
        whole = _with(worker, _usual(worker, blocks.values(), archives.values()))
    shows = bool(blocks) or worker.remembers
    desk = Desk(memory, agent, worker.remembers, shows=shows, conversation=conversation)
    return Furnished(whole, memory_tools(memory, worker.name, blocks, archives, conversation), desk)


def _with(worker: Worker, usual: Sequence[str]) -> Worker:
    taken = {called(one) for one in worker.tools}
    return structs.replace(worker, tools=(*worker.tools, *(name for name in usual if name not in taken)))


def _bounded(block: Block, grant: Grant) -> Access:
    return "read" if block.read_only and grant.access != "none" else grant.access


def _check_without(worker: Worker) -> None:
    named = next((one for one in worker.tools if isinstance(one, str) and one in NAMES), "")
    wants = {
        "remembers": worker.remembers,
        "has blocks": bool(worker.blocks),
        "has archives": bool(worker.archives),
        f"has the tool {named!r}": bool(named),
    }
    for what, wanted in wants.items():
        if wanted:
            raise Invalid(f"worker {worker.name!r} {what}, but its team has no memory; give it one: memory=Memory(...)")


def _check_known(owner: str, what: str, asked: Sequence[str] | Mapping[str, object], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known, f"there is {listed(known) or 'none'}")
            raise Invalid(f"{owner} names the {what} {name!r}, which the memory does not have; {hint}")


def _check_access(where: str, access: str) -> None:
    if access not in _ACCESS:
        raise Invalid(f"{where} cannot be {access!r}; it is one of {', '.join(_ACCESS)}")


def _name(thing: Block | Archive) -> str:
    return thing.label if isinstance(thing, Block) else thing.name


def called(tool: object) -> str:
    """The name of a tool, however a worker brings it."""
    return tool if isinstance(tool, str) else str(getattr(tool, "name", getattr(tool, "__name__", "")))
