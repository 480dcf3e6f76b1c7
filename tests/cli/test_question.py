"""Whoever is asked sees what they approve: every argument, whole, and nothing that a model could fake or hide."""

import asyncio
import json
from pathlib import Path

from msgspec import structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.cli.questions import format_question
from chargehand.engine import events as ev
from chargehand.engine.failure import EarlierCall, PendingCall
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Reply, ToolCall
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.cli.commands import JOURNAL, chargehand

ORDER = {
    "supplier": "Ott & Sons, " + "purveyors of fine seedlings to the gentry " * 10,
    "euros": 120_000,
    "note": "fine\r\n  euros: 1\n\x1b[2K\x1b[1A\x1b[8mhidden\x9b2J \u202eesrever\u202c \u200b.",
    "to": {"iban": ["DE02", "DE03"], "odd key\n": None},
}


async def _asked(journal: Path, arguments: object) -> None:
    @tool(effect="effect", approve=True)
    def pay(supplier: str, euros: int, note: str, to: dict[str, object]) -> str:
        """Pay a supplier."""
        return f"{supplier} {euros} {note} {to}"

    wants = Reply(calls=(ToolCall("1", "pay", json.dumps(arguments)),), finish="tools")
    clerk = Worker("clerk", "pays", tools=[pay], model=ScriptedModel([wants, "Done."]))
    opened = await SqliteJournal.open(journal)
    try:
        plan = Plan((Task(TaskId("bill"), "Pay Ott.", "clerk"),), "forward")
        found = await Team([clerk], supervisor=Supervisor(plan=plan), journal=opened).run("Pay the bill.", run="may")
        assert found.ending == "needs_input"
    finally:
        await opened.close()


def test_runs_show_shows_every_argument_whole_and_nothing_steers_the_terminal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_asked(tmp_path / JOURNAL, ORDER))
    shown = chargehand(tmp_path, "runs", "show", "may").stdout
    lines = [line.strip() for line in shown.splitlines()]
    assert "pay, wanted by clerk" in lines
    assert '"euros": 120000,' in lines
    assert not [line for line in lines if line.startswith("euros: 1") and line != '"euros": 120000,'], "a faked line"
    assert "".join("".join(lines).split()).count("purveyorsoffineseedlingstothegentry") == 10
    assert '"DE02",' in lines
    assert not [sign for sign in "\x1b\x9b\u202e\u200b\r" if sign in shown]
    assert "\\u001b[2K" in shown


def test_a_question_is_shown_whole() -> None:
    question = ev.Question(
        what="tool",
        tool="pay",
        arguments=dict(ORDER),
        because="tainted",
        workers=("in", "clerk"),
        run="may/o/1/1/ab",
        task=TaskId("bill"),
    )
    lines = format_question(ev.InputRequested(1, "tool", TaskId("o"), "pay(…)", question))
    joined = "".join("".join(line.split()) for line in lines)
    for value in ORDER.values():
        for part in json.dumps(value, ensure_ascii=True).split("\\u")[0].split():
            assert part.strip('",{}[]') in joined
    assert "wantedbyin>clerkinrunmay/o/1/1/ab,taskbill" in joined
    assert "hasseentextfromoutside" in joined


def test_a_repeated_call_is_shown_with_the_earlier_one_and_its_result() -> None:
    earlier = EarlierCall("pay", {"bill": "A"}, "receipt 7", at=1_795_000_000.0, run="april", task=TaskId("t1"))
    again = PendingCall(2, "pay(A)", "pay", {"bill": "A"}, "repeated", earlier=earlier)
    begun = structs.replace(earlier, arguments={"bill": "B"}, result=None, happened=False, run="")
    question = ev.Question("tool", "pay", {"bill": "A"}, "repeated", ("clerk",), call=1, also=(again,), earlier=begun)
    assert format_question(ev.InputRequested(1, "tool", TaskId("bill"), "pay(A)", question)) == [
        "call 1: pay, wanted by clerk",
        "  asked because it repeats a call of this run, task t1, 2026-11-18 11:06:40 UTC",
        "  its arguments were:",
        "    {",
        '      "bill": "B"',
        "    }",
        "  it is not known whether that call happened",
        "  {",
        '    "bill": "A"',
        "  }",
        "call 2: pay, wanted by clerk",
        "  asked because it repeats a call of run april, task t1, 2026-11-18 11:06:40 UTC",
        "  its result was:",
        '    "receipt 7"',
        "  {",
        '    "bill": "A"',
        "  }",
    ]


async def _asked_inside(journal: Path) -> str:
    @tool(effect="effect", approve=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    wants = Reply(calls=(ToolCall("1", "pay", '{"euros": 120}'),), finish="tools")
    clerk = Worker("clerk", "pays", tools=[pay], model=ScriptedModel([wants, "Done."]))
    bill = Plan((Task(TaskId("bill"), "Pay 120 euros.", "clerk"),), "forward")
    inner = Team([clerk], supervisor=Supervisor(plan=bill), name="inner")
    opened = await SqliteJournal.open(journal)
    try:
        plan = Plan((Task(TaskId("o"), "Have the bill paid.", "in"),), "forward")
        found = await Team([inner.as_worker("in", "pays")], supervisor=Supervisor(plan=plan), journal=opened).run(
            "Pay.", run="may"
        )
    finally:
        await opened.close()
    assert found.question is not None
    assert found.question.question is not None
    return found.question.question.run


def test_what_a_run_inside_asks_is_shown_with_who_asks_and_answered_in_the_outer_run(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).parent.mkdir(parents=True, exist_ok=True)
    inside = asyncio.run(_asked_inside(tmp_path / JOURNAL))
    shown = [line.strip() for line in chargehand(tmp_path, "runs", "show", "may").stdout.splitlines()]
    assert f"pay, wanted by in > clerk in run {inside}, task bill" in shown
    assert '"euros": 120' in shown
    (tmp_path / "team.yaml").write_text("version: 1\nname: inner\nworkers: {clerk: {description: Pays bills.}}\n")
    done = chargehand(tmp_path, "resume", inside, "--approve", "--team", "team.yaml")
    assert done.returncode == 2, done.stderr
    assert "works for run 'may'; answer that one: chargehand resume may" in done.stderr
