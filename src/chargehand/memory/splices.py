"""What stands between two texts, kept small; and where a text occurs in another. What a change means is not here."""

from msgspec import Struct

MOST_PLACES = 1000
"""Occurrences that are counted: nobody reads on, and counting must end."""


class Splice(Struct, frozen=True):
    """`added` in place of `removed`, from `start` on."""

    start: int
    removed: str
    added: str


def splice(old: str, new: str) -> Splice:
    """What turns the old text into the new one: all but what both begin and end with."""
    start = _alike(old, new)
    end = _alike_at_end(old, new, min(len(old), len(new)) - start)
    return Splice(start, old[start : len(old) - end], new[start : len(new) - end])


def swapped(text: str, start: int, there: str, instead: str) -> str | None:
    """The text with one part in place of another; None if the other is not there."""
    if start < 0 or not text.startswith(there, start):
        return None
    return text[:start] + instead + text[start + len(there) :]


def places(text: str, part: str) -> list[int]:
    """Where a part begins, overlaps too; at most MOST_PLACES of them."""
    found: list[int] = []
    at = text.find(part)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def told(text: str, found: list[int]) -> str:
    """How many places there are, and on which lines: `3 times, on lines 1, 4 and 9`."""
    many = f"{len(found)} times" if len(found) < MOST_PLACES else f"{MOST_PLACES} times or more"
    lines = [str(number) for number in dict.fromkeys(text.count("\n", 0, at) + 1 for at in found[:10])]
    more = " and further down" if len(found) > 10 else ""
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


def _alike_at_end(old: str, new: str, most: int) -> int:
    same = 0
    end = most
    while same < end:
        half = (same + end + 1) // 2
        if old[len(old) - half : len(old) - same] == new[len(new) - half : len(new) - same]:
            same = half
        else:
            end = half - 1
    return same
