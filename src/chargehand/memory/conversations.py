"""Conversations: turns, which of them are shown, and summaries that stand for the others."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.plan import digest
from chargehand.engine.policy import Instant
from chargehand.text.left_out import cut_text

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


SCOPE_LABELS = ("session", "user")
"""The labels of a run that keep remembered turns apart."""


def scope_of(labels: Mapping[str, str], *, asker: str = "", thread: str = "") -> str:
    """Return the scope of a run: runs with equal scopes share what workers remember, and no others do.

    Only a digest is kept, so that the text of a label stands in no id and redaction makes no two scopes equal.

    Args:
        labels: Those of the run. `session` and `user` make the scope; a session belongs to its user if both are given.
        asker: The key of the caller, for runs without these labels; empty: there is none.
        thread: The id of a conversation in the protocol of the caller; it belongs to the asker.
    """
    parts = {name: labels[name] for name in SCOPE_LABELS if labels.get(name)}
    parts = parts or {name: value for name, value in (("thread", thread), ("key", asker)) if value}
    if not parts:
        return ""
    return f"{next(iter(parts))}-{digest(*(text.encode(errors='replace') for part in parts.items() for text in part))}"


MOST_TURNS = 60
KEPT_TURNS = 20
LEAST_KEPT = 2
"""Turns that stay when the others get behind a summary: a task and what came of it at least."""
LONGEST_SUMMARY = 4_000
"""Characters of a summary that is made without a model."""
_LONGEST_LINE = 400
_SHORTEST_LINE = 40
_SAID = {"user": "asked", "assistant": "answered", "summary": "before"}
_LEFT_OUT = "(earlier lines left out)"


def fitting(turns: Sequence[Turn], space: int, frame: int = 0) -> list[Turn]:
    """What to show of these turns (the newest last) in so many characters: the summary, then the newest that fit.

    A summary longer than half the space is shortened, and so is the newest turn where it does not fit. `frame` is how
    many characters each turn takes besides its text.
    """
    remaining = space
    if remaining <= 0:
        return []
    summary, recent = split_summary(turns)
    first = [] if summary is None else [_shortened(summary, remaining // 2)]
    remaining -= sum(len(turn.text) for turn in first)
    fitting: list[Turn] = []
    for turn in reversed(recent):
        fitted = turn if fitting else _shortened(turn, remaining - frame)
        if len(fitted.text) + frame > remaining:
            break
        fitting.append(fitted)
        remaining -= len(fitted.text) + frame
    return [*first, *reversed(fitting)]


def due(turns: Sequence[Turn], space: int) -> int:
    """The number of the turn up to which a summary is due; 0 if none is.

    It is due when there are more than MOST_TURNS, or half as much again as the space, in characters, holds. What
    stays fills half of it, so that the next one is not due at once.
    """
    _, recent = split_summary(turns)
    space = max(0, space)
    if len(recent) <= MOST_TURNS and 2 * _size(recent, 0) <= 3 * space:
        return 0
    return _last_behind(recent, space // 2, KEPT_TURNS, 0)


def chat_due(turns: Sequence[Turn], space: int, max_turns: int, frame: int) -> int:
    """The same for turns that are shown as a chat: all of them are shown until they do not fit any more."""
    _, recent = split_summary(turns)
    space = max(0, space)
    if len(recent) <= max_turns and _size(recent, frame) <= space:
        return 0
    return _last_behind(recent, space // 2, -(-max_turns // 2), frame)


def _size(turns: Sequence[Turn], frame: int) -> int:
    return sum(len(turn.text) + frame for turn in turns)


def _last_behind(recent: Sequence[Turn], space: int, max_kept: int, frame: int) -> int:
    """The last turn that gets behind a summary if the newest that fit the space stay; 0 if all of them stay."""
    count = used = 0
    for turn in reversed(recent):
        used += len(turn.text) + frame
        if count >= LEAST_KEPT and (count >= max_kept or used > space):
            break
        count += 1
    return recent[-count - 1].number if count < len(recent) else 0


def behind(turns: Sequence[Turn], upto: int) -> list[Turn]:
    """The turns a summary up to this one stands for, the former summary among them.

    A summary has a number of its own, which is higher than those of turns said after what it stands for.
    """
    return [turn for turn in turns if (turn.upto or turn.number) <= upto]


def summary_turn(turns: Sequence[Turn], text: str, when: Instant) -> Turn:
    """A summary that stands for these turns. It is tainted if one of them was."""
    upto = max(turn.upto or turn.number for turn in turns)
    return Turn("summary", text, when=when, tainted=any(turn.tainted for turn in turns), upto=upto)


def plain_summary(turns: Sequence[Turn], space: int = LONGEST_SUMMARY) -> str:
    """A summary without a model, in so many characters: half of it the former one, then a line a turn, the newest."""
    space = max(0, space)
    summary, recent = split_summary(turns)
    former = "" if summary is None else cut_text(summary.text.strip(), space // 2)
    lines = [f"- {_SAID[turn.role]}: {' '.join(turn.text[: _LONGEST_LINE * 2].split())}" for turn in recent]
    free = space - len(former) - len(_LEFT_OUT) - 2
    longest = min(_LONGEST_LINE, max(_SHORTEST_LINE, free // max(1, len(lines)) - 1))
    newest: list[str] = []
    for line in reversed(lines):
        shortened = _cut(line, longest)
        free -= len(shortened) + 1
        if free < 0:
            break
        newest.append(shortened)
    left_out = _LEFT_OUT if len(newest) < len(lines) else ""
    return "\n".join(part for part in (former, left_out, *reversed(newest)) if part)[:space]


def split_summary(turns: Sequence[Turn]) -> tuple[Turn | None, list[Turn]]:
    """The summary that reaches furthest, and what was said since."""
    summary = max((turn for turn in turns if turn.role == "summary"), key=lambda turn: turn.upto, default=None)
    reached = summary.upto if summary is not None else 0
    return summary, [turn for turn in turns if turn.role != "summary" and (turn.number > reached or not turn.number)]


def _shortened(turn: Turn, most: int) -> Turn:
    return replace(turn, text=cut_text(turn.text, most)) if len(turn.text) > most else turn


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)].rstrip() + "…"[:most]
