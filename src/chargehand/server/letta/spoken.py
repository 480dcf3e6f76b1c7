"""Whole talks out of whole journals: of a person with an agent, and of agents with each other."""

from collections.abc import Sequence

from chargehand.server.letta.speech import Speech
from chargehand.terms import events as ev


def speech(name: str, entries: Sequence[ev.Entry]) -> Speech:
    """The talk of a person with an agent that these entries tell of."""
    found = Speech(name)
    for entry in entries:
        found.hear(entry)
    return found


def speeches_inside(name: str, entries: Sequence[ev.Entry]) -> list[Speech]:
    """What each agent said in a run inside another, in which all of them were sent the same message."""
    first = entries[0].event
    tasks = first.plan.tasks if isinstance(first, ev.RunRequested) and first.plan is not None else ()
    found = [Speech(name, one.worker, one.id, inside=True) for one in tasks]
    for entry in entries:
        for one in found:
            one.hear(entry)
    return found
