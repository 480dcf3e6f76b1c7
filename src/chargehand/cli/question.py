"""What a person is asked, shown whole: the call with each of its arguments, who wants it, and why it is asked.

Arguments are text that a model wrote. They stand in quotes, with everything escaped that could steer a terminal, so
that none of them can pass for a line of ours or hide another.
"""

import json
import textwrap
from collections.abc import Iterator

from chargehand.cli.console import clean, clean_json
from chargehand.terms import events as ev
from chargehand.terms.failure import Question

_INDENT = "  "
_NARROWEST = 40
_BECAUSE = {
    "repeated": "asked because this attempt has made the same call already",
    "tainted": "asked because this worker has seen text from outside",
}


def question_lines(asked: ev.InputRequested, columns: int) -> list[str]:
    """All there is to say about a question, within a width. A plan of this run itself is shown elsewhere."""
    question = asked.question
    if question is None:
        return list(_wrapped(clean_json(json.dumps(asked.text, ensure_ascii=False)), columns, "")) if asked.text else []
    lines = list(_wrapped(_who(asked, question), columns, ""))
    for task in question.plan:
        lines += _wrapped(clean(task), columns, _INDENT)
    if question.because in _BECAUSE:
        lines += _wrapped(_BECAUSE[question.because], columns, _INDENT)
    for name, value in question.arguments.items():
        lines += _field(name, value, columns)
    return lines


def _who(asked: ev.InputRequested, question: Question) -> str:
    what = "the plan of a team" if asked.what == "plan" else clean(question.tool) or "a call"
    wanted = f", wanted by {clean(' > '.join(question.workers))}" if question.workers else ""
    inside = f" in run {clean(question.run)}" if question.run else ""
    task = f", task {clean(question.task)}" if question.task else ""
    return f"{what}{wanted}{inside}{task}"


def _field(name: str, value: object, columns: int) -> Iterator[str]:
    shown = clean_json(json.dumps(name, ensure_ascii=False))
    label = name if name.isidentifier() and name.isascii() else shown
    body = clean_json(json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None))
    first, *rest = body.split("\n")  # line breaks inside of texts are escaped
    yield from _wrapped(f"{label}: {first}", columns, _INDENT)
    for line in rest:
        inner = line.lstrip(" ")
        yield from _wrapped(inner, columns, _INDENT + line[: len(line) - len(inner)])


def _wrapped(line: str, columns: int, indent: str) -> Iterator[str]:
    """The whole line, cut where it is too wide; what follows is indented further."""
    room = max(_NARROWEST, columns - len(indent) - len(_INDENT))
    pieces = textwrap.wrap(
        line, room, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False, expand_tabs=False
    )
    for number, piece in enumerate(pieces or [""]):
        yield f"{indent}{piece}" if number == 0 else f"{indent}{_INDENT}{piece}"
