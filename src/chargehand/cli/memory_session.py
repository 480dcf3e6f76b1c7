"""A team's memory while a verb of `chargehand memory` works with it: opened, and everything in it found by its name."""

import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.console import Console, Tone, clean
from chargehand.config.environment import login_name
from chargehand.config.findings import near
from chargehand.config.gather import TeamMemory, load_memory
from chargehand.config.memory import check_name
from chargehand.errors import Refused, StoreUnavailable, Unknown
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Grant
from chargehand.memory.catalog import Catalog, Profile
from chargehand.memory.opened import OpenMemory
from chargehand.memory.origin import Origin
from chargehand.runtime.remembered import id_of, open_memory
from chargehand.text.names import listed

_PAGE = 500
_Kept = TypeVar("_Kept", Profile, Block, Archive)
_Shared = TypeVar("_Shared", Block, Archive)


class MemorySession(Struct, frozen=True):
    """What a verb works with. Data goes to `out`; progress and remarks go to standard error."""

    options: Namespace
    declared: TeamMemory
    opened: OpenMemory

    @property
    def file(self) -> Path:
        return Path(str(self.declared.memory.store))

    @property
    def catalog(self) -> Catalog:
        return self.opened.catalog

    @property
    def out(self) -> Console:
        return Console(sys.stdout)

    @property
    def origin(self) -> Origin:
        return Origin("person", login_name())

    def print_json(self, document: object) -> int:
        self.out.json(_with_defaults(document))
        return 0

    def note(self, text: str, tone: Tone = "plain") -> None:
        """Print a remark beside the data."""
        Console(sys.stderr).line(clean(text), tone)

    async def list_all(self, kind: type[_Kept]) -> list[_Kept]:
        """Everything of a kind, page by page."""
        things: list[_Kept] = []
        while True:
            page = await self.catalog.find(kind, after=things[-1].id if things else "", limit=_PAGE)
            things += page
            if len(page) < _PAGE:
                return things

    async def find_block(self, label: str) -> Block:
        blocks = await self.catalog.find(Block, name=label, limit=1)
        if blocks:
            return blocks[0]
        if await self.catalog.find(Archive, name=label, limit=1):
            raise Unknown(
                f"{label!r} is an archive, not a block; search it with: chargehand memory search {label} WORDS"
            )
        labels = [block.label for block in await self.list_all(Block)]
        there_are = f"; there are {listed(labels) or 'none'}; memory set --create makes one"
        raise Unknown(f"there is no block {label!r}{near(label, labels) or there_are}")

    async def find_archive(self, name: str, *, create: bool = False) -> Archive:
        archives = await self.catalog.find(Archive, name=name, limit=1)
        if archives:
            return archives[0]
        if create:
            check_name(name, "an archive")
            return await self.create(Archive(name, id=self._declared_id(Archive, name)))
        if await self.catalog.find(Block, name=name, limit=1):
            raise Unknown(f"{name!r} is a block, not an archive; look at it with: chargehand memory get {name}")
        names = [archive.name for archive in await self.list_all(Archive)]
        hint = "name it under  memory: archives:  in the team file, or say --create where texts are put in"
        there_are = f"; there are {listed(names) or 'none'}; {hint}"
        raise Unknown(f"there is no archive {name!r}{near(name, names) or there_are}")

    async def create_block(self, label: str, value: str) -> Block:
        check_name(label, "a block")
        return await self.create(Block(label, value, id=self._declared_id(Block, label)))

    async def create(self, thing: _Shared) -> _Shared:
        """A new block or archive, shared with the whole team; an archive that another process made first is used."""
        try:
            kept = await self.catalog.add(thing, self.origin)
        except Refused:
            there = await self.catalog.get(type(thing), thing.id)
            if there is None or isinstance(there, Block):
                raise
            kept = there
        await self.catalog.attach(self.opened.team, kept.id, Grant(kept.share))
        return kept

    def _declared_id(self, kind: type[Block | Archive], name: str) -> str:
        """The id that a declaration in the team file would give it, so that a later declaration finds it."""
        return id_of(kind, self.declared.memory.space or self.declared.team, name)


def find_memory(options: Namespace, *, creates: bool) -> TeamMemory:
    """The memory that the options name. A file is created for a team that has memory, or if the verb `creates`."""
    declared = load_memory(options.team, memory=USUAL_MEMORY, elsewhere=options.memory)
    file = Path(str(declared.memory.store))
    if not file.exists() and not declared.said and not creates:
        problem = f"there is no memory {file}, and team {declared.team} has no memory section"
        raise Refused(f"{problem}; write one into its team file, or name another file with --memory")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{file.parent} cannot be made: {error.strerror}; name another --memory") from error
    return declared


@asynccontextmanager
async def open_session(options: Namespace, declared: TeamMemory) -> AsyncGenerator[MemorySession]:
    """The memory that `find_memory` found, opened."""
    async with open_memory(declared.memory, declared.team, declared.workers, declared.lookup) as opened:
        yield MemorySession(options, declared, opened)


def _with_defaults(value: object) -> object:
    """Data with every field: structs leave defaults out, and programs should not have to know them."""
    if isinstance(value, Struct):
        return {name: _with_defaults(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _with_defaults(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_with_defaults(item) for item in cast("list[object]", value)]
    return value


def describe_origin(origin: Origin) -> str:
    """Who wrote something, and in which run and task."""
    if origin.by == "team":
        return "the team file"
    name = f"{origin.by} {origin.name}".strip()
    run = f" in {origin.run}" if origin.run else ""
    task = f", {origin.task}" if origin.run and origin.task else ""
    return f"{name}{run}{task}{' (saw text from outside)' if origin.tainted else ''}"
