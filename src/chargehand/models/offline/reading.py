"""How much of a text the rules read. Their patterns take up to the square of its length: this is what bounds them.

A request or a task is read up to `LONGEST` characters, with long runs of white space made short.
"""

import re
from typing import TypeVar

from msgspec import structs

from chargehand.models.subject import (
    Answering,
    Judging,
    Ledger,
    Planning,
    Routing,
    Speaking,
    Subject,
)

LONGEST = 4_000
"""Characters of a request or of a task that are read."""
_WHITE = re.compile(r"\s{9,}")
_Subject = TypeVar("_Subject", bound=Subject)


def read_text(text: str) -> str:
    """What is read of a text."""
    return _compact(text)[:LONGEST]


def unread_length(text: str) -> int:
    """How many characters of a text are not read; its long runs of white space count as one character."""
    return max(0, len(_compact(text)) - LONGEST)


def text_of(subject: Subject) -> str:
    """The request or the task that a subject is about."""
    if isinstance(subject, Planning | Answering | Routing | Ledger | Speaking | Judging):
        return subject.goal
    return subject.instruction


def read_subject(subject: _Subject) -> _Subject:
    """A subject whose request and tasks are what is read of them."""
    if isinstance(subject, Planning | Ledger):
        tasks = tuple(structs.replace(task, instruction=read_text(task.instruction)) for task in subject.tasks)
        return structs.replace(subject, goal=read_text(subject.goal), tasks=tasks)
    text = read_text(text_of(subject))
    if isinstance(subject, Answering | Routing | Speaking | Judging):
        return structs.replace(subject, goal=text)
    return structs.replace(subject, instruction=text)


def _compact(text: str) -> str:
    return _WHITE.sub(_shorten, text)


def _shorten(run: re.Match[str]) -> str:
    breaks = run[0].count("\n")
    if breaks > 1:
        return "\n\n"
    return "\n" if breaks else " "
