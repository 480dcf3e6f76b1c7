"""Schedules of a team file: which times they mean, that each is begun once, and what is wrong with them."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chargehand.agents.schedules import Schedule
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from tests.server.api import GOAL, garden, team_in

MONDAY = datetime(2026, 11, 16, 9, 30, tzinfo=UTC).timestamp()


def test_the_next_and_the_latest_time_are_those_of_its_place() -> None:
    schedule = Schedule("morning", "0 8 * * 1-5", "Report.", "Europe/Berlin")
    assert datetime.fromtimestamp(schedule.next_time(MONDAY), UTC) == datetime(2026, 11, 17, 7, tzinfo=UTC)
    latest = schedule.latest_time(MONDAY, 3 * 3600)
    eight = datetime(2026, 11, 16, 7, tzinfo=UTC).timestamp()
    assert latest == eight
    assert schedule.latest_time(MONDAY, 3600) is None, "that is too long ago to be made up for"
    assert schedule.latest_time(eight, 60) == eight, "a time that is just now counts"


@pytest.mark.parametrize(
    ("cron", "timezone", "problem"),
    [
        ("every day", "UTC", "minute, hour"),
        ("61 8 * * *", "UTC", "61 8"),
        ("0 8 31 2 *", "UTC", "never comes"),
        ("0 8 * * *", "Europe/Nowhere", "no timezone"),
    ],
)
def test_times_that_cannot_be_understood_are_findings_of_the_file(
    tmp_path: Path, cron: str, timezone: str, problem: str
) -> None:
    team = team_in(tmp_path / "team")
    entry = f'schedules:\n  daily: {{cron: "{cron}", timezone: {timezone}, request: Report.}}\n'
    team.write_text(team.read_text() + entry)
    with pytest.raises(Invalid, match=problem) as caught:
        load_team(team)
    assert "schedules.daily" in str(caught.value)


def test_a_time_is_begun_once_also_after_a_restart(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    now = datetime.now(UTC)  # noqa: TID251 - a schedule is for the real clock
    entry = f'schedules:\n  hourly: {{cron: "{now.minute} {now.hour} * * *", request: "{GOAL}"}}\n'
    team.write_text(team.read_text() + entry)
    for _ in range(2):
        with garden(tmp_path) as home:
            deadline = time.monotonic() + 30
            while not (runs := home.client.get("/api/runs?label=schedule:hourly").json()["runs"]):
                assert time.monotonic() < deadline, "the run was not begun"
                time.sleep(0.05)
            assert len(runs) == 1
            assert runs[0]["goal"] == GOAL
            home.wait(runs[0]["run"])
