"""Edits of a text, and what each makes of it. Who may edit, and how long a text may get, is `blocks`' business."""

import re
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import Invalid, Refused
from chargehand.memory.patch import patched
from chargehand.memory.splices import places, told

_NUMBERED = re.compile(r"^[ \t]*\d+→", re.MULTILINE)
_HEADER = re.compile(r"\s*\*{3}\s*(?:Begin Patch|(?:Add|Delete|Update) Block)\b")


class Append(Struct, frozen=True, tag="append"):
    """A new line at the end."""

    text: str


class Insert(Struct, frozen=True, tag="insert"):
    """Before this line, counted from 0; -1 is the end."""

    text: str
    line: int = -1


class Replace(Struct, frozen=True, tag="replace"):
    """`old` must occur exactly once."""

    old: str
    new: str


class ReplaceAll(Struct, frozen=True, tag="replace_all"):
    old: str
    new: str


class Patch(Struct, frozen=True, tag="patch"):
    """Hunks of a unified diff without line numbers; each one's context must match exactly once."""

    patch: str


class Rethink(Struct, frozen=True, tag="rethink"):
    """The whole text anew. It must name the version it was made from."""

    value: str


class Restore(Struct, frozen=True, tag="restore"):
    version: int


class Undo(Struct, frozen=True, tag="undo"):
    pass


class Redo(Struct, frozen=True, tag="redo"):
    pass


Written: TypeAlias = Append | Insert | Replace | ReplaceAll | Patch | Rethink
"""Edits that bring text of their own."""


def applied(edit: Written, value: str, limit: int) -> str:
    """The text after an edit. Refused if the edit does not fit the text, or the text would not fit the limit."""
    match edit:
        case Append(text):
            made = _appended(value, text)
        case Insert(text, line):
            made = _inserted(value, text, line)
        case Replace(old, new):
            made = _replaced(value, old, new)
        case ReplaceAll(old, new):
            made = _all_replaced(value, old, new, limit)
        case Patch(patch):
            made = patched(value, patch)
        case Rethink(anew):
            made = anew
    check_size(len(made), len(value), limit)
    return made


def at_end(edit: Written, value: str) -> bool:
    """Whether an edit only adds a line at the end."""
    return isinstance(edit, Append) or (isinstance(edit, Insert) and edit.line in (-1, _lines(value)))


def check_size(size: int, before: int, limit: int) -> None:
    """A text that is too long already may still become shorter."""
    if size > limit and size >= before:
        raise Refused(
            f"it would hold {size} characters, {size - limit} more than its limit of {limit} (now {before}); "
            "shorten it first, or write less"
        )


def check_text(text: str) -> None:
    """Invalid for what no store and no JSON can carry."""
    if "\0" in text:
        raise Invalid("the text has a NUL character in it; take it out")
    if not text.isascii() and text.encode(errors="ignore").decode() != text:
        raise Invalid("the text has half a surrogate pair in it; take it out")


def check_written(edit: Written) -> None:
    """What models copy by mistake from what they were shown is refused, with a hint."""
    for text in texts(edit):
        if _HEADER.match(text):
            raise Refused(
                "the text begins with the header of a patch of several blocks; name the block by its label, and send "
                "only the text (for a patch: lines that begin with a blank, - or +)"
            )
        if found := _NUMBERED.search(text):
            raise Refused(
                f"the text has the number of a line in it ({found[0].strip()!r}), as tools show them; send it without"
            )


def texts(edit: Written) -> tuple[str, ...]:
    match edit:
        case Append(text) | Insert(text):
            return (text,)
        case Replace(old, new) | ReplaceAll(old, new):
            return (old, new)
        case Patch(patch):
            return (patch,)
        case Rethink(value):
            return (value,)


def _appended(value: str, text: str) -> str:
    return f"{value}\n{text}" if value and not value.endswith("\n") else value + text


def _lines(value: str) -> int:
    """How many lines there are; an end of line at the very end begins no new one."""
    return value.count("\n") + (not value.endswith("\n")) if value else 0


def _inserted(value: str, text: str, line: int) -> str:
    lines = _lines(value)
    if not -1 <= line <= lines:
        raise Refused(f"there is no line {line} to insert before; give 0 (the top) to {lines}, or -1 (the end)")
    if line in (-1, lines):
        return _appended(value, text)
    start = 0
    for _ in range(line):
        start = value.index("\n", start) + 1
    return value[:start] + text + ("" if text.endswith("\n") else "\n") + value[start:]


def _replaced(value: str, old: str, new: str) -> str:
    found = _found(value, old)
    if len(found) > 1:
        raise Refused(f"{_shown(old)} occurs {told(value, found)}; give more of the text around it, so that it is one")
    return value[: found[0]] + new + value[found[0] + len(old) :]


def _all_replaced(value: str, old: str, new: str, limit: int) -> str:
    _found(value, old)
    # Before it is made: many long replacements could fill the memory.
    check_size(len(value) + value.count(old) * (len(new) - len(old)), len(value), limit)
    return value.replace(old, new)


def _found(value: str, old: str) -> list[int]:
    if not old:
        raise Refused("there is no text to replace; give the text that is there now")
    found = places(value, old)
    if found:
        return found
    near = " ".join(old.casefold().split()) in " ".join(value.casefold().split())
    hint = "it does with other blanks, line ends or capitals" if near else "read what is there now"
    raise Refused(f"{_shown(old)} does not occur; text must match exactly: {hint}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
