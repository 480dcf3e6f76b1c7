"""Patches: hunks of a unified diff, found by their context instead of line numbers. Limits are not its business."""

import re

from msgspec import Struct

from chargehand.errors import Refused
from chargehand.memory.splices import places, told

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
    found = [hunk for group in groups if (hunk := _hunk(group)).old or hunk.new]
    if not any(hunk.old != hunk.new for hunk in found):
        raise Refused("the patch changes nothing; begin lines to remove with - and lines to add with +")
    return found


def _start(lines: list[str]) -> int:
    """Behind the two lines that name files, where there are such: they would read as a removal and an addition."""
    at = next((n for n, line in enumerate(lines) if line), 0)
    named = len(lines) > at + 2 and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")
    return at + 2 if named and _RULE.fullmatch(lines[at + 2]) else at


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
    found = places(framed, old)
    if not found:
        raise Refused(f"hunk {number} does not fit: {_missing(text, hunk)}")
    if len(found) > 1:
        raise Refused(
            f"hunk {number} fits {told(text, found)}; add lines of context before or after, so that it fits once"
        )
    end = found[0] + len(old)
    before = framed[1 : found[0] + 1]
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
