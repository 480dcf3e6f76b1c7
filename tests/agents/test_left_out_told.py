"""What a worker left of its task: whatever the way of leading, however deep, after any crash, it is one gap."""

from collections.abc import Sequence

import pytest

from chargehand.agents.messages import ONE
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy
from chargehand.engine import events as ev
from chargehand.engine.failure import Gap
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.models import request_facts as subjects
from chargehand.models.messages import Request
from chargehand.models.partial_text import LEFT
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, team
from tests.agents.test_left_out import GAP, PART, PEARS
from tests.agents.test_left_out import ONE as ALONE
from tests.agents.test_replicas import leader
from tests.runtime.streams import rows, written

STRATEGIES = (Broadcast(), RoundRobin(max_turns=3), Dynamic(max_turns=2), Loop(), Recursive(depth=1), Route("model"))


def end(entries: Sequence[ev.Entry]) -> ev.RunEnded:
    last = entries[-1].event
    assert isinstance(last, ev.RunEnded)
    return last


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
async def test_every_way_of_leading_tells_it(strategy: Strategy) -> None:
    def script(request: Request) -> Line:
        return PART if isinstance(request.subject, subjects.Working) else leader(request)

    workers = (Worker("ann", "counts apples"), Worker("bob", "sums up"))
    found = await Team(workers, supervisor=Supervisor(model=ScriptedModel(script), strategy=strategy)).run(
        f"Count the apples. {PEARS}"
    )
    assert (found.ending, found.gaps) == ("partial", (GAP,))
    assert (end(found.entries).ending, end(found.entries).gaps) == ("partial", (GAP,))
    assert PEARS in str(found.answer)


class Ordered(MemoryJournal):
    """Remembers in which order the entries of all its runs were written."""

    instant = False

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, ev.Entry]] = []

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        self.order += [(lease.run, one) for one in entries]
        await super().append(lease, entries)


def house(journal: MemoryJournal) -> Team:
    """A team in a team in a team, whose only worker leaves a part."""
    below = Plan((Task(TaskId("t1"), "Have it counted.", "cellar"),), "forward")
    above = Plan((Task(TaskId("t1"), "Have it counted.", "office"),), "forward")
    cellar = team(model(work=[PART]), plan=ALONE, name="cellar")
    office = team(model(), cellar.as_worker(), plan=below, name="office")
    return team(model(), office.as_worker(), plan=above, journal=journal)


async def test_two_teams_deep_it_is_one_gap_in_every_run() -> None:
    journal = Ordered()
    found = await house(journal).run("Count", run="r")
    assert [end(entries).ending for entries in (await rows(journal)).values()] == ["partial"] * 3
    assert [(one.message, getattr(one, "worker", "")) for one in found.gaps] == [(PEARS, "office > cellar")]
    assert f"Not answered:\n- office: cellar: {PEARS}" in str(found.answer)


async def test_after_a_crash_anywhere_it_is_the_same_gap() -> None:
    journal = Ordered()
    whole = await house(journal).run("Count", run="r")
    for at in range(1, len(journal.order)):
        runs: dict[str, list[ev.Entry]] = {"r": []}
        for run, entry in journal.order[:at]:
            runs.setdefault(run, []).append(entry)
        again = await written(runs)
        found = await house(again).resume("r")
        assert (found.ending, found.reason, found.gaps, found.answer) == (
            whole.ending,
            whole.reason,
            whole.gaps,
            whole.answer,
        ), f"after entry {at}"
        assert [end(entries) for entries in (await rows(again)).values()] == [
            end(entries) for entries in (await rows(journal)).values()
        ]


# --- whose words they are


@tool
def report() -> str:
    """Read the old report."""
    return f"Report of May.\n{PART}\nSigned."


