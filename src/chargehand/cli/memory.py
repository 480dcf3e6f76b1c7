"""`chargehand memory`: what a team remembers, looked at and changed by people. Works beside a run that uses it."""

from argparse import Namespace
from collections.abc import Awaitable, Callable

from chargehand.cli import memory_archives, memory_blocks, memory_files, memory_talk
from chargehand.cli.console import clean
from chargehand.cli.memory_space import Space, located, opened_space
from chargehand.cli.memory_text import check_words
from chargehand.cli.table import size_of
from chargehand.cli.terminated import Termination
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Profile

_MAKES = ("create", "add", "import")


def memory(options: Namespace) -> int:
    """One of the things that can be done with memory; an overview, where none is named."""
    what: str = vars(options).get("what") or ""
    check_words(options)
    declared = located(options, makes=what in _MAKES)

    async def main() -> int:
        async with opened_space(options, declared) as space:
            return await _VERBS[what](space)

    with Termination() as termination:
        return termination.run(main())


async def _overview(space: Space) -> int:
    """Where it is kept, and everything that is there."""
    if space.options.json:
        return space.show(
            {
                "team": space.declared.team,
                "file": str(space.file),
                "blocks": await space.all(Block),
                "archives": await space.all(Archive),
                "agents": await space.all(Profile),
            }
        )
    size = sum(one.stat().st_size for one in space.file.parent.glob(f"{space.file.name}*") if one.suffix != ".lock")
    space.out.line(clean(f"memory of team {space.declared.team} in {space.file}, {size_of(size)}"), "bold")
    space.options.tag, space.options.match = [], "any"
    for part in (memory_blocks.blocks, memory_archives.archives, memory_talk.agents):
        space.out.line()
        await part(space)
    return 0


_VERBS: dict[str, Callable[[Space], Awaitable[int]]] = {
    "": _overview,
    "blocks": memory_blocks.blocks,
    "get": memory_blocks.get,
    "history": memory_blocks.history,
    "diff": memory_blocks.diff,
    "create": memory_blocks.create,
    "delete": memory_blocks.delete,
    **dict.fromkeys(("set", "append", "replace", "patch", "undo", "redo", "restore"), memory_blocks.change),
    "archives": memory_archives.archives,
    "search": memory_archives.search,
    "add": memory_archives.add,
    "passages": memory_archives.passages,
    "forget": memory_archives.forget,
    "export": memory_files.export,
    "import": memory_files.read_back,
    "embed": memory_archives.embed,
    "agents": memory_talk.agents,
    "tags": memory_talk.tags,
    "talk": memory_talk.talk,
}
