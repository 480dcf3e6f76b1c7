"""A team that looks and does not act: whatever its tools would change, a person has to allow, and nobody is there.

Only what tools say of themselves is known here: one that changes something and calls itself `read` is believed.
"""

import copy
from typing import TypeVar

from msgspec import structs

from chargehand.agents.worker import Worker
from chargehand.errors import Refused
from chargehand.team import Supervisor
from chargehand.tools.tool import Tool

Given = TypeVar("Given")


def cautious(team: Supervisor) -> Supervisor:
    """The same team, and the teams inside it, with every tool that changes something waiting for leave.

    Tools of memory are not touched: a trial has a memory of its own.
    """
    hiring = team.hiring
    made = hiring.factory
    if made is not None:
        made = structs.replace(made, tools=tuple(map(_asking, made.tools)))
    team = copy.copy(team)
    team.hiring = structs.replace(hiring, workers=tuple(map(_careful, hiring.workers)), factory=made)
    return team


def _careful(worker: Worker) -> Worker:
    inner = worker.team
    if inner is not None and not isinstance(inner, Supervisor):
        raise Refused(f"nobody knows whether {worker.name}, a team of another kind, only looks; try it with --act")
    inner = None if inner is None else cautious(inner)
    return structs.replace(worker, tools=tuple(map(_asking, worker.tools)), team=inner)


def _asking(one: Given) -> Given:
    """A tool that asks before each call, if it changes anything."""
    if isinstance(one, Tool) and one.effect != "read" and not one.approve:
        return structs.replace(one, approve=True)
    return one
