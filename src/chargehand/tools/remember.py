"""The tools with which workers change blocks, and all nine memory tools by name.

What a worker may do is enforced in the store. An edit is acknowledged in words, never with the text of the block: that
the worker is shown before its next step. What is kept and found in archives is `recollect`'s business.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, TypeAlias

from msgspec import structs

from chargehand.errors import Invalid, Refused
from chargehand.memory.blocks import (
    Access,
    Append,
    Block,
    Edit,
    Insert,
    Patch,
    Replace,
    ReplaceAll,
    Rethink,
)
from chargehand.memory.opened import OpenMemory
from chargehand.tools.recollect import Recollection, origin_of
from chargehand.tools.tool import Caller, Tool, ToolFailed, tool, with_names

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

        Everything that is not in the new text is gone from it. It is refused if somebody has changed the block since
        you were shown it; look at it again then.
        """
        return await self._edit(label, Rethink(new_memory), caller, "rewritten", expect=caller.seen.get(label, 0))

    async def _edit(self, label: str, edit: Edit, caller: Caller, done: str, *, expect: int | None = None) -> str:
        one = await self.attached(Block, label)
        memory, agent = self.opened
        try:
            origin = origin_of(caller)
            block = await memory.catalog.edit(one.thing.id, edit, origin, agent=agent, expect=expect)
        except (Refused, Invalid) as error:
            raise ToolFailed(f"{label} was not changed: {error}") from error
        room = f"{len(block.value):,} of {block.limit:,} characters"
        return f"{done}; {label} is at version {block.version}, {room}"


@cache
def described() -> Mapping[str, Tool]:
    """The nine tools as a model is told of them; they can be called only once a memory is behind them."""
    book = Notebook(None, "")
    made = dict[str, Tool]()
    for name in NAMES:
        reads = name in MEMORY_SEARCHES
        wanted = tool(effect="read" if reads else "idempotent", trusted=not reads, summary=_SUMMARIES.get(name, ""))
        made[name] = wanted(getattr(book, name))
    return made


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
    made = {name: structs.replace(one, function=getattr(book, name)) for name, one in described().items()}
    changeable = [label for label, access in blocks.items() if access in _CHANGING]
    writable = [label for label, access in blocks.items() if access == "write"]
    searched = [name for name, access in archives.items() if access != "none"]
    growing = [name for name, access in archives.items() if access in _CHANGING]
    for name, one in made.items():
        labels = changeable if name == "core_memory_append" else writable
        names = growing if name == "archival_memory_insert" else searched
        made[name] = with_names(with_names(one, "label", labels), "archive", names)
    return made


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
    return [name for name, given in wanted.items() if given]
