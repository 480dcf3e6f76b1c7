"""Steps that have to do with memory or messages, in words: what a worker reads, writes and looks for."""

from typing import cast

from msgspec import Raw

from chargehand.cli.console import short
from chargehand.cli.phrases import ROOM, counted
from chargehand.core.state import Progress
from chargehand.runtime.traced import calls_in
from chargehand.terms.value import decode_value

QUIET = ("memory", "remember", "summary")
"""Steps that nobody chose to make: told only where everything is told."""

_OURS = {
    "memory": "reads its memory",
    "remember": "keeps the task in its memory",
    "summary": "puts earlier tasks behind a summary",
}
_TOOLS = {
    "core_memory_append": "appends to {label}: {content}",
    "core_memory_replace": "replaces in {label}: {old_content} → {new_content}",
    "memory_insert": "inserts into {label}: {new_string}",
    "memory_replace": "replaces in {label}: {old_string} → {new_string}",
    "memory_apply_patch": "patches {label}",
    "memory_rethink": "rewrites {label}: {new_memory}",
    "archival_memory_insert": "adds to the archive {archive}: {content}",
    "archival_memory_search": "searches the archive {archive} for: {query}",
    "conversation_search": "searches its earlier tasks for: {query}",
    "send_message_to_agent_and_wait_for_reply": "writes to {worker}: {message}",
    "send_message_to_agents_matching_tags": "writes to all with {tags}: {message}",
}


def step_begun(name: str, number: int, progress: Progress | None) -> str:
    """What a step does, if it has to do with memory or messages; empty: it has not."""
    if name in _OURS:
        return _OURS[name]
    if name not in _TOOLS:
        return ""
    asked = _given(name, number, progress)
    given = {"tags": [*_list(asked.get("match_all")), *_list(asked.get("match_some"))], **asked}
    shape = _TOOLS[name] if asked.get("archive") else _TOOLS[name].replace(" {archive}", "")  # the only one there is
    said = shape.format_map(_Blanks({key: short(_plain(value), ROOM) for key, value in given.items()}))
    return short(" ".join(said.split()), 2 * ROOM)


def _plain(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


class _Blanks(dict[str, str]):
    """What a call leaves out has no words."""

    def __missing__(self, key: str) -> str:
        return ""


def _given(name: str, number: int, progress: Progress | None) -> dict[str, object]:
    """The arguments of a call: the model asked for it in its last reply before this step."""
    steps = (progress.steps if progress is not None else None) or {}
    before = [at for at, one in steps.items() if at < number and one.name == "model" and one.result is not None]
    if not before:
        return {}
    reply = steps[max(before)].result
    asked = [arguments for called, arguments in calls_in(decode_value(cast("Raw", reply))) if called == name]
    earlier = sum(one.name == name for at, one in steps.items() if max(before) < at < number)
    found = asked[earlier] if earlier < len(asked) else None
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def step_came_to(name: str, result: object) -> str:
    """What a step of our own came to; empty: say it as for any other."""
    if name == "memory":
        return looked_at(result)
    if name == "remember":
        return "it is kept" if result is True else "it was kept already"
    return "the summary is kept" if name == "summary" else ""


def looked_at(result: object) -> str:
    """What a look at memory brought that was not before the worker's eyes already."""
    found = cast("dict[str, object]", result) if isinstance(result, dict) else {}
    blocks = [cast("dict[str, object]", one) for one in _list(found.get("blocks")) if isinstance(one, dict)]
    names = [f"{one.get('label')} (version {one.get('version', 1)})" for one in blocks]
    said = [f"is shown {', '.join(names)}"] if names else []
    said += [f"{', '.join(map(str, gone))} is gone"] if (gone := _list(found.get("gone"))) else []
    said += [f"has {counted(len(turns), 'earlier turn')} before it"] if (turns := _list(found.get("turns"))) else []
    return short("; ".join(said) or "its memory holds nothing new", 2 * ROOM)


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
