"""One small crew for each mode of MAST, with a model that goes wrong in exactly that way; all are run for real."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line
from chargehand.tools.rules import RequiredBeforeExit
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, plan, team

ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
COUNT = ("Count the apples in the cellar.", "ann", ())
GOAL = "Count the apples in the cellar"
COUNTED = "There are 412 apples in the cellar: 230 on the left shelf, 182 in the wooden crates near the window."
WROTE = "Write a letter about the apples to the baker."
LETTER = "Dear baker, we have 412 apples for you, 230 of them from the left shelf. Please come with wooden crates."


@tool
def look(place: str) -> str:
    """Look into a place."""
    return COUNTED if place == "cellar" else f"Nothing new on {place}."


@tool(effect="effect")
def send(to: str) -> str:
    """Send a letter."""
    return f"handed over to the post for {to}"


class Count(Struct):
    apples: int


def by_task(**lines: Line) -> Callable[[Request], Line]:
    """Each worker says its line."""

    def part(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        return lines[request.subject.worker.name]

    return part


async def in_turn(first: str, second: str, *, asked: str = WROTE) -> Result:
    """Ann works, then bob from what she found; the answer is what bob says."""
    plans = [plan(COUNT, (asked, "bob", ("t1",)), combine="forward")]
    script = model(plans=plans, work=by_task(ann=first, bob=second))
    return await team(script, Worker("ann"), Worker("bob"), policy=ONCE).run(f"{GOAL}. {asked}")


# --- 1: what they were told to be


async def disobeys_the_task() -> Result:
    worker = Worker("ann", output=Count)
    return await team(model(work=["About four hundred, I think."]), worker, policy=ONCE).run(GOAL)


async def disobeys_its_role() -> Result:
    work = [calls(call("erase", what="cellar")), calls(call("look", place="cellar")), COUNTED]
    return await team(model(work=work), Worker("ann", tools=[look]), policy=ONCE).run(GOAL)


async def repeats_steps() -> Result:
    return await team(model(work=[calls(call("look", place="shelf"))]), Worker("ann", tools=[look]), policy=ONCE).run(
        GOAL
    )


async def does_not_know_when_to_stop() -> Result:
    def on_and_on(request: Request) -> Line:
        return calls(call("look", place=f"shelf {len(request.messages)}"))

    return await team(model(work=on_and_on), Worker("ann", tools=[look], steps=4), policy=ONCE).run(GOAL)


# --- 2: how they work together


async def starts_over() -> Result:
    """The process dies after the first call; whoever takes it up was told something else, and begins anew."""
    whole = await team(
        model(work=[calls(call("look", place="cellar")), COUNTED]), Worker("ann", tools=[look]), policy=ONCE
    ).run(GOAL)
    done = [at for at, one in enumerate(whole.entries, 1) if isinstance(one.event, ev.StepFinished)]
    journal = await kept(whole, done[1])
    forgetful = Worker("ann", prompt="You are new here and know nothing.", tools=[look])
    script = model(work=[calls(call("look", place="cellar")), COUNTED])
    return await team(script, forgetful, policy=ONCE, journal=journal).resume("again")


async def kept(found: Result, entries: int) -> MemoryJournal:
    """A journal that ends after so many entries of a run."""
    journal = MemoryJournal()
    lease = await journal.claim("again", new=True)
    await journal.append(lease, found.entries[:entries])
    await journal.release(lease)
    return journal


async def does_not_ask() -> Result:
    guess = '{"tasks": {"t1": {"instruction": "Count the apples in the cellar of the mill.", "worker": "ann"}},'
    guess += '"combine": "forward", "assumptions": ["The cellar is that of the mill."]}'
    return await team(model(plans=[guess], work=[COUNTED]), policy=ONCE).run(GOAL)


async def holds_something_back() -> Result:
    return await team(model(work=[Reply()]), policy=ONCE).run(GOAL)


async def says_what_it_did_not_do() -> Result:
    made_up = COUNTED.replace("412", "7,311")
    work = [calls(call("look", place="cellar")), made_up, made_up]
    return await team(model(work=work), Worker("ann", tools=[look]), policy=ONCE).run(GOAL)


# --- 3: how they check and end


async def ends_too_early() -> Result:
    worker = Worker("ann", tools=[look], rules=[RequiredBeforeExit("look")])
    return await team(model(work=[COUNTED]), worker, policy=ONCE).run(GOAL)


async def is_not_checked() -> Result:
    asked = plan(("Send the baker a letter about the apples.", "ann", ()), combine="forward")
    work = [calls(call("send", to="the baker")), "The letter about the apples was sent to the baker."]
    return await team(model(plans=[asked], work=work), Worker("ann", tools=[send]), policy=ONCE).run(
        "Send the baker a letter about the apples"
    )


async def is_checked_wrongly() -> Result:
    """The count does not add up (230 and 182 are not 512), and whoever checks it says that it does."""
    wrong = COUNTED.replace("412", "512")
    return await in_turn(wrong, "The count of 512 apples is correct: both shelves were checked.", asked=CHECK)


CHECK = "Check the count of the apples: do the shelves add up?"


class Reproducer(Struct, frozen=True):
    """`prevented` says whether the engine stops it; a model is never asked whether it happened."""

    run: Callable[[], Awaitable[Result]]
    task: str
    ending: str
    prevented: bool
    words: str


REPRODUCERS = {
    "1.1": Reproducer(disobeys_the_task, "t1", "failed", True, "never sent a result of the wanted shape"),
    "1.2": Reproducer(disobeys_its_role, "t1", "complete", True, "a tool that its worker does not have"),
    "1.3": Reproducer(repeats_steps, "t1", "failed", True, "same call with the same result"),
    "1.5": Reproducer(does_not_know_when_to_stop, "t1", "failed", True, "came to no end within its steps"),
    "2.1": Reproducer(starts_over, "t1", "complete", False, "did not go on as recorded"),
    "2.2": Reproducer(does_not_ask, "", "complete", False, "assumed something instead of asking"),
    "2.4": Reproducer(holds_something_back, "t1", "failed", True, "sent nothing"),
    "2.6": Reproducer(says_what_it_did_not_do, "t1", "partial", False, "none of its tools returned"),
    "3.1": Reproducer(ends_too_early, "t1", "failed", True, "before a call that is required"),
    "3.2": Reproducer(is_not_checked, "t1", "complete", False, "nothing checked whether it worked"),
}
