"""A team's memory as the verbs of `chargehand memory` see it: open, and everything in it found by its name."""

import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.console import Console, Tone, clean, clean_json
from chargehand.config.environment import login_name
from chargehand.config.findings import among, near
from chargehand.config.gather import TeamMemory, load_memory
from chargehand.config.memory import check_name, is_name
from chargehand.errors import Refused, StoreUnavailable, Unknown
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Grant
from chargehand.memory.catalog import Catalog, Group, KeptTool, Profile
from chargehand.memory.opened import OpenMemory
from chargehand.memory.origin import Origin
from chargehand.runtime.remembered import open_memory
from chargehand.runtime.settled import id_of

_PAGE = 500
_Kept = TypeVar("_Kept", Profile, Group, KeptTool, Block, Archive)
_Shared = TypeVar("_Shared", Block, Archive)


class Space(Struct, frozen=True):
    """What a verb works with. `out` is for data; progress and what is only good to know goes to standard error."""

    options: Namespace
    declared: TeamMemory
    opened: OpenMemory
    file: Path

    @property
    def catalog(self) -> Catalog:
        return self.opened.catalog

    @property
    def out(self) -> Console:
        return Console(sys.stdout)

    @property
    def origin(self) -> Origin:
        return Origin("person", login_name())

    def show(self, document: object) -> int:
        """One JSON document."""
        self.out.line(clean_json(msgspec.json.format(msgspec.json.encode(whole(document)), indent=2).decode()))
        return 0

    def note(self, text: str, tone: Tone = "plain") -> None:
        """Something good to know beside the data."""
        Console(sys.stderr).line(clean(text), tone)

    # --- things by name

    def id_of(self, kind: type[Block | Archive], name: str) -> str:
        """The id that a declaration would give it: who declares it later finds it, and nobody makes it twice."""
        return id_of(kind, self.declared.memory.space or self.declared.team, name)

    async def made(self, thing: _Shared) -> _Shared:
        """A new thing, shared with the whole team; that of another process, where that was faster with an archive."""
        try:
            kept = await self.catalog.add(thing, self.origin)
        except Refused:
            there = await self.catalog.get(type(thing), thing.id)
            if there is None or isinstance(there, Block):
                raise
            kept = there
        await self.catalog.attach(self.opened.team, kept.id, Grant(kept.share))
        return kept

    async def all(self, kind: type[_Kept]) -> list[_Kept]:
        """Every thing of a kind, page by page."""
        found: list[_Kept] = []
        while True:
            page = await self.catalog.find(kind, after=found[-1].id if found else "", limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                return found

    async def block(self, label: str) -> Block:
        found = await self.catalog.find(Block, name=label, limit=1)
        if found:
            return found[0]
        if await self.catalog.find(Archive, name=label, limit=1):
            raise Unknown(
                f"{label!r} is an archive, not a block; look into it with: chargehand memory passages {label}"
            )
        labels = [one.label for one in await self.all(Block)]
        make = f"; to make it: chargehand memory create {quote(label)}" if is_name(label) else ""
        otherwise = f"{among(labels) or 'none'}{make}"
        raise Unknown(f"there is no block {label!r}{near(label, labels) or f'; there are {otherwise}'}")

    async def archive(self, name: str, *, create: bool = False) -> Archive:
        found = await self.catalog.find(Archive, name=name, limit=1)
        if found:
            return found[0]
        if create:
            check_name(name, "an archive")
            return await self.made(Archive(name, id=self.id_of(Archive, name)))
        if await self.catalog.find(Block, name=name, limit=1):
            raise Unknown(f"{name!r} is a block, not an archive; look at it with: chargehand memory get {name}")
        names = [one.name for one in await self.all(Archive)]
        hint = "name it under  memory: archives:  in the team file, or say --create where texts are put in"
        otherwise = f"{among(names) or 'none'}; {hint}"
        raise Unknown(f"there is no archive {name!r}{near(name, names) or f'; there are {otherwise}'}")

    async def agent(self, name: str) -> Profile:
        found = await self.catalog.find(Profile, name=name, limit=1)
        if found:
            return found[0]
        names = [one.name for one in await self.all(Profile)]
        otherwise = f"{among(names) or 'none'}; see  chargehand memory agents"
        raise Unknown(f"there is no worker {name!r} here{near(name, names) or f'; there are {otherwise}'}")


@asynccontextmanager
async def opened_space(options: Namespace, declared: TeamMemory) -> AsyncGenerator[Space]:
    """The memory that `located` found."""
    file = Path(str(declared.memory.store))
    async with open_memory(declared.memory, declared.team, declared.workers, declared.lookup) as opened:
        yield Space(options, declared, opened, file)


def located(options: Namespace, *, makes: bool) -> TeamMemory:
    """What the options name. A file that is not there is made for a team that has memory, or if the verb `makes`."""
    declared = load_memory(options.team, memory=USUAL_MEMORY, elsewhere=options.memory)
    file = Path(str(declared.memory.store))
    if not file.exists() and not declared.said and not makes:
        said = f"there is no memory {file}, and team {declared.team} has no memory section"
        raise Refused(f"{said}; write one into its team file, or name another file with --memory")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{file.parent} cannot be made: {error.strerror}; name another --memory") from error
    return declared


def whole(value: object) -> object:
    """Data with every field there is: journals leave defaults out, and programs should not have to know them."""
    if isinstance(value, Struct):
        return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: whole(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [whole(item) for item in cast("list[object]", value)]
    return value


# --- words that several verbs use


def who(origin: Origin) -> str:
    """Whoever wrote something, in words."""
    if origin.by == "team":
        return "the team file"
    name = f"{origin.by} {origin.name}".strip()
    where = f" in {origin.run}" + (f", {origin.task}" if origin.task else "") if origin.run else ""
    return f"{name}{where}{' (saw text from outside)' if origin.tainted else ''}"
