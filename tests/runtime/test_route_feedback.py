"""Feedback on routed runs: a confirmed request becomes an example of its worker, a refuted one is removed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Loop, Route, Strategy
from chargehand.engine.plan import Combine
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid, Refused, RunUnknown, Unknown
from chargehand.journal import protocol
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import RouteExample
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import opened_journal, prune_runs
from chargehand.models.messages import Request
from chargehand.models.request_facts import Answering, Judging, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE

QUICK = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
SHOP = (
    Worker("billing", "answers questions about invoices", skills=["invoices", "refunds", "payment methods"]),
    Worker("repairs", "helps when something is broken", skills=["error messages", "devices that do not start"]),
    Worker("desk", "answers everything else"),
)
BY_WORDS = Route("words", generalist="desk")
REQUEST = "the card payment shows error messages"
SIMILAR = "this card payment shows an error message"


def unreadable_ruling(request: Request) -> Line:
    return "The second, I think." if isinstance(request.subject, Judging) else reply(request)


def reply(request: Request) -> Line:
    match request.subject:
        case Working() as subject:
            return f"Done by {subject.worker.name}."
        case Answering():
            return "All done [t1]."
        case Judging():
            return json.dumps({"why": "it is shorter", "winner": "t2"})
        case _:
            raise AssertionError(f"unexpected request: {request.subject}")


def shop(
    journal: MemoryJournal | Path | SqliteJournal | None = None,
    strategy: Strategy = BY_WORDS,
    combine: Combine | None = None,
    script: Callable[[Request], Line] = reply,
) -> Team:
    model = ScriptedModel(script, card=FREE)
    return Team(
        SHOP,
        supervisor=Supervisor(model=model, strategy=strategy, combine=combine),
        journal=journal,
        policy=QUICK,
        name="shop",
    )


def workers(result: Result) -> list[str]:
    return [task.worker for task in result.plan.tasks]


async def test_a_refuted_route_goes_elsewhere_and_a_confirmed_one_stays() -> None:
    team = shop(MemoryJournal())
    first = await team.run(REQUEST)
    assert workers(first) == ["repairs"]
    judgement = await team.feedback(first.run, good=False, worker="billing")
    assert (judgement.confirmed, judgement.refuted) == (("billing",), ("repairs",))
    then = await team.run(SIMILAR)
    assert workers(then) == ["billing"]
    await team.feedback(then.run, good=True)
    assert [(example.worker, example.request) for example in await team.route_examples()] == [
        ("billing", REQUEST),
        ("billing", SIMILAR),
    ]
    assert await team.clear_route_examples() == 2
    assert workers(await team.run(SIMILAR)) == ["repairs"]


async def test_the_examples_of_a_run_are_deleted_with_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    team = shop(path)
    runs = [(await team.run(request)).run for request in (REQUEST, SIMILAR)]
    for run in runs:
        await team.feedback(run, good=True)
    assert prune_runs(path, runs[:1]).runs == (runs[0],)
    assert [example.request for example in await team.route_examples()] == [SIMILAR]
    assert await team.clear_route_examples(run="none") == 0
    assert await team.clear_route_examples(run=runs[1]) == 1
    assert await team.route_examples() == ()


async def test_what_is_said_later_of_the_same_run_or_request_counts() -> None:
    team = shop(MemoryJournal())
    first = await team.run(REQUEST)
    await team.feedback(first.run, good=True)
    await team.feedback(first.run, good=False)
    assert await team.route_examples() == ()
    await team.feedback(first.run, good=True)
    again = await team.run(REQUEST)
    await team.feedback(again.run, good=False, source="eval")
    assert await team.route_examples() == (), "whoever refutes a request removes every confirmation of it"


async def test_other_requests_and_clear_routes_are_not_moved() -> None:
    team = shop(MemoryJournal())
    first = await team.run(REQUEST)
    await team.feedback(first.run, good=False, worker="billing")
    assert workers(await team.run("my device does not start")) == ["repairs"]
    assert workers(await team.run("which payment methods are there")) == ["billing"]


@pytest.mark.parametrize("strategy", [Route("words", generalist="desk", learn=False), BY_WORDS])
async def test_nothing_is_kept_of_a_run_that_only_ended(strategy: Strategy) -> None:
    team = shop(MemoryJournal(), strategy)
    await team.run(REQUEST)
    assert await team.route_examples() == ()


async def test_with_learning_off_examples_do_not_count() -> None:
    journal = MemoryJournal()
    first = await shop(journal).run(REQUEST)
    await shop(journal).feedback(first.run, good=False, worker="billing")
    assert workers(await shop(journal, Route("words", generalist="desk", learn=False)).run(SIMILAR)) == ["repairs"]


async def test_what_cannot_be_judged_is_refused() -> None:
    team = shop(MemoryJournal())
    run = (await team.run(REQUEST)).run
    with pytest.raises(RunUnknown):
        await team.feedback("nowhere", good=True)
    with pytest.raises(Unknown, match="did you mean 'billing'"):
        await team.feedback(run, good=False, worker="biling")
    with pytest.raises(Invalid, match="is no score"):
        await team.feedback(run, good=1.5)
    with pytest.raises(Invalid, match="it is judged good"):
        await team.feedback(run, good=True, worker="billing")
    with pytest.raises(Invalid, match=r"did run .* already"):
        await team.feedback(run, good=False, worker="repairs")
    journal = MemoryJournal()
    planned = Team(
        SHOP, supervisor=Supervisor(model="demo", strategy=Loop()), journal=journal, policy=QUICK, name="shop"
    )
    other = await planned.run("where are my invoices")
    with pytest.raises(Refused, match="was not led by a route"):
        await planned.feedback(other.run, good=True)


async def test_of_each_worker_and_source_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_EXAMPLES", 2)
    examples = MemoryJournal().route_examples("shop")
    for number in range(4):
        for worker in ("billing", "repairs"):
            example = RouteExample(f"request {number}", worker, "feedback", f"{worker}-{number}")
            await examples.record(example.run, "feedback", [example])
    await examples.record("j", "judge", [RouteExample("request 9", "billing", "judge", "j")])
    kept = await examples.list()
    requests = [example.request for example in kept if example.worker == "billing"]
    assert requests == ["request 2", "request 3", "request 9"]
    assert len(kept) == 5


async def test_examples_are_written_while_another_process_owns_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    owner = await SqliteJournal.open(path)
    try:
        async with opened_journal(path, create=False) as other:
            example = RouteExample(REQUEST, "billing", "feedback", "r")
            await other.route_examples("shop").record("r", "feedback", [example])
        assert [kept.request for kept in await owner.route_examples("shop").list()] == [REQUEST]
    finally:
        await owner.close()
    with pytest.raises(Refused, match="there is no journal"):
        async with opened_journal(tmp_path / "none.db", create=False):
            pass
