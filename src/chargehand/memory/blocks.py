"""Blocks: small labelled texts that are always in context, shared and versioned; and what may be done to them.

Pure: a store reads a block, calls `edited` and writes what comes back, all in one transaction.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from chargehand.engine.declared import Declared
from chargehand.engine.policy import Instant
from chargehand.errors import Conflict, Corrupt, Invalid, Refused
from chargehand.memory.edits import (
    Append,
    Insert,
    Patch,
    Redo,
    Replace,
    ReplaceAll,
    Restore,
    Rethink,
    Undo,
    Written,
    applied,
    at_end,
    check_size,
    check_text,
    check_written,
    splice,
    swapped,
    texts,
)

Kind: TypeAlias = Literal["person", "team", "supervisor", "worker"]


class Origin(Struct, frozen=True, omit_defaults=True):
    """`team` is what a team's declaration says. `key` is the same however often a call is repeated after a crash.

    `source` is where the text itself was found (a file, an address). `tainted` says that its author had seen
    text from outside: what a tool returned, what another worker wrote, a tainted block or passage. `mark` tells
    runs of the same name apart, which are in journals of their own. `scope` is that of the run: for whom it was.
    """

    by: Kind = "person"
    name: str = ""
    run: str = ""
    task: str = ""
    attempt: int = 0
    key: str = ""
    source: str = ""
    tainted: bool = False
    mark: str = ""
    scope: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All of it that is text."""
        return self.name, self.run, self.task, self.key, self.source, self.mark, self.scope


PERSON = Origin()
TEAM = Origin("team")


Access: TypeAlias = Literal["none", "read", "append", "write"]
LIMIT = 20_000
"""Characters a block may hold, unless it says otherwise."""
_PEOPLE: frozenset[Kind] = frozenset({"person", "team"})


class Grant(Declared, frozen=True, omit_defaults=True):
    """What a worker may do with a block."""

    access: Access = "none"
    """What it may do."""
    tainted: bool = False
    """Also with text from outside, where the block is `trusted` and gives instructions."""


NO_GRANT = Grant()
ANYTHING = Grant("write", tainted=True)


