"""The research crew: one side to one researcher, all sides by tags, and what is found is there for everybody."""

from pathlib import Path

import pytest

from chargehand.config.load import load_team
from chargehand.memory.blocks import Block
from tests.cli.commands import chargehand
from tests.teams.bundled import TEAMS, accuracy, lacking, model_of, ran
from tests.teams.executors import asked, rows, workers

TEAM = "letta_crew"


def test_its_folder_is_complete() -> None:
    assert lacking(TEAM) == []


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_golden_cases_hold_and_its_routes_lead_where_they_should(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1
    assert found["routing"] >= 0.9
    assert found["held_out"] >= 0.75


def test_tags_choose_the_researchers() -> None:
    team = load_team(TEAMS / TEAM, model=model_of(TEAM))
    assert team.matching(["worker"], ["technical"]) == ("technical",)
    assert team.matching(["worker"], ["market"]) == ("market",)
    assert team.matching(["worker", "research"], []) == ("technical", "market", "academic")
    assert team.matching(["supervisor"], []) == ("lead",)


@pytest.mark.parametrize(
    ("request_", "worker", "fact"),
    [
        ("What does the documentation say about creating an agent?", "technical", "POST /v1/agents"),
        ("Which framework has the highest price?", "market", "Rookery"),
        ("What do papers say about delegation?", "academic", "3.4 times as many tokens"),
    ],
)
def test_a_question_with_one_side_goes_to_one_researcher(request_: str, worker: str, fact: str) -> None:
    result = asked(TEAM, request_)
    assert (result.ending, workers(result)) == ("complete", {worker})
    assert fact in str(result.answer)


def test_a_comprehensive_one_is_asked_of_everybody_by_whoever_leads(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "3")
    assert found.code == 0
    assert "lead" in found.workers
    for fact in ("3 replied", "technical: ", "market: ", "academic: ", "open source", "Forty crews of agents"):
        assert fact in found.answer


def test_where_nobody_has_an_answer_there_is_none() -> None:
    result = asked(TEAM, "Conduct a comprehensive analysis of Sparrow from all perspectives.")
    assert result.ending == "failed"
    assert "none of the 3 who were asked had an answer" in result.gaps[0].message


def test_findings_of_one_run_are_known_to_the_next(tmp_path: Path) -> None:
    first = ran(tmp_path, TEAM, "What do papers say about shared memory? Keep it in the archive tagged memory.")
    assert (first.code, first.workers) == (0, {"academic"})
    found = chargehand(tmp_path, "memory", "--team", TEAMS / TEAM, "search", "research_findings", "shared memory")
    assert "38 percent fewer searches" in found.stdout
    assert "#memory" in found.stdout


async def test_everybody_reads_the_guidelines_and_nobody_writes_them() -> None:
    team = load_team(TEAMS / TEAM, model=model_of(TEAM))
    async with team.remembering() as memory:
        (block,) = await memory.catalog.find(Block, name="research_guidelines")
    assert block.trusted
    assert "Name the source of every claim" in block.value


def test_downloads_are_those_of_the_file() -> None:
    answer = str(asked(TEAM, "How many downloads did each framework have in June 2026? Draw a chart of it.").answer)
    june = {
        one["framework"]: int(one["downloads"]) for one in rows(TEAM, "data/months.csv") if "2026-06" in one["month"]
    }
    assert len(june) == 5
    for framework, number in june.items():
        assert f"| {framework} | {number:,} |" in answer
