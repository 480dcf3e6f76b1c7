"""Work that is done again: finished steps are kept, models are told, and no effect is repeated unasked."""

import time
from collections.abc import Callable

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import EarlierCall, Failure
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Outcome
from chargehand.team import Team
from chargehand.tools.calling import ToolFailed
from chargehand.tools.tool import CallKey, tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team
from tests.agents.test_break_resume import by_step, step

QUICK = Policy(retry=Retry(base=0.001, ceiling=0.001), tainted_effects="allow")
NEVER_TWICE = Policy(retry=Retry(attempts=1), refine=False, tainted_effects="allow")
GIVE_UP = calls(call("give_up", 9, reason="the pen broke"))
BROKEN = Failure("network", "the line went dead")


def pay_for(*, euros: int) -> Line:
    return calls(call("pay", to="Ott", euros=euros))


class Desk:
    """Tools that remember what they did, with the keys they were given."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.keys: list[str] = []
        self.lost = False
        """The payments are made and their replies are lost."""

        @tool(effect="effect", trusted=True, quick=True)
        def pay(to: str, euros: int, key: CallKey) -> str:
            """Pay somebody."""
            self.paid.append((to, euros))
            self.keys.append(key)
            if self.lost:
                raise ConnectionResetError("the line went dead")
            return f"receipt {len(self.paid)}"

        @tool(effect="idempotent", trusted=True, quick=True)
        def store(name: str, key: CallKey) -> str:
            """Store a name."""
            self.keys.append(key)
            return f"stored {name}"

        self.tools = [pay, store]

    def team(
        self, work: Callable[[Request], Line], policy: Policy = QUICK, journal: MemoryJournal | None = None
    ) -> Team:
        return team(model(work=work), Worker("ann", tools=self.tools), policy=policy, journal=journal)


def told(request: Request) -> str:
    """Return what a worker is told first."""
    return request.messages[1].text


def earlier_of(result: Result | Outcome) -> EarlierCall:
    """Return the earlier call that the open question about a call shows."""
    assert result.question is not None
    [pending] = result.question.calls
    assert (result.question.what, pending.because) == ("tool", "repeated")
    assert pending.earlier is not None
    return pending.earlier


async def fork(executor: Team, source: str = "r", run: str = "r2") -> Outcome:
    """Do a run again under another name, as `chargehand run --reuse` does."""
    async with executor.driven() as runner:
        return await runner.fork(source, run, executor.request("Count", time.time()))


# --- the next attempt


async def test_a_retry_after_a_lost_line_goes_on_from_the_finished_steps() -> None:
    desk = Desk()
    requests: list[int] = []

    def work(request: Request) -> Line:
        requests.append(step(request))
        if requests == [0, 1, 2]:
            return BROKEN
        return by_step(pay_for(euros=5), calls(call("store", name="Ott")), "Ott is paid.")(request)

    found = await desk.team(work).run("Count", run="r")
    assert (found.ending, desk.paid, len(desk.keys)) == ("complete", [("Ott", 5)], 2)
    assert requests == [0, 1, 2, 2], "only the reply that was lost is asked for again"
    assert [
        event.keep for event in of_kind(found.entries, ev.RetryScheduled) if isinstance(event, ev.RetryScheduled)
    ] == [True]


async def test_a_refined_attempt_is_told_of_earlier_calls_and_an_equal_one_is_read_back() -> None:
    desk = Desk()

    def work(request: Request) -> Line:
        if "Do it, but better" not in told(request):
            return by_step(pay_for(euros=5), GIVE_UP)(request)
        return by_step(pay_for(euros=5), f"read: {request.messages[-1].text}")(request)

    script = model(work=work)
    found = await team(script, Worker("ann", tools=desk.tools), policy=QUICK).run("Count", run="r")
    assert (found.ending, desk.paid) == ("complete", [("Ott", 5)])
    assert "receipt 1" in str(found.results["t1"]), "the model reads the result of the first payment"
    openings = [told(request) for request in script.requests if "better" in told(request)]
    assert openings
    assert all('pay({"euros":5,"to":"Ott"})' in opening and "receipt 1" in opening for opening in openings)


async def test_a_yes_to_a_call_that_was_declined_is_no_yes_to_the_same_call_of_the_next_attempt() -> None:
    tried: list[str] = []

    @tool(effect="effect", trusted=True, approve=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        tried.append(to)
        raise ToolFailed("the bank declined it")

    pays = calls(call("pay", to="Ott"))

    def work(request: Request) -> Line:
        is_second = "Do it, but better" in told(request)
        return by_step(pays, "The bank declined it." if is_second else GIVE_UP)(request)

    executor = team(model(work=work), Worker("ann", tools=[pay]), policy=QUICK)
    assert (await executor.run("Count", run="r")).ending == "needs_input"
    result = await executor.resume("r", "approve")
    assert (result.ending, tried) == ("needs_input", ["Ott"]), "the second attempt asks for itself"
    result = await executor.resume("r", "approve")
    assert (result.ending, tried) == ("complete", ["Ott", "Ott"])


async def test_a_worker_who_steps_in_is_told_of_earlier_calls() -> None:
    desk = Desk()
    heard: list[str] = []

    def fails(request: Request) -> Line:
        return by_step(pay_for(euros=5), calls(call("give_up", reason="the pen broke", final=True)))(request)

    def steps_in(request: Request) -> Line:
        heard.append(told(request))
        return "Ott is paid."

    workers = (
        Worker("ann", tools=desk.tools, model=model(work=fails), fallbacks=["bob"]),
        Worker("bob", tools=desk.tools, model=model(work=steps_in)),
    )
    found = await team(model(), *workers, policy=QUICK).run("Count", run="r")
    assert (found.ending, desk.paid, len(heard)) == ("complete", [("Ott", 5)], 1)
    assert 'pay({"euros":5,"to":"Ott"})' in heard[0]
    assert "receipt 1" in heard[0]


@pytest.mark.parametrize(("answer", "paid"), [("approve", [5, 6]), ("reject", [5])])
async def test_a_later_attempt_that_words_a_call_otherwise_asks_and_shows_the_earlier_one(
    answer: str, paid: list[int]
) -> None:
    desk = Desk()

    def work(request: Request) -> Line:
        if "better" not in told(request):
            return by_step(pay_for(euros=5), GIVE_UP)(request)
        return by_step(pay_for(euros=6), "Ott is paid.")(request)

    executor = desk.team(work)
    found = await executor.run("Count", run="r")
    earlier = earlier_of(found)
    assert (found.ending, desk.paid) == ("needs_input", [("Ott", 5)])
    assert (earlier.arguments, earlier.result, earlier.happened) == ({"to": "Ott", "euros": 5}, "receipt 1", True)
    found = await executor.resume("r", answer)
    assert found.ending == ("complete" if answer == "approve" else "partial")
    assert [euros for _, euros in desk.paid] == paid


# --- another run


async def ended_after(desk: Desk, journal: MemoryJournal, *lines: Line) -> Result:
    """Return a run whose task failed after what it did."""
    first = desk.team(by_step(*lines, GIVE_UP), NEVER_TWICE, journal)
    found = await first.run("Count", run="r")
    assert found.ending == "failed"
    return found


@pytest.mark.parametrize("euros", [5, 6], ids=["equal call", "same tool"])
async def test_a_run_that_redoes_a_failed_task_asks_before_a_payment_and_shows_the_earlier_one(euros: int) -> None:
    desk, journal = Desk(), MemoryJournal()
    await ended_after(desk, journal, pay_for(euros=5))
    found = await fork(desk.team(by_step(pay_for(euros=euros), "Ott is paid."), NEVER_TWICE, journal))
    assert (found.ending, desk.paid) == ("needs_input", [("Ott", 5)])
    earlier = earlier_of(found)
    assert (earlier.run, earlier.task, earlier.arguments) == ("r", "t1", {"to": "Ott", "euros": 5})
    assert (earlier.result, earlier.happened) == ("receipt 1", True)
    assert 0 < earlier.at <= time.time()


async def test_two_calls_of_a_reply_that_may_repeat_the_same_one_are_each_asked_about() -> None:
    desk, journal = Desk(), MemoryJournal()
    await ended_after(desk, journal, pay_for(euros=5), GIVE_UP)
    both = calls(call("pay", 1, to="Ott", euros=6), call("pay", 2, to="Ann", euros=5))
    executor = desk.team(by_step(both, "Paid."), NEVER_TWICE, journal)
    result = await fork(executor)
    assert result.question is not None
    assert [pending.because for pending in result.question.calls] == ["repeated", "repeated"]
    result = await executor.resume("r2", ev.InputAnswered(result.question.number, "approve"))
    assert desk.paid == [("Ott", 5)], "nothing was said of the second call"
    assert earlier_of(result).arguments == {"to": "Ott", "euros": 5}
    assert result.question is not None
    result = await executor.resume("r2", ev.InputAnswered(result.question.number, "approve"))
    assert (result.ending, len(desk.paid)) == ("complete", 3)


async def test_a_worker_of_a_run_that_redoes_a_task_is_told_of_its_calls() -> None:
    desk, journal = Desk(), MemoryJournal()
    await ended_after(desk, journal, pay_for(euros=5))
    heard: list[str] = []

    def work(request: Request) -> Line:
        heard.append(told(request))
        return "Ott is paid."

    found = await fork(desk.team(work, NEVER_TWICE, journal))
    assert (found.ending, desk.paid) == ("complete", [("Ott", 5)])
    assert 'pay({"euros":5,"to":"Ott"})' in heard[0]
    assert "receipt 1" in heard[0]


async def test_a_call_in_doubt_that_is_redone_asks_and_keeps_its_key() -> None:
    desk, journal = Desk(), MemoryJournal()
    desk.lost = True
    first = desk.team(by_step(pay_for(euros=5), "paid"), Policy(uncertain="fail", tainted_effects="allow"), journal)
    assert (await first.run("Count", run="r")).ending == "failed"
    desk.lost = False
    again = desk.team(by_step(pay_for(euros=5), "Ott is paid."), QUICK, journal)
    found = await fork(again)
    assert (found.ending, earlier_of(found).happened, len(desk.paid)) == ("needs_input", False, 1)
    assert (await again.resume("r2", "approve")).ending == "complete"
    assert len(desk.paid) == 2
    assert desk.keys[0] == desk.keys[1], "the service can tell that it is the same payment"


async def test_an_idempotent_call_has_the_same_key_in_a_run_that_redoes_it() -> None:
    desk, journal = Desk(), MemoryJournal()
    store = calls(call("store", name="Ott"))
    await ended_after(desk, journal, store)
    found = await fork(desk.team(by_step(store, "It is stored."), NEVER_TWICE, journal))
    assert (found.ending, len(desk.keys), len(set(desk.keys))) == ("complete", 2, 1)


async def test_equal_idempotent_calls_of_a_task_share_a_key() -> None:
    desk = Desk()
    store = calls(call("store", name="Ott"))
    found = await desk.team(by_step(store, store, "It is stored.")).run("Count", run="r")
    assert (found.ending, len(desk.keys), len(set(desk.keys))) == ("complete", 2, 1)


async def test_what_a_person_answered_is_not_asked_again_by_a_run_that_redoes_the_task() -> None:
    journal = MemoryJournal()
    ask = calls(call("ask_person", question="Which account?"))

    def asking(*lines: Line) -> Team:
        worker = Worker("ann", tools=["ask_person"])
        return team(model(work=by_step(*lines)), worker, policy=NEVER_TWICE, journal=journal)

    first = asking(ask, GIVE_UP)
    assert (await first.run("Count", run="r")).ending == "needs_input"
    assert (await first.resume("r", "the second one")).ending == "failed"
    found = await fork(asking(ask, "It was the second one."))
    assert (found.ending, found.question) == ("complete", None)


async def test_the_cost_of_a_run_that_redoes_a_task_is_that_of_its_own_calls() -> None:
    journal = MemoryJournal()
    tasks = [plan(("Count the apples in the cellar.", "ann", ()), ("Count the pears in the attic.", "ann", ()))]

    def counting(script: ScriptedModel) -> Team:
        return team(script, Worker("ann"), policy=NEVER_TWICE, journal=journal)

    def half(request: Request) -> Line:
        return "12" if "apples" in told(request) else GIVE_UP

    first = await counting(model(plans=tasks, work=half)).run("Count", run="r")
    assert first.ending == "partial"
    script = model(plans=tasks, work=lambda request: "12" if "apples" in told(request) else "7")
    found = await fork(counting(script))
    entries = await journal.read("r2")
    assert (found.ending, found.spent.calls) == ("complete", len(script.requests))
    reused = [event.task for event in of_kind(entries, ev.ResultReused) if isinstance(event, ev.ResultReused)]
    worked = [event.task for event in of_kind(entries, ev.AttemptStarted) if isinstance(event, ev.AttemptStarted)]
    assert (reused, worked) == (["t1"], ["t2"])
