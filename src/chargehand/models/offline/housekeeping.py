"""A background worker without a language model: one line a turn, what was asked and how the answer begins.

What is noted already is not noted again; where a block is full and may be written anew, the oldest lines go.
"""

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from chargehand.models.messages import Message, Reply, ToolSpec
from chargehand.models.offline.material import Outcome, outcomes
from chargehand.models.offline.remembering.family import APPENDING, FAMILY, RETHINK
from chargehand.models.offline.remembering.notebook import calling, giving_up
from chargehand.models.subject import Shown, Working

_ARROW = " -> "
_ASKED, _ANSWERED = 120, 200  # characters of a line
_FULL = 0.8  # of a block's limit that is used again where it is written anew
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[^\W\d_a-z]|[\"'(])")
_LIMIT = re.compile(r"more than its limit of (\d+)")
_MARKED = re.compile(r"^[\s#>*_-]+|[*_`#]+|\s*\[[^\[\]\n]{1,60}\]")


class _Turn(Struct, frozen=True):
    request: str
    answer: str


def look_back(subject: Working, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """The next step: lines to write, or what was written."""
    past = [one for one in outcomes(messages) if one.call.name in FAMILY]
    written = [one for one in past if not one.error]
    if written:
        return Reply(f"Noted: {written[-1].value}.")
    turns = [turn for one in subject.inputs if (turn := _turn(one.value)) is not None]
    places = [one for one in subject.blocks if one.access in ("write", "append")]
    if not places:
        return giving_up("there is no block here that may be written to", final=True)
    names = {one.name for one in tools}
    wanted = list(dict.fromkeys(_line(one) for one in turns))
    for place in sorted(places, key=lambda one: one.access == "append"):
        tried = [one for one in past if f'"{place.label}"' in one.call.arguments]
        if step := _step(place, wanted, names, tried):
            return step
    return giving_up(past[-1].error if past else "there is no tool here to write with", final=True)


def _step(place: Shown, wanted: Sequence[str], names: set[str], tried: Sequence[Outcome]) -> Reply | None:
    """What to try next with a block; None where nothing is left to try."""
    there = [line for line in place.text.splitlines() if line.strip()]
    new = [line for line in wanted if line not in there]
    if not new:
        return Reply(f"Nothing new: what was asked is noted in {place.label} already.")
    asked = {_question(line) for line in new}
    stale = [line for line in there if _ARROW in line and _question(line) in asked]
    appends = next((one for one in APPENDING if one in names), "")
    anew = RETHINK in names and place.access == "write"
    if not tried and appends and not (stale and anew):
        key = "content" if appends == APPENDING[0] else "new_string"
        return calling([(f"note_{place.label}", appends, {"label": place.label, key: "\n".join(new)})])
    if not anew or any(one.call.name == RETHINK and not _full(one) for one in tried) or len(tried) > 2:
        return None
    kept = [line for line in there if line not in stale] + new
    room = next((limit for one in tried if (limit := _full(one))), 0)
    if room:
        kept = _newest(kept, int(room * _FULL))
    key = f"rewrite_{place.label}_{len(tried)}"
    return calling([(key, RETHINK, {"label": place.label, "new_memory": "\n".join(kept)})])


def _full(one: Outcome) -> int:
    """The limit of the block, where that is why a call was refused."""
    found = _LIMIT.search(one.error)
    return int(found[1]) if found else 0


def _newest(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.insert(0, line)
    return kept


# --- one turn, one line


def _turn(value: object) -> _Turn | None:
    if not isinstance(value, dict):
        return None
    said = cast("dict[str, object]", value)
    if said.get("kind") != "turn":
        return None
    return _Turn(str(said.get("request", "")), str(said.get("answer", "")))


def _line(turn: _Turn) -> str:
    answer = " ".join(_MARKED.sub("", line) for line in turn.answer.splitlines() if line.strip())
    first = _SENTENCE.split(" ".join(answer.split()), maxsplit=1)[0]
    # behind a dash nothing looks like the number of a line, which blocks refuse
    return f"- {_short(turn.request, _ASKED)}{_ARROW}{_short(first, _ANSWERED) or '(no answer)'}"


def _question(line: str) -> str:
    return line.partition(_ARROW)[0].casefold()


def _short(text: str, most: int) -> str:
    flat = " ".join(text.replace("->", "=>").split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"
