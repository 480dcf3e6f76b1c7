"""What an agent said and was told, across runs; how much of it is shown, and plain summaries of the rest."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant

Role: TypeAlias = Literal["user", "assistant", "summary"]


class Turn(Struct, frozen=True, omit_defaults=True):
    """One message. `number` is given by the store and only grows. A summary stands for all up to `upto`.

    `old` turns are behind a summary: they are found by searching, but no longer shown.
    """

    role: Role
    text: str
    number: int = 0
    when: Instant = 0.0
    run: str = ""
    task: str = ""
    tainted: bool = False
    upto: int = 0
    old: bool = False


CHARACTERS = 4
"""Of a token, about."""
MOST_TURNS = 60
KEPT_TURNS = 20
LEAST_KEPT = 2
"""Turns that stay when the others get behind a summary: a task and what came of it at least."""
SUMMARY_ROOM = 1000
_LONGEST_LINE = 400
_SHORTEST_LINE = 40
_SAID = {"user": "asked", "assistant": "answered", "summary": "before"}
_LEFT_OUT = re.compile(r"\(([0-9]{1,6}) earlier lines left out\)")


def fitting(turns: Sequence[Turn], room: int, frame: int = 0) -> list[Turn]:
    """What to show of these turns (the newest last) in so many tokens: the summary, then the newest that fit.

    A summary longer than half the room is shortened, and so is the newest turn where it does not fit. `frame` is how
    many characters each turn takes besides its text.
    """
    left = room * CHARACTERS
    if left <= 0:
        return []
    summary, said = _split(turns)
    first = [] if summary is None else [_shortened(summary, left // 2)]
    left -= sum(len(turn.text) for turn in first)
    shown: list[Turn] = []
    for turn in reversed(said):
        one = turn if shown else _shortened(turn, left - frame)
        if len(one.text) + frame > left:
            break
        shown.append(one)
        left -= len(one.text) + frame
    return [*first, *reversed(shown)]


def due(turns: Sequence[Turn], room: int) -> int:
    """The number of the turn up to which a summary is due; 0 if none is.

    It is due when there are more than MOST_TURNS, or half as much again as the room holds. What stays fills half the
    room, so that the next one is not due at once.
    """
    _, said = _split(turns)
    space = max(0, room) * CHARACTERS
    size = sum(len(turn.text) for turn in said)
    if len(said) <= MOST_TURNS and size * 2 <= space * 3:
        return 0
    kept = left = 0
    for turn in reversed(said):
        left += len(turn.text)
        if kept >= LEAST_KEPT and (kept >= KEPT_TURNS or left * 2 > space):
            break
        kept += 1
    return said[-kept - 1].number if kept < len(said) else 0


def chat_due(turns: Sequence[Turn], room: int, max_turns: int, frame: int) -> int:
    """The same for turns that are shown as a chat: all of them are shown until they do not fit any more."""
    _, said = _split(turns)
    space = max(0, room) * CHARACTERS
    size = sum(len(turn.text) + frame for turn in said)
    if len(said) <= max_turns and size <= space:
        return 0
    kept = left = 0
    for turn in reversed(said):
        left += len(turn.text) + frame
        if kept >= LEAST_KEPT and (kept * 2 >= max_turns or left * 2 > space):
            break
        kept += 1
    return said[-kept - 1].number if kept < len(said) else 0


def behind(turns: Sequence[Turn], upto: int) -> list[Turn]:
    """The turns a summary up to this one stands for, the former summary among them.

    A summary has a number of its own, which is higher than those of turns said after what it stands for.
    """
    return [turn for turn in turns if (turn.upto or turn.number) <= upto]


def summary_turn(turns: Sequence[Turn], text: str, when: Instant) -> Turn:
    """A summary that stands for these turns. It is tainted if one of them was."""
    upto = max(turn.upto or turn.number for turn in turns)
    return Turn("summary", text, when=when, tainted=any(turn.tainted for turn in turns), upto=upto)


def plain_summary(turns: Sequence[Turn], room: int = SUMMARY_ROOM) -> str:
    """A summary that no model is asked for: a line a turn, the oldest shortened most, in at most so many tokens.

    The former summary comes first, with up to half the room.
    """
    space = max(0, room) * CHARACTERS
    summary, said = _split(turns)
    former = summary.text.strip().split("\n") if summary is not None else []
    count = 0
    if former and (found := _LEFT_OUT.fullmatch(former[0])):
        count = int(found[1])
        former = former[1:]
    space -= len("(999999 earlier lines left out)\n")
    lines = [f"- {_SAID[turn.role]}: {' '.join(turn.text[: _LONGEST_LINE * 2].split())}" for turn in said]
    new = _bounded(lines, space - min(_size(former), space // 2), _LONGEST_LINE)
    old = _bounded(former, space - _size(new), SUMMARY_ROOM * CHARACTERS)
    count += len(former) - len(old) + len(lines) - len(new)
    told = [f"({min(count, 999_999)} earlier lines left out)"] if count else []
    return "\n".join((*told, *old, *new))[: max(0, room) * CHARACTERS]


def _split(turns: Sequence[Turn]) -> tuple[Turn | None, list[Turn]]:
    """The summary that reaches furthest, and what was said since."""
    summary = max((turn for turn in turns if turn.role == "summary"), key=lambda turn: turn.upto, default=None)
    reached = summary.upto if summary is not None else 0
    return summary, [turn for turn in turns if turn.role != "summary" and (turn.number > reached or not turn.number)]


def _shortened(turn: Turn, most: int) -> Turn:
    return replace(turn, text=_cut(turn.text, most)) if len(turn.text) > most else turn


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)].rstrip() + "…"[:most]


def _bounded(lines: Sequence[str], space: int, longest: int) -> list[str]:
    """The newest lines that fit at all; what space is left over goes to them by age, most to the newest."""
    count = 0
    for line in reversed(lines):
        needed = min(len(line), _SHORTEST_LINE) + 1
        if needed > space:
            break
        space -= needed
        count += 1
    made: list[str] = []
    for left in range(count, 0, -1):
        line = _cut(lines[left - count - 1], min(longest, _SHORTEST_LINE + space * 2 // (left + 1)))
        space -= max(0, len(line) - _SHORTEST_LINE)
        made.append(line)
    return made[::-1]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)
