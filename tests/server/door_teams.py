"""Teams whose runs stand in every state that a door has to tell: ended in each way, or waiting for a person."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from chargehand import (
    Assignment,
    Budget,
    Plan,
    Policy,
    ScriptedModel,
    StepContext,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    WorkFailed,
    tool,
)
from chargehand.engine.failure import Failure
from chargehand.engine.plan import TaskId
from chargehand.models.messages import Reply, Request
from chargehand.models.model import ModelCard

PAYEES = ("Ott", "Bob")


@tool(effect="effect", approve=True)
async def pay(payee: str) -> str:
    """Pay somebody."""
    return f"receipt {payee}"


@tool(effect="effect")
async def mail(to: str) -> str:
    """Mail somebody; the line breaks before it is known whether the mail left."""
    raise ConnectionResetError(f"the line to {to} broke")


class Sleeper:
    """A model that never replies."""

    card = ModelCard("sleeper")

    async def reply(self, request: Request, hear: object = None) -> Reply:
        await asyncio.sleep(60)
        return Reply("awake")


def _calls(name: str, field: str, *values: str) -> Reply:
    calls = tuple(ToolCall(str(nth), name, f'{{"{field}": "{value}"}}') for nth, value in enumerate(values, 1))
    return Reply(calls=calls, finish="tools")


def _calling(calls: Reply, last: str) -> ScriptedModel:
    """Return a model that makes calls, and says something when they have returned."""

    def work(request: Request) -> Reply | str:
        return last if any(message.role == "tool" for message in request.messages) else calls

    return ScriptedModel(work)


async def _ask(assignment: Assignment, _context: StepContext) -> str:
    return f"It is {assignment.ask_person('Which colour?', options=['red', 'blue'])}."


async def _fail(_assignment: Assignment, _context: StepContext) -> str:
    raise WorkFailed(Failure("logic", "the shed is locked", permanent=True))


def _plan(*workers: str) -> Plan:
    tasks = (Task(TaskId(f"t{nth}"), f"Do part {nth}.", name) for nth, name in enumerate(workers, 1))
    return Plan(tuple(tasks), "forward")


def _team(name: str, *workers: Worker, tasks: Sequence[str] = (), **more: Any) -> Team:
    plan = _plan(*(tasks or [worker.name for worker in workers]))
    supervisor = Supervisor(plan=plan, model=ScriptedModel(lambda _: "All."))
    return Team(workers, name=name, supervisor=supervisor, **more)


def _clerk(*payees: str) -> Worker:
    return Worker("clerk", "pays", tools=[pay], model=_calling(_calls("pay", "payee", *payees), "Paid."))


_SPEAKER = Worker("ann", "speaks", model=ScriptedModel(lambda _: "The shed is blue."))
_FAILING = Worker("bob", "fails", call=_fail)
_ASKING = Worker("painter", "paints", call=_ask)
_MAILING = Worker("ute", "mails", tools=[mail], model=_calling(_calls("mail", "to", "Ute"), "Sent."))
_SLEEPING = Worker("sleeper", "sleeps", model=Sleeper())


class Case(Struct, frozen=True):
    """A team, and how its run stands when nothing goes on by itself any more."""

    team: Team
    state: str
    reason: str = ""
    """Why it ended; empty: it has not ended."""
    told: tuple[str, ...] = ()
    """What its document must name besides."""
    calls: int = 0
    """How many calls wait for a verdict."""


def cases() -> dict[str, Case]:
    """Return a team for each state, by name."""
    every = [
        Case(_team("complete", _SPEAKER), "complete", "done", ("The shed is blue.",)),
        Case(_team("partial", _SPEAKER, _FAILING), "partial", "gaps", ("The shed is blue.", "the shed is locked")),
        Case(
            _team("poor", _SPEAKER, tasks=("ann", "ann"), budget=Budget(calls=1)),
            "partial",
            "budget",
            ("the cap of 1 call",),
        ),
        Case(_team("failed", _FAILING), "failed", "no_results", ("the shed is locked",)),
        Case(_team("late", _SLEEPING, timeout=1.2), "failed", "deadline", ("the cap of 1.2 s",)),
        Case(_team("call", _clerk("Ott")), "needs_input", "", ("Ott",), calls=1),
        Case(_team("calls", _clerk(*PAYEES)), "needs_input", "", PAYEES, calls=2),
        Case(_team("question", _ASKING), "needs_input", "", ("Which colour?", "red", "blue")),
        Case(
            _team("nested", Worker("office", "pays", team=_team("inner", _clerk(*PAYEES)))),
            "needs_input",
            "",
            (*PAYEES, "office"),
            calls=2,
        ),
        Case(_team("doubt", _MAILING, policy=Policy(uncertain="ask")), "needs_input", "", ("Ute",), calls=1),
        Case(_team("cancelled", _clerk("Ott")), "cancelled", "cancelled", ("wrong supplier",)),
        Case(_team("refused", _clerk("Ott")), "partial", "gaps", ("too dear",)),
    ]
    return {case.team.name: case for case in every}
