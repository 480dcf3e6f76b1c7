"""The tools with which workers keep passages in archives and find them again, and their own earlier tasks.

What another agent wrote comes back as data: these tools are not trusted. How passages are ranked is not known here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from chargehand.errors import Invalid, Refused
from chargehand.memory.archives import Archive, Filter, Hit, Passage, TagMatch
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Attached
from chargehand.memory.conversation import Role
from chargehand.memory.opened import OpenMemory
from chargehand.memory.origin import Origin
from chargehand.models.exhibits import Passage as Found
from chargehand.models.exhibits import Passages
from chargehand.terms.policy import Instant
from chargehand.text.dates import parse_instant
from chargehand.text.names import nearest_names
from chargehand.tools.tool import Caller, ToolFailed

Moment: TypeAlias = Annotated[str, "A day or time in ISO 8601, inclusive"]
Tags: TypeAlias = Annotated[list[str], "Short words to find it by"]
_ARCHIVE = "May be left out where there is only one"
_LOOKED_AT = 200
_SHOWN_TAGS = 20


class Recalled(Struct, frozen=True, omit_defaults=True):
    """An earlier turn that was found: `user` is what was asked, `assistant` what came of it."""

    role: Role
    when: str
    text: str
    run: str = ""
    task: str = ""


def origin_of(caller: Caller) -> Origin:
    """Who writes, as the engine says. The key is `run/task/attempt/number`, and which run of that name it is."""
    parts = caller.key.rsplit("/", 3)
    run, task, attempt, _ = parts if len(parts) == 4 and parts[2].isdecimal() else ("", "", "0", "")
    if caller.run:  # names may hold slashes
        run = caller.run
        task = caller.task
    key = f"{caller.key}#{caller.mark}" if caller.mark else caller.key
    return Origin(
        by="worker",
        name=caller.worker,
        run=run,
        task=task,
        attempt=int(attempt),
        key=key,
        tainted=caller.tainted,
        mark=caller.mark,
    )


class Recollection:
    def __init__(self, memory: OpenMemory | None, worker: str, conversation: str = "") -> None:
        """`conversation` is the id of the one whose turns are searched; left out, it is the worker's own."""
        self._memory = memory
        self._worker = worker
        self._conversation = conversation

    @property
    def opened(self) -> tuple[OpenMemory, str]:
        """The memory, and the worker's id in it."""
        if self._memory is None or self._worker not in self._memory.agents:
            raise ToolFailed("there is no memory here that is open; give the team one")
        return self._memory, self._memory.agents[self._worker]

    async def attached(self, kind: type[Block | Archive], name: str) -> Attached:
        """The block or archive of this name that the worker may use; ToolFailed with the nearest if there is none."""
        found = await self._all(kind)
        if not name and len(found) == 1:
            return found[0]
        one = next((one for one in found if _name(one) == name), None)
        if one is not None:
            return one
        what = "block" if kind is Block else "archive"
        names = [_name(one) for one in found]
        near = nearest_names(name, names) or names
        there = f"there is {' and '.join(map(repr, near))}" if near else f"you have no {what} at all"
        raise ToolFailed(f"you have no {what} {name[:100]!r}; {there}" if name else f"say which {what}: {there}")

    async def archival_memory_insert(
        self,
        content: Annotated[str, "A text that can be understood by itself: names, dates and figures in full"],
        caller: Caller,
        tags: Tags = [],  # noqa: B006 - read as a schema, never changed
        archive: Annotated[str, _ARCHIVE] = "",
    ) -> str:
        """Keep a text for later in an archive, where it is found by searching: facts, sources, results."""
        one = await self.attached(Archive, archive)
        memory, agent = self.opened
        assert isinstance(one.thing, Archive), "that kind was asked for"
        name = one.thing.name
        if one.grant.access not in ("append", "write"):  # the store says the same, in words for others
            raise ToolFailed(f"you may search {name}, but not add to it")
        if not content.strip():
            raise ToolFailed("there is no text to keep; say what is worth finding again")
        passage = Passage(content, tuple(dict.fromkeys(tags)), origin=origin_of(caller))
        try:
            kept = await memory.add(one.thing, [passage], agent=agent)
        except (Refused, Invalid) as error:
            raise ToolFailed(f"nothing was kept in {name}: {error}") from error
        new = sum(part.new for part in kept)
        if not new:
            return f"{name} has this text already; its tags are joined"
        return f"kept in {name}" + (f", in {len(kept)} parts" if len(kept) > 1 else "")

    async def archival_memory_search(
        self,
        query: Annotated[str, "What to look for, in words"],
        tags: Annotated[list[str], "Only passages with these tags"] = [],  # noqa: B006 - as above
        tag_match_mode: Annotated[TagMatch, "Whether one of the tags is enough"] = "any",
        top_k: Annotated[int, Meta(ge=1, le=50, description="How many passages at most")] = 5,
        start_datetime: Moment = "",
        end_datetime: Moment = "",
        archive: Annotated[str, _ARCHIVE + ", or to search all"] = "",
    ) -> Passages | str:
        """Search archives for passages by meaning and by words, best first.

        Use it before you say that something is not known: others may have kept it.
        """
        chosen = [await self.attached(Archive, archive)] if archive else await self._all(Archive)
        archives = [one.thing for one in chosen if isinstance(one.thing, Archive)]
        if not archives:
            raise ToolFailed("you have no archive to search")
        within = Filter(tuple(tags), tag_match_mode, _moment(start_datetime), _moment(end_datetime, end=True))
        memory, agent = self.opened
        try:
            hits = await memory.search(archives, query, within=within, limit=top_k, agent=agent)
        except (Refused, Invalid) as error:
            raise ToolFailed(str(error)) from error
        if not hits:
            return await self._nothing(archives, query, within)
        names = {one.id: one.name for one in archives}
        return Passages(query, tuple(_found(one, names) for one in hits))

    async def conversation_search(
        self,
        query: Annotated[str, "Words that occurred; empty: the latest"],
        roles: Annotated[list[Literal["user", "assistant", "summary"]], "Only what was asked, or what came of it"] = [],  # noqa: B006 - as above
        limit: Annotated[int, Meta(ge=1, le=50, description="How many at most")] = 5,
        start_date: Moment = "",
        end_date: Moment = "",
    ) -> list[Recalled] | str:
        """Search the tasks you were given before, in this run or in earlier ones, and what came of them."""
        memory, agent = self.opened
        start = _moment(start_date)
        end = _moment(end_date, end=True)
        try:
            which = self._conversation or agent
            turns = await memory.catalog.recall(which, query, roles=roles, start=start, end=end, limit=limit)
        except (Refused, Invalid) as error:
            raise ToolFailed(str(error)) from error
        if not turns:
            return f"nothing found for {query[:200]!r} among your earlier tasks; try fewer or other words"
        return [
            Recalled(role=one.role, when=_iso(one.when), text=one.text, run=one.run, task=one.task) for one in turns
        ]

    async def _all(self, kind: type[Block | Archive]) -> list[Attached]:
        memory, agent = self.opened
        return [one for one in await memory.catalog.attached(agent) if isinstance(one.thing, kind)]

    async def _nothing(self, archives: Sequence[Archive], query: str, within: Filter) -> str:
        """What there is, for somebody who found nothing of it."""
        memory, _ = self.opened
        lines: list[str] = []
        for one in archives:
            count, _ = await memory.catalog.count(one.id)
            latest = await memory.catalog.passages(one.id, limit=_LOOKED_AT, order="desc")
            tags = sorted({tag for passage in latest for tag in passage.tags})[:_SHOWN_TAGS]
            lines.append(f"{one.name} ({count:,} passages; tags: {', '.join(tags) or 'none'})")
        narrow = " with these tags and times" if within else ""
        return f"nothing found for {query[:200]!r}{narrow} in {'; '.join(lines)}; try other words, or fewer conditions"


def _name(one: Attached) -> str:
    return one.thing.label if isinstance(one.thing, Block) else one.thing.name


def _found(hit: Hit, names: dict[str, str]) -> Found:
    passage = hit.passage
    source = passage.origin.source or f"{names.get(passage.archive, 'archive')}: {_writer(passage.origin)}"
    return Found(
        source=source,
        text=passage.text,
        score=hit.score,
        id=passage.id,
        when=_iso(passage.created),
        tags=passage.tags,
        why=hit.why,
    )


def _writer(origin: Origin) -> str:
    who = origin.name or origin.by
    return f"{who}, task {origin.task} of run {origin.run}" if origin.task else who


def _iso(when: Instant) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(text: str, *, end: bool = False) -> Instant | None:
    """An instant, in UTC where no zone is named. A day alone is its beginning or, as an end, its last moment."""
    if not text.strip():
        return None
    try:
        return parse_instant(text, end_of_day=end)
    except ValueError as error:
        message = f"{text[:60]!r} is no time; write it in ISO 8601, for example 2026-05-17 or 2026-05-17T09:30:00+02:00"
        raise ToolFailed(message) from error
