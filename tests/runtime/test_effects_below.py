"""What a run inside another changed in the world is not done again, whatever becomes of the attempt around it."""

from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from chargehand.agents.checks import Rule
from chargehand.agents.messages import ONE as SEND
from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import Tool, tool
from tests.agents.crowd import call, calls, model
from tests.agents.options import make_team

QUICK = Policy(retry=Retry(attempts=2, base=0.001), tainted_effects="allow")
MAILS = calls(call("mail", to="bob"))


@pytest.fixture
def sent() -> list[str]:
    return []


def post(sent: list[str]) -> Tool:
    @tool(effect="effect")
    def mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    return mail


def in_turn(*lines: Line) -> Callable[[Request], Line]:
    """One line after each result of a tool, then the last one."""

    def script(request: Request) -> Line:
        return lines[min(sum(one.role == "tool" for one in request.messages), len(lines) - 1)]

    return script


def team(workers: Sequence[Worker], *asked: tuple[str, str], name: str = "office", **more: object) -> Team:
    tasks = tuple(Task(TaskId(f"t{at}"), words, who) for at, (words, who) in enumerate(asked, 1))
    options = {"model": model(), "policy": QUICK, "journal": MemoryJournal(), "plan": Plan(tasks, "forward")} | more
    return make_team(workers, name=name, **options)


def posting(sent: list[str], *lines: Line) -> Team:
    poster = Worker("poster", "mails", tools=[post(sent)])
    return team([poster], ("Mail bob.", "poster"), name="post", model=model(work=in_turn(*lines)))


def said(found: Result) -> str:
    return " ".join(one.message for one in found.gaps)


async def test_a_team_that_acted_is_not_asked_again_because_its_answer_was_refused(sent: list[str]) -> None:
    ann = structs.replace(posting(sent, MAILS, "Mailed.").as_worker("ann", "mails"), accept=("it",))
    found = await team([ann], ("Mail bob.", "ann"), checks={"it": Rule(contains="pears")}).run("Mail bob.")
    assert sent == ["bob"]
    assert "not accepted by it" in said(found)
    assert "It has had effects already" in said(found)


async def test_a_team_that_only_looked_is_asked_again(sent: list[str]) -> None:
    ann = structs.replace(posting(sent, "Mailed.").as_worker("ann", "mails"), accept=("it",))
    found = await team([ann], ("Mail bob.", "ann"), checks={"it": Rule(contains="pears")}).run("Mail bob.")
    assert len(found.trace().tasks[0].attempts) == 2


async def test_a_team_is_not_asked_again_because_of_what_another_inside_it_did(sent: list[str]) -> None:
    deep = posting(sent, MAILS, Failure("logic", "dark")).as_worker("deep", "mails")
    other = Worker("other", "fails", model=ScriptedModel([Failure("network", "down")], repeat=True))
    middle = team([deep, other], ("Mail bob.", "deep"), ("Look.", "other"), name="middle")
    found = await team([middle.as_worker("ann", "mails")], ("Mail bob.", "ann")).run("Mail bob.")
    assert sent == ["bob"]
    assert len(found.trace().tasks[0].attempts) == 1
    assert "down. It has had effects already" in said(found)


@pytest.mark.parametrize("acts", [True, False])
async def test_a_message_that_had_an_effect_is_read_back_in_the_next_attempt(sent: list[str], acts: bool) -> None:
    lines: tuple[Line, ...] = (MAILS, "Mailed.") if acts else ("No.",)
    bob = Worker("bob", "mails", tools=[post(sent)], model=model(work=in_turn(*lines)))
    asks = calls(call(SEND, message="Mail bob.", worker="bob"))
    ann = Worker("ann", "asks", tools=[SEND], contacts=["bob"], model=model(work=in_turn(asks, "No.")), accept=("it",))
    journal = MemoryJournal()
    office = team([ann, bob], ("Mail bob.", "ann"), checks={"it": Rule(contains="pears")}, journal=journal)
    found = await office.run("Mail bob.", run="r")
    assert len(found.trace().tasks[0].attempts) == 2
    assert sent == ["bob"] * acts
    inside = [row.run for row in await journal.runs() if row.run.startswith("r/")]
    assert len(inside) == (1 if acts else 2)
