"""Citations: the tasks that a text names in brackets beside what they support, such as [t1] or [t1, t2].

This module alone knows the form. `agents/prompts/answer.md` asks models for it.
"""

import re
from collections.abc import Collection

_BRACKETS = re.compile(r"[\[(]((?:[^\[\]()\n]|\[\d{1,4}\]){1,200})[\])]")
"""Something in brackets. It cites only if it names tasks that there are, and nothing else."""
_BRACKETED_WORD = re.compile(r"\[[^\[\]\s]{1,64}\]")
_SOURCE = re.compile(
    r"\[[^\[\]\n]{1,200}\]|\((?:see |source:? )?[\w./ -]{1,100}\.\w{1,5}(?:[:#][^()\n]{1,60})?\)"
    r"|\b(?i:sources?: *\S|according to \S)|\b(?:https?://|www\.)\S"
)
_SEPARATOR = re.compile(r"[,;&\s]+(?:and\s+)?|\btasks?\b")
_ITEM_NUMBER = re.compile(r"\[\d+\]$")
_BEHIND_FULL_STOP = re.compile(r"([.!?])([ \t]*(?:\[[^\]\n]{1,200}\][ \t]*)+)(?=\s|$)", re.MULTILINE)


def cite(*tasks: str) -> str:
    """A citation of these tasks."""
    return f"[{', '.join(tasks)}]"


def cited_tasks(text: str, tasks: Collection[str]) -> tuple[str, ...]:
    """The tasks that a text cites, each once, of those there are."""
    cited: dict[str, None] = {}
    for match in _BRACKETS.finditer(text):
        cited |= dict.fromkeys(_tasks_of(match, tasks))
    return tuple(cited)


def blank_citations(text: str, tasks: Collection[str]) -> str:
    """The text with blanks in place of its citations, so that positions stay."""
    return _BRACKETS.sub(lambda match: " " * len(match[0]) if _tasks_of(match, tasks) else match[0], text)


def rename_citations(text: str, tasks: Collection[str], prefix: str) -> str:
    """The text with every cited task named by a prefix and its name."""

    def rename(match: re.Match[str]) -> str:
        cited = _tasks_of(match, tasks)
        return cite(*[f"{prefix}{task}" for task in cited]) if cited else match[0]

    return _BRACKETS.sub(rename, text)


def names_source(text: str) -> bool:
    """Whether a text says where anything in it comes from: a task, a file, an address, a person's words."""
    return _SOURCE.search(text) is not None


def strip_citations(text: str) -> str:
    """The text without single words in square brackets, where it is not known which tasks there are."""
    return _BRACKETED_WORD.sub(" ", text)


def cite_before_full_stop(text: str) -> str:
    """The text with each citation that stands behind a full stop put before it."""
    return _BEHIND_FULL_STOP.sub(r"\2\1", text)


def _tasks_of(match: re.Match[str], tasks: Collection[str]) -> list[str]:
    """The tasks named in brackets; none if anything else is named. `[t1[3]]` cites the third result of t1."""
    names = [_ITEM_NUMBER.sub("", name) for name in _SEPARATOR.split(match[1]) if name]
    return names if all(name in tasks for name in names) else []
