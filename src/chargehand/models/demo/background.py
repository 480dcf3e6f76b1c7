"""A background worker: one line a turn, what was asked and how the answer begins, on the block it may write."""

import re
from typing import cast

import msgspec

from chargehand.models.demo.results import read_outcomes
from chargehand.models.demo.words import shorten
from chargehand.models.messages import Reply, Request, ToolCall
from chargehand.models.subject import Shown, Working

_APPEND = "core_memory_append"
_INSERT = "memory_insert"
_RETHINK = "memory_rethink"
_ARROW = " -> "
_LIMIT = re.compile(r"more than its limit of (\d+)")
_MARKUP = re.compile(r"^[\s#>*_-]+|[*_`#]+|\s*\[[^\[\]\n]{1,60}\]")


def note_turns(subject: Working, request: Request) -> Reply | None:
    """The next step of a worker that was given turns to note; None for any other task."""
    turns = [cast("dict[str, object]", given.value) for given in subject.inputs if isinstance(given.value, dict)]
    turns = [turn for turn in turns if turn.get("kind") == "turn"]
    if not turns or request.schema is not None:
        return None
    outcomes = [outcome for outcome in read_outcomes(request.messages) if outcome.call.name != "give_up"]
    written = [outcome for outcome in outcomes if not outcome.error]
    if written:
        return Reply(f"Noted: {written[-1].value}.")
    names = {tool.name for tool in request.tools}
    places = [block for block in subject.blocks if block.access == "write" and _RETHINK in names]
    places += [block for block in subject.blocks if block.access in {"write", "append"} and names & {_APPEND, _INSERT}]
    if not places or len(outcomes) > 2:
        reason = outcomes[-1].error if outcomes else "there is no block here that may be written to"
        return _call("give_up", {"reason": reason, "final": True})
    limit = next((int(match[1]) for outcome in outcomes if (match := _LIMIT.search(outcome.error))), 0)
    return _write(places[0], [_line(turn) for turn in turns], names, limit)


def _write(place: Shown, lines: list[str], names: set[str], limit: int) -> Reply:
    held = [line for line in place.text.splitlines() if line.strip()]
    new = [line for line in dict.fromkeys(lines) if line not in held]
    if not new:
        return Reply(f"Nothing new: what was asked is noted in {place.label} already.")
    if place.access == "write" and _RETHINK in names:
        asked = {line.partition(_ARROW)[0] for line in new}
        kept = [line for line in held if line.partition(_ARROW)[0] not in asked] + new
        while limit and len(kept) > 1 and sum(len(line) + 1 for line in kept) > 0.8 * limit:
            kept.pop(0)
        return _call(_RETHINK, {"label": place.label, "new_memory": "\n".join(kept)})
    key = "content" if _APPEND in names else "new_string"
    return _call(_APPEND if _APPEND in names else _INSERT, {"label": place.label, key: "\n".join(new)})


def _line(turn: dict[str, object]) -> str:
    answer = " ".join(_MARKUP.sub("", line) for line in str(turn.get("answer", "")).splitlines() if line.strip())
    first = re.split(r"(?<=[.?!])\s+(?=[A-Z\"'(])", " ".join(answer.split()), maxsplit=1)[0]
    asked = shorten(str(turn.get("request", "")).replace("->", "=>"), 120)
    return f"- {asked}{_ARROW}{shorten(first.replace('->', '=>'), 200) or '(no answer)'}"


def _call(name: str, arguments: dict[str, object]) -> Reply:
    call = ToolCall(id=f"note_{name}", name=name, arguments=msgspec.json.encode(arguments).decode())
    return Reply(calls=(call,), finish="tools")
