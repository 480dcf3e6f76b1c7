"""A worker of any model that says what it left of its task: the run is partial, and the part is a gap."""

import json
import time
from argparse import Namespace
from pathlib import Path

import msgspec
import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Loop
from chargehand.cli.runs import runs
from chargehand.engine.failure import Gap
from chargehand.engine.fold import replay
from chargehand.engine.plan import NO_TASK, Edge, Plan, Task, TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models import request_facts as subjects
from chargehand.models.messages import Request
from chargehand.models.partial_text import LEFT, missing_parts
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import FREE, call, calls, model, plan, team

PEARS = "Count the pears in the loft."
PART = f"There are 12 apples.\n\n{LEFT}{PEARS}"
GAP = Gap(NO_TASK, "unserved", "unserved", PEARS)
ONE = Plan((Task(TaskId("t1"), f"Count the apples. {PEARS}", "ann"),), "forward")


async def test_a_part_that_a_worker_left_makes_the_run_partial_and_is_a_gap() -> None:
    found = await team(model(work=[PART])).run("Count")
    assert (found.ending, found.reason, found.gaps) == ("partial", "gaps", (GAP,))
    assert str(found.answer) == PART  # it stands there already
    assert found.coverage.missing == (PEARS,)
    assert (found.trace().ending, found.trace().gaps) == ("partial", (GAP,))


async def test_an_answer_that_is_written_names_the_part() -> None:
    plans = [plan(("Count the apples.", "ann", []), ("Sweep the yard.", "ann", []))]
    found = await team(model(plans=plans, work=[PART, "Swept."], answer="12 apples [t1], swept [t2].")).run("Count")
    assert str(found.answer).startswith("12 apples [t1], swept [t2].")
    assert f"Not answered:\n- {PEARS}" in str(found.answer)
    assert (found.ending, found.gaps) == ("partial", (GAP,))


async def test_who_leaves_nothing_is_complete() -> None:
    for said in ("There are 12 apples.", f"There are 12 apples.\n{LEFT}nothing.", "They say: 'not answered'."):
        found = await team(model(work=[said])).run("Count")
        assert (found.ending, found.gaps) == ("complete", ())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"A.\n{LEFT}the pears", ("the pears",)),
        (f"A.\n{LEFT}What of it? And the figs.", ("What of it?", "And the figs.")),
        ("A.\n**Not answered here:** the pears", ("the pears",)),
        ("A.\nNot answered here:\n- the pears\n- the figs", ("the pears", "the figs")),
        ("A. It was Not answered here: no line of its own", ()),
        ("A.\n**Not Answered Here: the pears**\n\nSources: b.md", ("the pears",)),
        ("A.\n## NOT ANSWERED HERE:\n\n1. the pears\n2) the figs\n\nThat is all.", ("the pears", "the figs")),
        (f"A.\r\n{LEFT}two things:\r\n- the pears\r\n\r\n- the figs\r\n", ("the pears", "the figs")),
        (f"A.\n{LEFT}the pears\nin the loft\nSource: b.md", ("the pears in the loft",)),
        ("A.\nNot answered here:\nthe pears in the loft", ("the pears in the loft",)),
        (f"A.\n- {LEFT}the pears\n- The figs: 3", ("the pears",)),
        ("A.\nNot answered here\uff1a梨", ("梨",)),
        (f"A.\n~~~\nnever closed\n{LEFT}the pears", ("the pears",)),
        (f"A.\n> {LEFT}the pears", ()),
        (f"A.\n    {LEFT}the pears", ()),
        (f"A.\n{LEFT}Nothing. All parts were answered.", ()),
        (f"A.\n{LEFT}(none)", ()),
        (f"A.\n{LEFT}Nothing was left out.", ()),
        (f"A.\n{LEFT}Nothing of the pears was found.", ("Nothing of the pears was found.",)),
        (f"A.\n{LEFT}{'pears ' * 1000}", (f"{'pears ' * 66}pear",)),
    ],
)
def test_the_line_is_read_as_models_write_it(text: str, parts: tuple[str, ...]) -> None:
    assert missing_parts(text) == parts


def test_a_reply_that_is_one_block_of_code_says_it_too() -> None:
    assert missing_parts(f"```markdown\nA.\n{LEFT}the pears\n```") == ("the pears",)


async def test_a_result_with_a_shape_of_its_own_says_nothing_in_words() -> None:
    shape: dict[str, object] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    said = json.dumps({"text": PART})
    found = await team(model(work=[said]), Worker("ann", "counts", output=shape), plan=ONE).run("Count")
    assert (found.ending, found.gaps) == ("complete", ())


