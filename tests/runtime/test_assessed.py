"""How far an answer can be relied on, read off the journal alone: no model is asked again."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from chargehand.agents.audit.assessment import Traced, assess
from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.events import Entry
from chargehand.engine.facts import Ruling
from chargehand.engine.fold import replay
from chargehand.engine.plan import Combine, Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.messages import Request
from chargehand.models.request_facts import Judging, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import call, calls
from tests.cli.commands import chargehand

ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
CLASH = ("There are 12 apples in the cellar.", "There are 14 apples in the cellar.")


class Crowd(ScriptedModel):
    """One worker for each thing that is said, a judge that always rules alike, and somebody who writes the answer."""

    def __init__(self, said: Sequence[Line], answer: str, ruling: Line = "") -> None:
        def line(request: Request) -> Line:
            if isinstance(request.subject, Working):
                return said[int(request.subject.worker.name[1:]) - 1]
            return ruling if isinstance(request.subject, Judging) else answer

        super().__init__(line, repeat=True)


async def ran(
    said: Sequence[Line], answer: str, ruling: Line = "", combine: Combine = "merge", instructions: str = ""
) -> Result:
    workers = [Worker(f"w{at}") for at in range(1, len(said) + 1)]
    tasks = tuple(Task(TaskId(f"t{at}"), "Count the apples.", one.name) for at, one in enumerate(workers, 1))
    model = Crowd(said, answer, ruling)
    team = Team(
        workers, supervisor=Supervisor(model=model, plan=Plan(tasks, combine), instructions=instructions), policy=ONCE
    )
    found = await team.run("How many apples are there?")
    asked = len(model.requests)
    assert found.assessment is found.assessment
    assert len(model.requests) == asked  # nobody was asked for it
    return found


async def test_every_claim_says_what_it_cites_and_whether_that_bears_it_out() -> None:
    found = await ran(CLASH[:1], "There are 12 apples [t1] and 21 pears [t1], see https://pears.example.")
    assert [(one.kind, one.text, one.cited, one.is_supported) for one in found.claims] == [
        ("url", "https://pears.example", ("t1",), False),
        ("number", "12", ("t1",), False),
        ("number", "21", ("t1",), False),
    ]
    assert [(one.text, one.origin) for one in found.claims] == [
        ("https://pears.example", ""),
        ("12", "words"),
        ("21", ""),
    ]
    assert found.traced == Traced(words=1, nowhere=2)
    assert found.assessment.line == "1 figure traced only to a worker's words, 2 to nothing"
    assert (found.ending, [gap.message for gap in found.gaps]) == (
        "partial",
        ["https://pears.example: no tool returned it", "21: no tool returned it"],
    )


async def test_what_the_team_was_told_may_be_said_again() -> None:
    found = await ran(CLASH[:1], "There are 12 apples [t1]. A crate holds 40.", instructions="A crate holds 40 apples.")
    assert [one.origin for one in found.claims] == ["words", "input"]
    assert found.traced == Traced(given=1, words=1)


def price(plant: str) -> float:
    """Look up the price of a seedling."""
    return {"tomato": 1.25}[plant]


PRICED = calls(call("price", plant="tomato"))


async def ran_with_tools(said: Sequence[Line], answer: str, combine: Combine = "merge") -> Result:
    """One worker that has a tool and one task; `said` are its replies, one after the other."""
    worker = Worker("w1", tools=[price], model=ScriptedModel(said, repeat=True))
    plan = Plan((Task(TaskId("t1"), "What do they cost?", "w1"),), combine)
    team = Team([worker], supervisor=Supervisor(model=ScriptedModel([answer], repeat=True), plan=plan), policy=ONCE)
    return await team.run("What do 40 tomato seedlings cost in 3 boxes, by 3 May 2026?")


@pytest.mark.parametrize(
    ("said", "answer", "origins", "traced"),
    [
        pytest.param(
            ["You asked about 40 seedlings."],
            "You asked about 40 seedlings [t1].",
            [("40", "input")],
            Traced(given=1),
            id="of the request",
        ),
        pytest.param(
            ["40 seedlings and 3 boxes, together 43."],
            "40 seedlings and 3 boxes, together 43 [t1].",
            [("40", "input"), ("3", "input"), ("43", "input")],
            Traced(given=3),
            id="worked out from the request",
        ),
        pytest.param(["By 3 May 2026."], "By 3 May 2026 [t1].", [("3 May 2026", "input")], Traced(given=1), id="a day"),
        pytest.param(
            ["They grow best where it is warm."],
            'It says "they grow best where it is warm" [t1].',
            [("they grow best where it is warm", "words")],
            Traced(words=1),
            id="a worker's prose",
        ),
        pytest.param(
            ["They cost 48 euros."], "They cost 48.0 euros [t1].", [("48.0", "")], Traced(nowhere=1), id="made up"
        ),
        pytest.param(
            [PRICED, "One is 1.25, so 40 are 50."],
            "One is 1.25, so 40 are 50 [t1].",
            [("1.25", "tool"), ("40", "input"), ("50", "tool")],
            Traced(tools=2, given=1),
            id="of a tool",
        ),
    ],
)
async def test_only_what_tools_returned_is_traced_to_tools(
    said: Sequence[Line], answer: str, origins: list[tuple[str, str]], traced: Traced
) -> None:
    found = await ran_with_tools(said, answer)
    assert [(claim.text, claim.origin) for claim in found.claims] == origins
    assert found.traced == traced
    assert (found.ending == "partial") == bool(traced.nowhere)
    assert (await ran_with_tools(said, answer, "forward")).traced.tools == traced.tools


async def test_a_result_that_is_used_again_keeps_what_its_figures_rest_on() -> None:
    worker = Worker("w1", tools=[price], model=ScriptedModel(["You asked about 40 seedlings."], repeat=True))
    plan = Plan((Task(TaskId("t1"), "What do they cost?", "w1"),), "merge")
    writer = ScriptedModel(["You asked about 40 seedlings [t1]."], repeat=True)
    team = Team([worker], supervisor=Supervisor(model=writer, plan=plan), policy=ONCE, cache="1h")
    first = await team.run("What do 40 seedlings cost?")
    again = await team.run("What do 40 seedlings cost?")
    assert [type(entry.event).__name__ for entry in again.entries].count("ResultReused") == 1
    assert first.traced == again.traced == Traced(given=1)


@pytest.mark.parametrize(
    ("ruling", "expected", "counted"),
    [
        (
            {"why": "It counted: twice.", "ruling": "14", "winner": "t2"},
            Ruling("t2", "It counted: twice.", "14", ("t2",)),
            "ruled on",
        ),
        (
            {"why": "Neither shows it.", "ruling": "open", "winner": None},
            Ruling("", "Neither shows it.", "open"),
            "open",
        ),
        ("no JSON", None, "open"),
    ],
)
async def test_a_contradiction_is_told_with_its_ruling_and_why(
    ruling: object, expected: Ruling | None, counted: str
) -> None:
    said = ruling if isinstance(ruling, str) else json.dumps(ruling)
    found = await ran(CLASH, "There are 12 or 14 apples [t1, t2].", said)
    (one,) = found.contradictions
    assert one.contradiction.values == (("t1", "12"), ("t2", "14"))
    assert one.ruling == expected
    assert f"1 contradiction {counted}" in found.assessment.line
    assert found.assessment.line in str(found.answer)  # the same that stands below the answer


async def test_what_is_missing_lowers_the_coverage() -> None:
    gone = calls(call("give_up", reason="dark"))
    found = await ran([CLASH[0], gone, gone], "There are 12 apples [t1].")
    assert (found.coverage.covered, found.coverage.missing) == (("t1",), ("t2", "t3"))
    assert (found.coverage.share, found.ending) == (1 / 3, "partial")


@pytest.mark.parametrize("combine", ["forward", "vote", "none"])
async def test_what_is_handed_through_has_no_claims(combine: Combine) -> None:
    found = await ran((CLASH[0], CLASH[0]), "never asked", combine=combine)
    assert (found.claims, found.contradictions, found.ending) == ((), (), "complete")
    assert found.coverage.covered == ("t1", "t2")
    assert found.traced == Traced(words=1 if combine == "vote" else 2)


async def test_a_run_without_a_result_has_nothing_to_count() -> None:
    found = await ran([calls(call("give_up", reason="dark"))], "never asked")
    assert (found.ending, found.traced, found.coverage.share) == ("failed", Traced(), 0.0)


async def test_a_journal_that_was_written_and_read_again_says_the_same() -> None:
    found = await ran(CLASH, "There are 13 apples [t1].", json.dumps({"why": "so", "ruling": "x", "winner": "t1"}))
    entries = msgspec.json.decode(msgspec.json.encode(found.entries), type=tuple[Entry, ...])
    assert assess(replay(entries)) == found.assessment
    told = found.assessment.lines()
    assert told[0] == "checked: 1 figure traced to nothing; 1 contradiction ruled on; not used: t2"
    assert told[1].startswith("  not traced: 13, cited from [t1]; said in: There are 13 apples")
    assert told[2] == "  - apples in the cellar: 12 [t1] or 14 [t2]. Ruled for 12 [t1]: so."


def test_the_answer_says_it_in_a_line_and_the_command_in_full_afterwards(tmp_path: Path) -> None:
    (tmp_path / "gauges.py").write_text(
        'def one() -> str:\n    """The level of the river."""\n    return \'The level of the river is 212 cm.\'\n\n\n'
        'def two() -> str:\n    """The level of the river."""\n    return \'The level of the river is 150 cm.\'\n'
    )
    (tmp_path / "team.yaml").write_text(
        "version: 1\nname: gauges\nsupervisor: {strategy: broadcast}\nworkers:\n"
        "  left: {description: Reads the left gauge., tools: [one]}\n"
        "  right: {description: Reads the right gauge., tools: [two]}\n"
        'tools:\n  one: {python: "gauges:one"}\n  two: {python: "gauges:two"}\n'
    )
    done = chargehand(tmp_path, "run", "What is the level of the river?", "--run", "one")
    assert done.returncode == 0, done.stderr
    line = "checked: 2 figures traced to tools; 1 contradiction open"
    assert line not in done.stderr, "the answer says it"
    section = f"Checked: {line.removeprefix('checked: ')}."
    assert section in done.stdout
    shown = chargehand(tmp_path, "runs", "show", "one").stdout
    assert shown.count(line.removeprefix("checked: ")) == 1, "in the answer, and nowhere else"
    assert "212 cm [t1] or 150 cm [t2]. This is open: Which of the results holds" in shown.partition(section)[2]
    told = json.loads(chargehand(tmp_path, "run", "What is the level of the river?", "--json", "-q").stdout)
    assert told["traced"] == {"tools": 2, "given": 0, "words": 0, "nowhere": 0}
    assert told["untraced"] == []
    assert told["contradictions"][0]["values"] == {"t1": "212 cm", "t2": "150 cm"}
    assert [one["origin"] for one in told["claims"]] == ["tool", "tool"]
    assert told["coverage"]["share"] == 1.0
