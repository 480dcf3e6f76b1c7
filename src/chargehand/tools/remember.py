"""The tools with which workers change blocks, and all nine memory tools by name.

What a worker may do is enforced in the store. An edit is acknowledged in words, never with the text of the block: that
the worker is shown before its next step.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused, Unknown
from chargehand.memory.archives import Archive, Filter, Hit, Passage, TagMatch
from chargehand.memory.blocks import (
    Access,
    Append,
    Block,
    Edit,
    Insert,
    Origin,
    Patch,
    Replace,
    ReplaceAll,
    Rethink,
)
from chargehand.memory.catalog import Attached
from chargehand.memory.conversations import Role
from chargehand.memory.session import OpenMemory
from chargehand.models.artifacts import FoundPassage as Found
from chargehand.models.artifacts import Passages
from chargehand.text.dates import parse_instant
from chargehand.text.words import nearest_names
from chargehand.tools.tool import Caller, Tool, ToolFailed, tool, with_names

Moment: TypeAlias = Annotated[str, "A day or time in ISO 8601, inclusive"]
Tags: TypeAlias = Annotated[list[str], "Short words to find it by"]
_ARCHIVE = "May be left out where there is only one"


class Recalled(Struct, frozen=True, omit_defaults=True):
    """An earlier turn that was found: `user` is what was asked, `assistant` what came of it."""

    role: Role
    when: str
    text: str
    run: str = ""
    task: str = ""


def origin_of(caller: Caller) -> Origin:
    """Return who writes, as the engine says.

    The key is the same for an equal edit of another attempt of the task, and of a run that does the task again: the
    store applies it once. A second equal edit of one attempt is meant, so it has a key of its own.
    """
    key = f"{caller.key}#{caller.mark}" if caller.mark else caller.key
    key = key if caller.times == 1 else f"{key}/{caller.times}"
    return Origin(
        by="worker",
        name=caller.worker,
        run=caller.run,
        task=caller.task,
        attempt=caller.attempt,
        key=key,
        tainted=caller.tainted,
        mark=caller.mark,
        scope=scope_of_caller(caller),
    )


def scope_of_caller(caller: Caller) -> str:
    """Return the scope of the run in which a tool is called; empty outside of runs."""
    return "" if caller.context is None else caller.context.request.scope


class Recollection:
    def __init__(self, memory: OpenMemory | None, worker: str, conversation: str = "") -> None:
        """`conversation` is the one whose turns are searched; left out, the worker's own in the scope of the run."""
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
        things = await self._all(kind)
        if not name and len(things) == 1:
            return things[0]
        thing = next((thing for thing in things if _name(thing) == name), None)
        if thing is not None:
            return thing
        what = "block" if kind is Block else "archive"
        names = [_name(thing) for thing in things]
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
        attached = await self.attached(Archive, archive)
        memory, agent = self.opened
        assert isinstance(attached.thing, Archive), "that kind was asked for"
        name = attached.thing.name
        if attached.grant.access not in ("append", "write"):  # the store says the same, in words for others
            raise ToolFailed(f"you may search {name}, but not add to it")
        if not content.strip():
            raise ToolFailed("there is no text to keep; say what is worth finding again")
        passage = Passage(content, tuple(dict.fromkeys(tags)), origin=origin_of(caller))
        try:
            parts = await memory.add(attached.thing, [passage], agent=agent)
        except (Refused, Invalid) as error:
            raise ToolFailed(f"nothing was kept in {name}: {error}") from error
        new = sum(part.new for part in parts)
        if not new:
            return f"{name} has this text already; its tags are joined"
        return f"kept in {name}" + (f", in {len(parts)} parts" if len(parts) > 1 else "")

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
        archives = [archive.thing for archive in chosen if isinstance(archive.thing, Archive)]
        if not archives:
            raise ToolFailed("you have no archive to search")
        within = Filter(tuple(tags), tag_match_mode, _moment(start_datetime), _moment(end_datetime, end=True))
        memory, agent = self.opened
        try:
            hits = await memory.search(archives, query, within=within, limit=top_k, agent=agent)
        except (Refused, Invalid) as error:
            raise ToolFailed(str(error)) from error
        if not hits:
            narrow = " with these tags and times" if within else ""
            places = ", ".join(archive.name for archive in archives)
            return f"nothing found for {query[:200]!r}{narrow} in {places}; try other words, or fewer conditions"
        names = {archive.id: archive.name for archive in archives}
        return Passages(query, tuple(_passage(hit, names) for hit in hits))

    async def conversation_search(
        self,
        query: Annotated[str, "Words that occurred; empty: the latest"],
        caller: Caller,
        roles: Annotated[list[Literal["user", "assistant", "summary"]], "Only what was asked, or what came of it"] = [],  # noqa: B006 - as above
        limit: Annotated[int, Meta(ge=1, le=50, description="How many at most")] = 5,
        start_date: Moment = "",
        end_date: Moment = "",
    ) -> list[Recalled] | str:
        """Search the tasks you were given before, in this run or in earlier ones, and what came of them."""
        memory, agent = self.opened
        start = _moment(start_date)
        end = _moment(end_date, end=True)
        scope = scope_of_caller(caller)
        which = self._conversation or memory.conversation_of(agent, scope)
        try:
            turns = await memory.catalog.recall(which, query, roles=roles, start=start, end=end, limit=limit)
        except Unknown as error:
            if which == agent:
                raise ToolFailed(str(error)) from error
            turns = []  # the conversation of a scope is made when the first turn is kept
        except (Refused, Invalid) as error:
            raise ToolFailed(str(error)) from error
        if not turns:
            return f"nothing found for {query[:200]!r} among your earlier tasks; try fewer or other words"
        return [
            Recalled(role=turn.role, when=_iso(turn.when), text=turn.text, run=turn.run, task=turn.task)
            for turn in turns
        ]

    async def _all(self, kind: type[Block | Archive]) -> list[Attached]:
        memory, agent = self.opened
        return [attached for attached in await memory.catalog.attached(agent) if isinstance(attached.thing, kind)]