async def test_no_more_than_twenty_parts_of_one_result_are_gaps() -> None:
    listed = "\n".join(f"- part number {number}" for number in range(1, 31))
    found = await team(model(work=[f"12 apples.\n{LEFT.strip()}\n{listed}"])).run("Count")
    assert (found.ending, len(found.gaps)) == ("partial", 20)


# --- somebody else who was asked the same


async def test_what_another_who_was_asked_did_is_no_gap() -> None:
    def work(request: Request) -> Line:
        assert isinstance(request.subject, subjects.Working)
        return PART if request.subject.worker.name == "ann" else f"7 pears.\n{LEFT}Count the apples."

    executor = [Worker("ann", "counts apples"), Worker("bob", "counts pears")]
    asked = f"Count the apples. {PEARS}"
    both = await Team(executor, supervisor=Supervisor(model=model(work=work), strategy=Broadcast())).run(asked)
    assert (both.ending, both.gaps) == ("complete", ())
    alone = await Team(executor[:1], supervisor=Supervisor(model=model(work=work), strategy=Broadcast())).run(asked)
    assert (alone.ending, alone.gaps) == ("partial", (GAP,))


async def test_what_is_given_to_somebody_else_afterwards_is_no_gap() -> None:
    steps = iter(
        (
            {"done": False, "looping": False, "progress": True, "next": "ann", "instruction": "Count it.", "why": ""},
            {"done": False, "looping": False, "progress": True, "next": "bob", "instruction": PEARS, "why": "left"},
            {"done": True, "looping": False, "progress": True, "next": None, "instruction": "", "why": "all there"},
        )
    )

    def line(request: Request) -> Line:
        match request.subject:
            case subjects.ProgressLedger():
                return json.dumps(next(steps))
            case subjects.Working(worker=worker):
                return PART if worker.name == "ann" else "7 pears."
            case _:
                return "12 apples [t1], 7 pears [t2]."

    executor = [Worker("ann", "counts apples"), Worker("bob", "counts pears")]
    found = await Team(executor, supervisor=Supervisor(model=ScriptedModel(line, card=FREE), strategy=Loop())).run(
        "Count apples and pears"
    )
    assert len(found.results) == 2
    assert (found.ending, found.gaps) == ("complete", ())


async def test_who_works_from_the_part_does_not_make_it_whole() -> None:
    memo = Task(TaskId("t2"), f"Write a memo about this. {PEARS}", "ann", after=(Edge(TaskId("t1")),))
    tasks = Plan((*ONE.tasks, memo), "forward")
    found = await team(model(work=[PART, "A memo."]), plan=tasks).run("Count")
    assert (found.ending, found.gaps) == ("partial", (GAP,))


# --- teams inside, and the same once more


async def test_what_a_worker_of_a_team_inside_left_is_a_gap_outside() -> None:
    inner = team(model(work=[PART]), plan=ONE, name="cellar")
    outer = Plan((Task(TaskId("t1"), "Have it counted.", "cellar"),), "forward")
    found = await team(model(), inner.as_worker(), plan=outer).run("Count")
    assert found.ending == "partial"
    assert [(bool(one.run), one.task, one.message) for one in found.gaps] == [(True, TaskId("t1"), PEARS)]
    assert str(found.answer).count(PEARS) >= 1


@tool(effect="effect")
def sweep() -> str:
    """Sweep the yard."""
    return "swept"


@pytest.mark.parametrize("acts", [False, True])
async def test_once_more_the_part_is_asked_for_again_unless_something_was_changed(acts: bool) -> None:
    lines: list[Line] = [*([calls(call("sweep"))] if acts else []), PART, "12 apples, 7 pears."]
    journal = MemoryJournal()
    ann = Worker("ann", "counts", "There are 12 apples and 7 pears.", tools=[sweep])
    executor = team(model(work=lines), ann, journal=journal, plan=ONE)
    assert (await executor.run("Count", run="first")).ending == "partial"
    async with executor.executor() as staff:
        request = executor.request("Count", time.time())
        again = await Runner(journal, staff).fork("first", "second", request)
    assert again.ending == ("partial" if acts else "complete")
    end = replay(await journal.read("second")).ended
    assert end is not None
    assert end.ending == again.ending


async def test_the_list_of_runs_says_partial_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "runs.db"
    journal = await SqliteJournal.open(place)
    long = f"{'There are 12 apples. ' * 20_000}\n\n{LEFT}{PEARS}"  # lies in a file of its own
    for run, said in (("part", PART), ("whole", "12 apples, 7 pears."), ("long", long)):
        await team(model(work=[said]), journal=journal).run("Count", run=run)
    await journal.close()
    assert runs(Namespace(what="list", journal=place, json=True, limit=None)) == 0
    listed = msgspec.json.decode(capsys.readouterr().out, type=list[dict[str, object]])
    assert {one["run"]: one["state"] for one in listed} == {"part": "partial", "whole": "complete", "long": "partial"}
