"""The tools of memory: a family of their own. They are never chosen by likeness, only when memory is asked for."""

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec import structs

from chargehand.models.messages import ToolSpec
from chargehand.models.subject import Skill, WorkerCard

INSERT, SEARCH, CONVERSATION = "archival_memory_insert", "archival_memory_search", "conversation_search"
APPENDING = ("core_memory_append", "memory_insert")
REPLACING = ("memory_replace", "core_memory_replace")
RETHINK, PATCH = "memory_rethink", "memory_apply_patch"
FAMILY = frozenset((INSERT, SEARCH, CONVERSATION, *APPENDING, *REPLACING, RETHINK, PATCH))
_ARCHIVE = re.compile(r"\barchives?\b", re.IGNORECASE)
_Shown = TypeVar("_Shown", Skill, ToolSpec)


class _Told(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


def ordinary(tools: Iterable[_Shown]) -> list[_Shown]:
    """The tools without those of memory."""
    return [one for one in tools if one.name not in FAMILY]


def remembered(tools: Iterable[_Shown]) -> dict[str, _Shown]:
    """The tools of memory among these, by name."""
    return {one.name: one for one in tools if one.name in FAMILY}


def bare(card: WorkerCard) -> WorkerCard:
    """A card as if there were no memory: all members of a team may have the same, and it tells them not apart."""
    kept = ordinary(card.skills)
    return card if len(kept) == len(card.skills) else structs.replace(card, skills=tuple(kept))


def speaks_of_archives(tool: _Told) -> bool:
    """Whether some other tool searches what is called an archive: then that one may be meant."""
    return _ARCHIVE.search(f"{tool.name.replace('_', ' ')} {tool.description}") is not None