def _name(attached: Attached) -> str:
    return attached.thing.label if isinstance(attached.thing, Block) else attached.thing.name


def _passage(hit: Hit, names: dict[str, str]) -> Found:
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


Label: TypeAlias = Annotated[str, "The label of the block, as your memory shows it"]

BLOCK_TOOLS = (
    "core_memory_append",
    "core_memory_replace",
    "memory_insert",
    "memory_replace",
    "memory_apply_patch",
    "memory_rethink",
)
ARCHIVE_TOOLS = ("archival_memory_insert", "archival_memory_search")
NAMES = (*BLOCK_TOOLS, *ARCHIVE_TOOLS, "conversation_search")
_SUMMARIES = {
    "core_memory_append": "adds a line to a block of memory",
    "memory_insert": "inserts a line into a block of memory",
    "memory_replace": "corrects a place in a block of memory",
    "archival_memory_insert": "keeps a text in an archive",
    "archival_memory_search": "searches archives",
    "conversation_search": "searches its earlier tasks",
}
MEMORY_SEARCHES = frozenset(("archival_memory_search", "conversation_search"))
_NONE: Mapping[str, Access] = {}
_CHANGING: frozenset[Access] = frozenset(("append", "write"))


class Notebook(Recollection):
    """What one worker can do with the memory of its team. Without a memory it only says what it could do."""

    async def core_memory_append(
        self, label: Label, content: Annotated[str, "One line or several, without line numbers"], caller: Caller
    ) -> str:
        """Add text as a new line at the end of a block of shared memory.

        Use it for what others should know from now on: a finding, a decision. They see it before their next step.
        """
        return await self._edit(label, Append(content), caller, "appended")

    async def core_memory_replace(
        self,
        label: Label,
        old_content: Annotated[str, "Text that stands in the block now, exactly"],
        new_content: Annotated[str, "What shall stand in its place; empty takes it out"],
        caller: Caller,
    ) -> str:
        """Replace a text wherever it occurs in a block of shared memory. Use memory_replace to change one place."""
        return await self._edit(label, ReplaceAll(old_content, new_content), caller, "replaced")

    async def memory_insert(
        self,
        label: Label,
        new_string: Annotated[str, "The text, without line numbers"],
        caller: Caller,
        insert_line: Annotated[int, "Before this line, counted from 0 (the top); -1 is the end"] = -1,
    ) -> str:
        """Insert text at a line of a block of shared memory."""
        return await self._edit(label, Insert(new_string, insert_line), caller, "inserted")

    async def memory_replace(
        self,
        label: Label,
        old_string: Annotated[str, "Text that stands in the block exactly once; take enough of it to be unique"],
        new_string: Annotated[str, "What shall stand in its place; empty takes it out"],
        caller: Caller,
    ) -> str:
        """Correct one place in a block of shared memory: a line that is no longer true, a status that has changed."""
        return await self._edit(label, Replace(old_string, new_string), caller, "replaced")

    async def memory_apply_patch(
        self,
        label: Label,
        patch: Annotated[str, "Lines that stay begin with a blank, removed ones with -, new ones with +; @@ between"],
        caller: Caller,
    ) -> str:
        """Change several places of a block of shared memory at once: all of them, or none if one does not fit."""
        return await self._edit(label, Patch(patch), caller, "patched")

    async def memory_rethink(
        self, label: Label, new_memory: Annotated[str, "The whole new text of the block"], caller: Caller
    ) -> str:
        """Write a block of shared memory anew, for example to shorten one that is nearly full.

        Everything that is not in the new text is gone from it. It is refused if the block was changed since
        you were shown it; look at it again then.
        """
        return await self._edit(label, Rethink(new_memory), caller, "rewritten", expect=caller.seen.get(label, 0))

    async def _edit(self, label: str, edit: Edit, caller: Caller, done: str, *, expect: int | None = None) -> str:
        attached = await self.attached(Block, label)
        memory, agent = self.opened
        try:
            origin = origin_of(caller)
            block = await memory.catalog.edit(attached.thing.id, edit, origin, agent=agent, expect=expect)
        except (Refused, Invalid) as error:
            raise ToolFailed(f"{label} was not changed: {error}") from error
        room = f"{len(block.value):,} of {block.limit:,} characters"
        return f"{done}; {label} is at version {block.version}, {room}"


