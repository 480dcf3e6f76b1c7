"""The tools for memory and for messages that a worker may name, and what each of them needs in the file.

What they do is not known here.
"""

from collections.abc import Sequence

from chargehand.agents.contacts import Contacts, lacking, missing_tool, objections
from chargehand.agents.mail import MAIL
from chargehand.config.findings import Path
from chargehand.config.parts import Parts
from chargehand.config.shapes import ContactsShape, WorkerShape

_BLOCKS = (
    "core_memory_append",
    "core_memory_replace",
    "memory_insert",
    "memory_replace",
    "memory_apply_patch",
    "memory_rethink",
)
_ARCHIVES = ("archival_memory_insert", "archival_memory_search")
_TALK = "conversation_search"
MEMORY_TOOLS = (*_BLOCKS, *_ARCHIVES, _TALK)
NAMEABLE = (*MEMORY_TOOLS, *MAIL)
"""What needs no entry among the tools of the file: it is made where the memory and the team are."""
ALIASES = {"archive.search": "archival_memory_search", "archive.insert": "archival_memory_insert"}


def named_tools(parts: Parts, path: Path, shape: WorkerShape) -> tuple[str, ...]:
    """The tools for memory and messages among a worker's, by their own names; what is missing for them is said."""
    named: dict[str, None] = {}
    for at, written in enumerate(shape.tools):
        name = ALIASES.get(written, written)
        if name not in NAMEABLE or written in parts.team.tools:
            continue
        if name in named:
            parts.say((*path, at), "is here twice; name it once")
        elif name in MAIL:
            if len(parts.team.workers) < 2:
                parts.say((*path, at), f"{name} has nobody to write to: there is no other worker", grave=False)
        elif problem := _missing(parts, name, shape):
            parts.say((*path, at), f"{written} {problem}")
        named[name] = None
    return tuple(named)


def _missing(parts: Parts, name: str, shape: WorkerShape) -> str:
    """What a memory tool needs and the file does not have."""
    if name == _TALK:
        return "" if shape.remembers else "searches what this worker remembers; add  remembers: true"
    kind, there = ("archives", _archives(parts)) if name in _ARCHIVES else ("blocks", _blocks(parts))
    if there:
        return ""
    return f"needs something to work on; write  memory:  and under it  {kind}:  with a name"


def contacts_of(parts: Parts, path: Path, name: str, shape: WorkerShape) -> Contacts | tuple[str, ...]:
    """Whom a worker may write to; what is missing for it, or means nobody, is said of its place."""
    written = shape.contacts
    made = Contacts(written.to, written.most) if isinstance(written, ContactsShape) else Contacts(written)
    sends = next(((at, tool) for at, tool in enumerate(shape.tools) if tool in MAIL), None)
    if sends is not None and not made.to:
        parts.say((*path, "tools", sends[0]), f"{sends[1]} needs contacts: {lacking()}")
    elif sends is None and made.to:
        parts.say((*path, "contacts"), f"has no tool to write to them; {missing_tool()}")
    tags = {one: () if isinstance(each, str) else each.tags for one, each in parts.team.workers.items()}
    place = (*path, "contacts", "to") if isinstance(written, ContactsShape) else (*path, "contacts")
    for at, problem in objections(made, name, tags):
        parts.say((*place, at), problem)
    return made if made.most is not None else tuple(made.to)


def given_tools(parts: Parts, shape: WorkerShape) -> Sequence[str]:
    """All that a worker of this team may have, named or not: rules may speak of them."""
    return (
        *(_BLOCKS if _blocks(parts) else ()),
        *(_ARCHIVES if _archives(parts) else ()),
        *((_TALK,) if shape.remembers else ()),
        *(name for name in MAIL if name in shape.tools),
    )


def _blocks(parts: Parts) -> bool:
    return parts.memory is not None and bool(parts.memory.blocks)


def _archives(parts: Parts) -> bool:
    return parts.memory is not None and bool(parts.memory.archives)