async def test_what_stands_in_a_text_that_a_worker_quotes_it_did_not_leave() -> None:
    quoted = f"The report says:\n\n{PART}"
    work: list[Line] = [calls(call("report")), quoted]
    found = await team(model(work=work), Worker("ann", "reads", tools=[report]), plan=ALONE).run("Read the report")
    assert (found.ending, found.gaps) == ("complete", ())
    work = [calls(call("report")), f"{quoted}\n\n{LEFT}the figs"]
    found = await team(model(work=work), Worker("ann", "reads", tools=[report]), plan=ALONE).run("Read the report")
    assert (found.ending, [one.message for one in found.gaps]) == ("partial", ["the figs"])


async def test_a_tool_is_no_message_whatever_it_is_called() -> None:
    own = tool(name=f"{ONE}_by_post")(report.function)
    work: list[Line] = [calls(call(own.name)), f"The report says:\n\n{PART}"]
    found = await team(model(work=work), Worker("ann", "reads", tools=[own]), plan=ALONE).run("Read the report")
    assert (found.ending, found.gaps) == ("complete", ())


async def test_what_another_worker_left_and_was_written_for_it_is_its_own() -> None:
    def work(request: Request) -> Line:
        assert isinstance(request.subject, subjects.Working)
        if request.subject.worker.name == "bob" or request.messages[-1].role == "tool":
            return PART
        return calls(call(ONE, message="Count the apples and the pears.", worker="bob"))

    executor = (Worker("ann", "asks", tools=[ONE], contacts=["bob"]), Worker("bob", "counts"))
    found = await team(model(work=work), *executor, plan=ALONE).run("Count")
    assert (found.ending, found.gaps) == ("partial", (GAP,))


# --- who else did it


async def test_who_left_the_same_in_other_words_did_not_do_it() -> None:
    def work(request: Request) -> Line:
        assert isinstance(request.subject, subjects.Working)
        return f"12.\n{LEFT}{'the pears' if request.subject.worker.name == 'ann' else 'Pears in the loft.'}"

    executor = [Worker("ann", "counts apples"), Worker("bob", "counts figs")]
    found = await Team(executor, supervisor=Supervisor(model=model(work=work), strategy=Broadcast())).run(
        f"Count the apples. {PEARS}"
    )
    assert (found.ending, len(found.gaps)) == ("partial", 2)


@pytest.mark.parametrize(
    ("other", "after", "gaps"),
    [
        ("Find the data of the US for 2024.", (), 1),
        ("Find the data of the EU for 2024.", (), 0),
        ("Sum up the data of the EU for 2024.", (Edge(TaskId("t2")),), 1),
    ],
)
async def test_only_who_was_asked_for_that_very_part_and_had_it_from_elsewhere_did_it(
    other: str, after: tuple[Edge, ...], gaps: int
) -> None:
    """The third works from a memo that was made from the part."""
    tasks = (
        Task(TaskId("t1"), "Find all figures.", "ann"),
        Task(TaskId("t2"), "Write a memo.", "ann", after=(Edge(TaskId("t1")),)),
        Task(TaskId("t3"), other, "ann", after=after),
    )

    def work(request: Request) -> Line:
        assert isinstance(request.subject, subjects.Working)
        return f"12.\n{LEFT}EU data for 2024." if "all figures" in request.subject.instruction else "34."

    found = await team(model(work=work), plan=Plan(tasks, "forward")).run("Find")
    assert len(found.gaps) == gaps


@pytest.mark.parametrize(("first", "gaps"), [(True, (GAP,)), (False, ())])
async def test_of_results_one_of_which_is_chosen_that_one_counts(first: bool, gaps: tuple[Gap, ...]) -> None:
    """The judge chooses the first."""
    tasks = tuple(Task(TaskId(name), f"Count the apples. {PEARS}", "ann") for name in ("t1", "t2"))
    asked = [PART, "12 apples, 7 pears."]

    def work(request: Request) -> Line:
        return asked.pop(0 if first else -1)

    found = await team(model(work=work), plan=Plan(tasks, "select")).run("Count")
    assert "[t1]" in str(found.answer)
    assert found.gaps == end(found.entries).gaps == gaps


# --- evals
