"""The expert router: each request to the expert it is for, the rest to the desk, and wrong routes unlearnt."""

from pathlib import Path

import pytest

from tests.cli.commands import chargehand
from tests.teams.bundled import accuracy, lacking, ran

TEAM = "expert_router"


def test_the_folder_has_all_that_a_team_brings() -> None:
    assert lacking(TEAM) == []


@pytest.mark.parametrize(
    ("example", "worker", "facts"),
    [
        ("1", "legal", ["within 60 days after the keys are returned"]),
        ("2", "medical", ["cooled under running water for 10 minutes"]),
        ("3", "technical", ["set the channel to 1, 6 or 11"]),
        ("4", "financial", ["Monthly instalment 212.13", "interest in all 5,455.60"]),
        ("5", "desk", ["from 9:00 to 17:00"]),
        ("6", "medical", ["Body mass index (normal): 24.7"]),
    ],
)
def test_a_request_goes_to_the_expert_it_is_for(tmp_path: Path, example: str, worker: str, facts: list[str]) -> None:
    found = ran(tmp_path, TEAM, "--example", example)
    assert (found.code, found.workers) == (0, {worker})
    found.holds(*facts)


def test_what_is_for_no_expert_goes_to_the_desk_which_does_not_guess(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "7")
    assert (found.code, found.workers) == (1, {"desk"})
    assert "football" in found.gaps


def test_a_wrong_route_is_unlearnt(tmp_path: Path) -> None:
    request = "Should I put everything into shares?"
    assert ran(tmp_path, TEAM, request).workers == {"desk"}
    told = chargehand(tmp_path, "feedback", "one", "bad", "--worker", "financial")
    assert told.returncode == 0, told.stderr
    assert ran(tmp_path, TEAM, request, run="two").workers == {"financial"}


def test_its_own_cases_hold(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1.0
    assert found["routing"] >= 0.85
    assert found["held_out"] >= 0.8
