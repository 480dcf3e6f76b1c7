"""Edits of a text, patches among them, and what each makes of it. Who may edit is decided in `blocks`."""

import re
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import Invalid, Refused

MOST_PLACES = 1000
"""Occurrences that are counted: more are not shown, and counting must end."""


class Splice(Struct, frozen=True):
    """`added` in place of `removed`, from `start` on."""

    start: int
    removed: str
    added: str


def splice(old: str, new: str) -> Splice:
    """What turns the old text into the new one: all but what both begin and end with."""
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    return Splice(start, old[start : len(old) - end], new[start : len(new) - end])


def swapped(text: str, start: int, there: str, instead: str) -> str | None:
    """The text with one part in place of another; None if the other is not there."""
    if start < 0 or not text.startswith(there, start):
        return None
    return text[:start] + instead + text[start + len(there) :]


def places(text: str, part: str) -> list[int]:
    """Where a part begins, overlaps too; at most MOST_PLACES of them."""
    starts: list[int] = []
    at = text.find(part)
    while at >= 0 and len(starts) < MOST_PLACES:
        starts.append(at)
        at = text.find(part, at + 1)
    return starts


def describe_places(text: str, starts: list[int]) -> str:
    """How many places there are, and on which lines: `3 times, on lines 1, 4 and 9`."""
    many = f"{len(starts)} times" if len(starts) < MOST_PLACES else f"{MOST_PLACES} times or more"
    lines = [str(number) for number in dict.fromkeys(text.count("\n", 0, at) + 1 for at in starts[:10])]
    more = " and further down" if len(starts) > 10 else ""
    if len(lines) == 1:
        return f"{many}, on line {lines[0]}{more}"
    return f"{many}, on lines {', '.join(lines)}{more}"


# Slices are compared as a whole: characters one by one would take seconds for a long text.


def _alike(old: str, new: str) -> int:
    """How many characters both begin with."""
    same = 0
    end = min(len(old), len(new))
    while same < end:
        half = (same + end + 1) // 2
        if old[same:half] == new[same:half]:
            same = half
        else:
            end = half - 1
    return same


MOST_HUNKS = 1000
_RULE = re.compile(r"@@.*")


class Hunk(Struct, frozen=True):
    """Lines that are there, and those that shall be there instead."""

    old: tuple[str, ...]
    new: tuple[str, ...]


def patched(text: str, patch: str) -> str:
    """The text after every hunk, in order. Refused says which hunk does not fit, and why; then none is applied."""
    hunks = read_patch(patch)
    if len(hunks) > MOST_HUNKS:
        raise Refused(f"the patch has {len(hunks)} hunks; send at most {MOST_HUNKS} at a time")
    for number, hunk in enumerate(hunks, 1):
        text = _applied(text, hunk, number)
    return text


def read_patch(patch: str) -> list[Hunk]:
    """The hunks of a patch, separated by @@ lines."""
    lines = patch.split("\n")
    if lines[-1] == "":
        lines.pop()
    started = _start(lines)
    groups: list[list[str]] = [[]]
    for number, line in enumerate(lines[started:], started + 1):
        if _RULE.fullmatch(line):
            groups.append([])
        elif line and line[0] not in " -+\\":
            raise Refused(
                f"line {number} of the patch begins with {line[0]!r}; begin lines that stay with a blank, lines to "
                "remove with -, lines to add with +, and separate hunks with @@"
            )
        elif not line.startswith("\\"):  # "\ No newline at end of file" is about files
            groups[-1].append(line)
    hunks = [hunk for group in groups if (hunk := _hunk(group)).old or hunk.new]
    if not any(hunk.old != hunk.new for hunk in hunks):
        raise Refused("the patch changes nothing; begin lines to remove with - and lines to add with +")
    return hunks


def _start(lines: list[str]) -> int:
    """Behind the two lines that name files, where there are such: they would read as a removal and an addition."""
    at = next((n for n, line in enumerate(lines) if line), 0)
    has_header = len(lines) > at + 2 and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")
    return at + 2 if has_header and _RULE.fullmatch(lines[at + 2]) else at


def _hunk(lines: list[str]) -> Hunk:
    """An empty line is an empty line of context: writers drop the blank before it."""
    return Hunk(
        tuple(line[1:] for line in lines if not line.startswith("+")),
        tuple(line[1:] for line in lines if not line.startswith("-")),
    )


def _applied(text: str, hunk: Hunk, number: int) -> str:
    new = "\n".join(hunk.new)
    if not hunk.old:
        if text:
            raise Refused(f"hunk {number} has no line of context; begin it with a line that is there (after a blank)")
        return new
    # Whole lines only: both texts are given an end of line on either side.
    framed = f"\n{text}\n"
    old = "\n".join(("", *hunk.old, ""))
    starts = places(framed, old)
    if not starts:
        raise Refused(f"hunk {number} does not fit: {_missing(text, hunk)}")
    if len(starts) > 1:
        raise Refused(
            f"hunk {number} fits {describe_places(text, starts)}; add lines of context before or after, "
            "so that it fits once"
        )
    end = starts[0] + len(old)
    before = framed[1 : starts[0] + 1]
    after = framed[end:-1]
    if hunk.new:
        return before + new + framed[end - 1 : -1]
    return before + after if after or end < len(framed) else before.removesuffix("\n")


def _missing(text: str, hunk: Hunk) -> str:
    there = set(text.split("\n"))
    lost = next((line for line in hunk.old if line not in there), None)
    if lost is None:
        return "its lines are all there, but not one after the other"
    return f"there is no line {lost[:200]!r}; lines must match exactly, blanks too"


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
            edited = _appended(value, text)
        case Insert(text, line):
            edited = _inserted(value, text, line)
        case Replace(old, new):
            edited = _replaced(value, old, new)
        case ReplaceAll(old, new):
            edited = _all_replaced(value, old, new, limit)
        case Patch(patch):
            edited = patched(value, patch)
        case Rethink(anew):
            edited = anew
    check_size(len(edited), len(value), limit)
    return edited


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
        if match := _NUMBERED.search(text):
            raise Refused(
                f"the text has the number of a line in it ({match[0].strip()!r}), as tools show them; send it without"
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
    starts = _find_old_text(value, old)
    if len(starts) > 1:
        raise Refused(
            f"{_quote(old)} occurs {describe_places(value, starts)}; give more of the text around it, so that it is one"
        )
    return value[: starts[0]] + new + value[starts[0] + len(old) :]


def _all_replaced(value: str, old: str, new: str, limit: int) -> str:
    _find_old_text(value, old)
    # Before it is made: many long replacements could fill the memory.
    check_size(len(value) + value.count(old) * (len(new) - len(old)), len(value), limit)
    return value.replace(old, new)


def _find_old_text(value: str, old: str) -> list[int]:
    if not old:
        raise Refused("there is no text to replace; give the text that is there now")
    starts = places(value, old)
    if starts:
        return starts
    near = " ".join(old.casefold().split()) in " ".join(value.casefold().split())
    hint = "it does with other blanks, line ends or capitals" if near else "read what is there now"
    raise Refused(f"{_quote(old)} does not occur; text must match exactly: {hint}")


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