class Block(Declared, frozen=True):
    """`share` is what every member of a team may do with it, unless told otherwise.

    A `trusted` block gives instructions (a persona, guidelines): text from outside gets in only with a grant for it.
    `tainted` says that the text it holds now came, in part, from outside; `untainted` is then what it held before, and
    what people have changed of that since: these lines go on giving instructions. `version` counts changes; `at` is the
    version whose text it holds (undo moves it back), `redo` the versions undone, the last one last.
    """

    label: str
    value: str = ""
    description: str = ""
    limit: int = LIMIT
    read_only: bool = False
    trusted: bool = False
    share: Access = "read"
    tags: tuple[str, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    id: str = ""
    tainted: bool = False
    untainted: str = ""
    version: int = 1
    at: int = 1
    redo: tuple[int, ...] = ()
    created: Instant = 0.0
    updated: Instant = 0.0

    @property
    def instruction(self) -> str:
        """What of it gives instructions: nothing from outside is in it."""
        if not self.trusted:
            return ""
        return self.untainted if self.tainted else self.value


Edit: TypeAlias = Append | Insert | Replace | ReplaceAll | Patch | Rethink | Restore | Undo | Redo


class Change(Struct, frozen=True, omit_defaults=True):
    """One version in a block's history, kept as what it changed: `added` in place of `removed`, from `start` on.

    `parent` is the version whose text it was made from; `at` the version whose text it left the block with (itself,
    unless it undid or redid something); `tainted` what the block was afterwards.
    """

    version: int
    kind: str
    origin: Origin
    when: Instant
    start: int = 0
    removed: str = ""
    added: str = ""
    parent: int = 0
    at: int = 0
    tainted: bool = False


Past: TypeAlias = Callable[[int], Change]
"""The change that made a version; asked for versions 1 to the present one."""


def edited(
    block: Block, edit: Edit, grant: Grant, origin: Origin, now: Instant, *, expect: int | None, past: Past
) -> tuple[Block, Change]:
    """The block after an edit, and the change to keep.

    `expect` is the version the caller has seen. Conflict if it is another by now; needed for whole values unless the
    origin is a person's or the team's. Refused for what the grant, the block's flags or its limit do not allow, and
    for edits that do not fit the text: the message says what would.

    An edit that changes nothing makes no version: the block comes back as it was, with a change of the same version,
    and nothing is to be kept.
    """
    check_text("".join(origin.texts))
    _check_access(block, edit, grant, origin, expect)
    if expect is not None and expect != block.version:
        raise Conflict(
            f"block {block.label!r} is at version {block.version} by now, not {expect}; read it and decide again",
            block.version,
        )
    try:
        after = _after(block, edit, origin, past)
    except (Invalid, Refused) as error:
        raise type(error)(f"block {block.label!r}: {error}") from error
    _check_taint(block, after, grant, origin)
    kind = str(edit.__struct_config__.tag)
    if after.at == block.version + 1 and after.value == block.value and after.tainted == block.tainted:
        return block, Change(block.version, kind, origin, now, parent=block.at, at=block.at, tainted=block.tainted)
    edited = splice(block.value, after.value)
    change = Change(
        version=block.version + 1,
        kind=kind,
        origin=origin,
        when=now,
        start=edited.start,
        removed=edited.removed,
        added=edited.added,
        parent=block.at,
        at=after.at,
        tainted=after.tainted,
    )
    return replace(
        block,
        value=after.value,
        tainted=after.tainted,
        untainted=_untainted(block, after, edit, origin),
        version=change.version,
        at=after.at,
        redo=after.redo,
        updated=now,
    ), change


def created(block: Block, origin: Origin) -> Change:
    """The first version of a block. The block is kept with `tainted` as the change has it."""
    if not block.label.strip() or not block.label.isprintable():
        raise Invalid(f"{block.label!r} cannot be the label of a block; give it a word or a few on one line")
    if block.limit < 1 or len(block.value) > block.limit:
        raise Invalid(
            f"block {block.label!r} has {len(block.value)} characters and a limit of {block.limit}; "
            "shorten the text or raise the limit"
        )
    try:
        check_text("".join((block.value, *origin.texts)))
    except Invalid as error:
        raise Invalid(f"block {block.label!r}: {error}") from error
    tainted = bool(block.value) and (block.tainted or origin.tainted)
    return Change(1, "created", origin, block.created, added=block.value, at=1, tainted=tainted)


def value_at(block: Block, version: int, past: Past) -> str:
    """The text a block had in a version, walked back from the present one."""
    if not 1 <= version <= block.version:
        raise Refused(f"block {block.label!r} has no version {version}; it has 1 to {block.version}")
    text = block.value
    for number in range(block.version, version, -1):
        text = _undone(text, past(number))
    return text


class _After(Struct, frozen=True):
    """What an edit makes of a block."""

    value: str
    tainted: bool
    at: int
    redo: tuple[int, ...] = ()


def _after(block: Block, edit: Edit, origin: Origin, past: Past) -> _After:
    match edit:
        case Undo():
            last = past(block.at)
            if not last.parent:
                raise Refused("there is nothing to undo; this is the text it began with")
            back = _undone(block.value, last)
            after = _After(back, past(last.parent).tainted, last.parent, (*block.redo, block.at))
        case Redo():
            if not block.redo:
                raise Refused("there is nothing to redo; nothing was undone since the last change")
            again = past(block.redo[-1])
            after = _After(_redone(block.value, again), again.tainted, again.version, block.redo[:-1])
        case Restore(version):
            value = value_at(block, version, past)
            after = _After(value, past(version).tainted, block.version + 1)
        case _:
            return _written(block, edit, origin)
    check_size(len(after.value), len(block.value), block.limit)
    return after


def _written(block: Block, edit: Written, origin: Origin) -> _After:
    for text in texts(edit):
        check_text(text)
    if origin.by not in _PEOPLE:
        check_written(edit)
    value = applied(edit, block.value, block.limit)
    # A person who writes the whole text anew answers for all of it.
    vouched = isinstance(edit, Rethink) and origin.by in _PEOPLE and not origin.tainted
    tainted = not vouched and (block.tainted or (origin.tainted and value != block.value))
    return _After(value, tainted, block.version + 1)


def _untainted(block: Block, after: _After, edit: Edit, origin: Origin) -> str:
    """The untainted part of a tainted block; empty for a block that is not tainted.

    A person's edit is made there, too, as far as it fits: one that is about text from outside does not.
    """
    if not after.tainted:
        return ""
    if not block.tainted:
        return block.value
    if origin.by not in _PEOPLE or origin.tainted or isinstance(edit, Restore | Undo | Redo):
        return block.untainted
    try:
        return applied(edit, block.untainted, block.limit)
    except (Invalid, Refused):
        return block.untainted


def _undone(text: str, change: Change) -> str:
    """The text before a change that led to this one."""
    before = swapped(text, change.start, change.added, change.removed)
    if before is None:
        raise Corrupt(f"version {change.version} of a block does not fit the text it is said to have made")
    return before


def _redone(text: str, change: Change) -> str:
    after = swapped(text, change.start, change.removed, change.added)
    if after is None:
        raise Corrupt(f"version {change.version} of a block does not fit the text it is said to have changed")
    return after


def _check_access(block: Block, edit: Edit, grant: Grant, origin: Origin, expect: int | None) -> None:
    if origin.by in _PEOPLE:
        return
    who = f"{origin.by} {origin.name!r}" if origin.name else f"this {origin.by}"
    if block.read_only:
        raise Refused(f"block {block.label!r} is read-only; only a person can change it")
    if grant.access not in ("append", "write"):
        may = "only read" if grant.access == "read" else "not use"
        raise Refused(f"{who} may {may} block {block.label!r}; to change it, it needs a grant of append or write")
    if grant.access == "append" and not (isinstance(edit, Append | Insert) and at_end(edit, block.value)):
        raise Refused(f"{who} may only add lines at the end of block {block.label!r}; append, or ask for write")
    if isinstance(edit, Rethink) and expect is None:
        raise Refused(
            f"block {block.label!r} is at version {block.version}; to write its whole text anew, say from which "
            "version, so that no change is lost"
        )


def _check_taint(block: Block, after: _After, grant: Grant, origin: Origin) -> None:
    """Going back to a text from outside brings it in again."""
    if block.trusted and not grant.tainted and (origin.tainted or (after.tainted and not block.tainted)):
        raise Refused(
            f"block {block.label!r} gives instructions, and this text came in part from outside (a tool, another "
            "worker, a tainted block or passage); a person can write it, or allow it with a grant that says tainted"
        )
