"""The supervisor's work of several calls: each that came back is paid, whatever becomes of the work, and made once."""

import asyncio
import json
import re
from collections.abc import Callable

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Recursive, Strategy
from chargehand.engine.budget import NOTHING, Budget
from chargehand.engine.plan import Combine
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Judging, Splitting
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE
from tests.agents.playhouse import run_on_virtual_time
from tests.runtime.streams import rows, written

PRICE = 200
FACTS = {"a": "The price is 90. The height is 3.", "b": "The price is 120. The height is 4."}
LONG = {name: "".join(f"Fact {number} of {name} is told here. " for number in range(900)) for name in "abcd"}


def is_about_the_whole(request: Request) -> bool:
    return isinstance(request.subject, Splitting) and request.subject.instruction == "Do it all."


def is_about_the_height(request: Request) -> bool:
    return isinstance(request.subject, Judging) and "height" in request.subject.claims[0]


def is_a_piece(request: Request) -> bool:
    return not isinstance(request.subject, Splitting | Judging) and "From [t1]" in request.messages[-1].text


@pytest.mark.parametrize("budget", [Budget(), Budget(usd=100.0)])
@pytest.mark.parametrize(
    ("strategy", "combine", "texts", "answers"),
    [
        (Recursive(depth=2, breadth=3), None, FACTS, is_about_the_whole),
        (Broadcast(), "merge", FACTS, is_about_the_height),
        (Broadcast(), "reduce", LONG, is_a_piece),
    ],
)
def test_calls_that_came_back_are_paid_when_time_cuts_their_work_off(
    strategy: Strategy,
    combine: Combine | None,
    texts: dict[str, str],
    answers: Callable[[Request], bool],
    budget: Budget,
) -> None:
    """All calls but those of one kind hang: the work they belong to is given up."""
    paid = 0

    async def lead(request: Request) -> Reply:
        nonlocal paid
        if not answers(request):
            await asyncio.sleep(100_000)
        paid += PRICE
        text = "Shorter."
        if isinstance(request.subject, Splitting):
            parts = [{"instruction": f"Do part {number}.", "worker": "a"} for number in range(3)]
            text = json.dumps({"simple": False, "subtasks": parts})
        elif isinstance(request.subject, Judging):
            text = json.dumps({"why": "It is so.", "winner": request.subject.results[0].task, "ruling": "so"})
        return Reply(text, usage=Usage(100, 100), micros=PRICE)

    window = 4000 if combine == "reduce" else 32000
    card = ModelCard("lead", window=window, micros_in=1.0, micros_out=1.0, keeps_limit=True)
    workers = [
        Worker(name, "works", model=ScriptedModel([said], repeat=True, card=FREE)) for name, said in texts.items()
    ]
    supervisor = Supervisor(model=ScriptedModel(lead, card=card), strategy=strategy, combine=combine)
    result = run_on_virtual_time(Team(workers, supervisor=supervisor, timeout=400, budget=budget), "Do it all.")
    assert paid >= PRICE
    assert result.spent.micros - result.lost.micros == paid
    assert (result.lost == NOTHING) == (budget == Budget())


# --- a process that dies between the calls


@pytest.mark.parametrize("budget", [Budget(), Budget(usd=1.0)])
@pytest.mark.parametrize(
    ("strategy", "combine", "texts", "calls"),
    [
        (Recursive(depth=2, breadth=3), "forward", FACTS, 4),
        (Broadcast(), "merge", FACTS, 3),
        (Broadcast(), "reduce", LONG, 5),
    ],
)
async def test_after_a_crash_no_call_that_came_back_is_made_again(
    strategy: Strategy, combine: Combine, texts: dict[str, str], calls: int, budget: Budget
) -> None:
    """The process dies while the last of the calls is under way."""
    hung = asyncio.Event()
    asked: list[str] = []
    is_dead = False

    async def lead(request: Request) -> Reply:
        if len(asked) >= calls - 1 and not is_dead:
            hung.set()
            await asyncio.get_running_loop().create_future()
        text = "Shorter [t1]."
        if isinstance(request.subject, Splitting):
            parts = [{"instruction": f"Do part {number}.", "worker": "a"} for number in range(3)]
            whole = is_about_the_whole(request)
            text = json.dumps({"simple": not whole, "worker": "a", "subtasks": parts if whole else []})
            asked.append(request.subject.instruction)
        elif isinstance(request.subject, Judging):
            text = json.dumps({"why": "It is so.", "winner": request.subject.results[0].task, "ruling": "so"})
            asked.append(str(request.subject.claims))
        else:
            asked.append(re.sub(r"\b[0-9a-f]{8,}\b", "", request.messages[-1].text))
        return Reply(text, usage=Usage(100, 100), micros=PRICE)

    def team(journal: MemoryJournal) -> Team:
        window = 4000 if combine == "reduce" else 32000
        card = ModelCard("lead", window=window, micros_in=1.0, micros_out=1.0, keeps_limit=True)
        workers = [
            Worker(name, "works", model=ScriptedModel([said], repeat=True, card=FREE)) for name, said in texts.items()
        ]
        supervisor = Supervisor(model=ScriptedModel(lead, card=card), strategy=strategy, combine=combine)
        return Team(workers, supervisor=supervisor, journal=journal, budget=budget)

    journal = MemoryJournal()
    async with asyncio.timeout(10), asyncio.TaskGroup() as jobs:
        run = jobs.create_task(team(journal).run("Do it all.", run="r"))
        await hung.wait()
        entries = (await rows(journal))["r"]
        run.cancel()
    is_dead = True
    result = await team(await written({"r": entries})).resume("r")
    assert len(asked) == len(set(asked)) >= calls
    assert result.spent.micros - result.lost.micros == PRICE * len(asked)


# --- the end of the time for tasks


def test_an_answer_that_waits_for_no_task_is_not_begun_again_when_the_time_for_tasks_ends() -> None:
    async def lead(_: Request) -> Reply:
        await asyncio.sleep(30)
        return Reply("The answer.", usage=Usage(10, 10), micros=PRICE)

    async def work(_: Request) -> str:
        await asyncio.sleep(60)
        return "Done."

    model = ScriptedModel(lead)
    supervisor = Supervisor(model=model, strategy=Broadcast())
    team = Team([Worker("a", "works", model=ScriptedModel(work))], supervisor=supervisor, timeout=100)
    result = run_on_virtual_time(team, "Do it.")
    assert (result.ending, len(model.requests), result.spent.micros) == ("complete", 1, PRICE)
    assert result.entries[-1].at - result.entries[0].at == pytest.approx(90, abs=1)
