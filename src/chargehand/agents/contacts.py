"""The contract under which workers write to each other: to whom, and how often. Who carries messages is not known here.

It binds workers only: a person may write to anybody.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from chargehand.agents.worker import Contacts
from chargehand.errors import Invalid
from chargehand.terms.roster import Agent
from chargehand.text.names import did_you_mean

ANYBODY = "*"
TAG = "tag:"
_HOW = "name workers, tag:NAME for everybody with a tag, or * for everybody"


def reach(contacts: Contacts, agents: Sequence[Agent], sender: str) -> tuple[Agent, ...]:
    """Everybody a contract allows to write to, in the order of the roster; never the sender."""
    found = (one for one in agents if one.name != sender)
    return tuple(one for one in found if any(_means(entry, one.name, one.tags) for entry in contacts.to))


def _means(entry: str, name: str, tags: Sequence[str]) -> bool:
    return entry in (name, ANYBODY) or (entry.startswith(TAG) and entry.removeprefix(TAG) in tags)


def objections(contacts: Contacts, sender: str, team: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, str]]:
    """What is wrong with the entries of a contract, each with its place. `team` are the tags of all, by name."""
    others = {name: tags for name, tags in team.items() if name != sender}
    for at, entry in enumerate(contacts.to):
        if entry == ANYBODY or entry in others:
            continue
        if entry == sender:
            yield at, "is the worker itself; name somebody else"
        elif not entry.startswith(TAG):
            yield at, f"there is no worker {entry!r} to write to; {did_you_mean(entry, others, _HOW)}"
        elif not any(entry.removeprefix(TAG) in tags for tags in others.values()):
            known = ", ".join(sorted({tag for tags in others.values() for tag in tags})) or "none"
            yield at, f"nobody else carries the tag {entry.removeprefix(TAG)!r}; the tags there are: {known}"


def check(owner: str, made: Contacts, sends: str, team: Mapping[str, Sequence[str]]) -> None:
    """Raise Invalid for a worker that may write to nobody and would, or may and could not.

    `sends` is a tool it has for it.
    """
    if isinstance(made.to, str):
        raise Invalid(f"worker {owner!r}: contacts is the text {made.to!r}; make it a list: [{made.to!r}]")
    strange = next((one for one in made.to or () if not isinstance(cast("object", one), str)), None)
    if strange is not None:
        raise Invalid(f"worker {owner!r}: contacts has {strange!r}; {_HOW}")
    if sends and not made.to:
        raise Invalid(f"worker {owner!r} has {sends} and no contacts: it may write to nobody; {lacking()}")
    if made.to and not sends:
        raise Invalid(f"worker {owner!r} has contacts and no tool to write to them; {missing_tool()}")
    most = cast("object", made.most)
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise Invalid(f"worker {owner!r} may send {most!r} messages for a task; allow 1 or more, or leave `most` out")
    for _, problem in objections(made, owner, team):
        raise Invalid(f"worker {owner!r}: contacts: {problem}")


def lacking() -> str:
    """The next step for a worker that has a tool for messages and nobody to send them to."""
    return f"say whom it may write to in `contacts`: {_HOW}"


def missing_tool() -> str:
    """The next step for a worker that may write to others and has no tool for it."""
    return "add send_message_to_agent_and_wait_for_reply or send_message_to_agents_matching_tags to its tools"