@cache
def described() -> Mapping[str, Tool]:
    """The nine tools as a model is told of them; they can be called only once a memory is behind them."""
    book = Notebook(None, "")
    tools = dict[str, Tool]()
    for name in NAMES:
        reads = name in MEMORY_SEARCHES
        wanted = tool(effect="read" if reads else "idempotent", trusted=not reads, summary=_SUMMARIES.get(name, ""))
        tools[name] = wanted(getattr(book, name))
    return tools


def memory_tools(
    memory: OpenMemory,
    worker: str,
    blocks: Mapping[str, Access] = _NONE,
    archives: Mapping[str, Access] = _NONE,
    conversation: str = "",
) -> dict[str, Tool]:
    """The nine tools of one worker of the team whose memory this is.

    `blocks` and `archives` are those it may use: their names stand in the schemas of the tools. `conversation` is the
    one it searches, where that is not its own.
    """
    book = Notebook(memory, worker, conversation)
    tools = {name: structs.replace(made_tool, function=getattr(book, name)) for name, made_tool in described().items()}
    changeable = [label for label, access in blocks.items() if access in _CHANGING]
    writable = [label for label, access in blocks.items() if access == "write"]
    searched = [name for name, access in archives.items() if access != "none"]
    growing = [name for name, access in archives.items() if access in _CHANGING]
    for name, made_tool in tools.items():
        labels = changeable if name == "core_memory_append" else writable
        names = growing if name == "archival_memory_insert" else searched
        tools[name] = with_names(with_names(made_tool, "label", labels), "archive", names)
    return tools


def usual_tools(blocks: Iterable[Access], archives: Iterable[Access], *, remembers: bool) -> list[str]:
    """The names of those a worker is given without asking, by what it may do with each block and archive."""
    may = set(blocks)
    use = set(archives)
    wanted = {
        "core_memory_append": bool(may & _CHANGING),
        "memory_insert": "write" in may,
        "memory_replace": "write" in may,
        "archival_memory_insert": bool(use & _CHANGING),
        "archival_memory_search": bool(use - {"none"}),
        "conversation_search": remembers,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]
