"""Technical support: one request, one of three, and a plain no where it is nobody's business."""

from pathlib import Path

import pytest

from tests.cli.commands import chargehand
from tests.teams.bundled import TEAMS, accuracy, lacking, ran

TEAM = "tech_support"


def test_the_folder_has_all_that_a_team_brings() -> None:
    assert lacking(TEAM) == []


@pytest.mark.parametrize(
    ("example", "worker", "facts"),
    [
        ("1", "troubleshooter", ["waits for a server", "--timeout 300"]),
        ("2", "documenter", ["python -m venv .venv", "source .venv/bin/activate"]),
        ("3", "escalator", ["votes 214, status planned", "Amara Boyle", "a sample of ten rows"]),
        ("4", "troubleshooter", ["longer than the timeout of 60 seconds: 180 seconds"]),
        ("5", "escalator", ["Excel export", "214"]),
    ],
)
def test_a_request_goes_to_one_who_answers_it(tmp_path: Path, example: str, worker: str, facts: list[str]) -> None:
    found = ran(tmp_path, TEAM, "--example", example)
    assert (found.code, found.workers) == (0, {worker})
    found.holds(*facts)
    assert f"route to {worker}, confidence " in found.notes


def test_what_is_nobodys_business_is_refused_with_what_the_team_can_do(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert (found.code, found.workers) == (1, set())
    assert "No worker on the team fits this request" in found.gaps
    assert "escalator: Takes feature requests" in found.gaps


def test_what_nobody_has_asked_for_before_is_prepared_for_a_person(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "Please add a teleporter.")
    assert (found.code, found.workers) == (0, {"escalator"})
    found.holds("| teleporter | 0 | new | the shift lead |", "how many people need it")


def test_the_documenter_steps_in_where_the_known_problems_say_nothing(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "What shows when a job runs next?")
    assert found.workers == {"troubleshooter", "documenter"}
    found.holds("`drayman schedule list` shows when a job runs next")


def test_the_demo_model_reaches_its_gate(tmp_path: Path) -> None:
    cases = TEAMS / TEAM / "evals" / "golden.yaml"
    done = chargehand(tmp_path, "eval", cases, "--team", TEAMS / TEAM, "--model", "demo", "--no-save", "-q")
    assert (done.returncode, "passed" in done.stdout) == (0, True), done.stdout


def test_its_own_cases_hold(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1.0
    assert found["routing"] >= 0.85
    assert found["held_out"] >= 0.85
