"""Schedules of a team file: which times they mean, that each is begun once, and what is wrong with them."""

import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from chargehand.agents.schedules import Schedule
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.store_url import postgres_url
from tests.server.api import GOAL, garden, team_in
from tests.server.running import running, settings_in

MONDAY = datetime(2026, 11, 16, 9, 30, tzinfo=UTC).timestamp()


def test_the_next_and_the_latest_time_are_those_of_its_place() -> None:
    schedule = Schedule("morning", cron="0 8 * * 1-5", request="Report.", timezone="Europe/Berlin")
    assert datetime.fromtimestamp(schedule.next_time(MONDAY), UTC) == datetime(2026, 11, 17, 7, tzinfo=UTC)
    latest = schedule.latest_time(MONDAY, 3 * 3600)
    eight = datetime(2026, 11, 16, 7, tzinfo=UTC).timestamp()
    assert latest == eight
    assert schedule.latest_time(MONDAY, 3600) is None, "that is too long ago to be made up for"
    assert schedule.latest_time(eight, 60) == eight, "a time that is just now counts"


def test_a_time_that_the_clock_skips_is_made_up_for_and_one_that_comes_twice_is_made_once() -> None:
    night = Schedule("night", cron="30 2 * * *", request="Report.", timezone="Europe/Berlin")
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
    assert datetime.fromtimestamp(night.next_time(spring), UTC) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    autumn = night.next_time(datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp())
    assert datetime.fromtimestamp(autumn, UTC) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert datetime.fromtimestamp(night.next_time(autumn), UTC) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    often = Schedule("often", cron="*/30 * * * *", request="Report.", timezone="Europe/Berlin")
    second_hour = datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp()
    assert often.latest_time(second_hour + 5, 600) == second_hour


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


def scheduled_now(folder: Path, name: str = "garden") -> Path:
    """A team with a schedule whose time is now."""
    team = team_in(folder)
    now = datetime.now(UTC)  # noqa: TID251 - a schedule is for the real clock
    entry = f'schedules:\n  hourly: {{cron: "{now.minute} {now.hour} * * *", request: "{GOAL}"}}\n'
    team.write_text(team.read_text().replace("name: garden", f"name: {name}") + entry)
    return team


def scheduled_runs(client: httpx.Client, count: int) -> list[dict[str, object]]:
    """The runs of schedules, once there are so many."""
    deadline = time.monotonic() + 60
    while len(runs := client.get("/api/runs?label=schedule:hourly").json()["runs"]) < count:
        assert time.monotonic() < deadline, f"{len(runs)} runs were begun, not {count}"
        time.sleep(0.05)
    return runs


def test_a_time_is_begun_once_also_after_a_restart(tmp_path: Path) -> None:
    scheduled_now(tmp_path / "team")
    for _ in range(2):
        with garden(tmp_path) as home:
            (run,) = scheduled_runs(home.client, 1)
            assert run["goal"] == GOAL
            home.wait(str(run["run"]))


def test_schedules_of_two_teams_may_have_the_same_name(tmp_path: Path) -> None:
    teams = (scheduled_now(tmp_path / "a", "north"), scheduled_now(tmp_path / "b", "south"))
    with (
        running(settings_in(tmp_path / "data", teams=teams)) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        assert {run["team"] for run in scheduled_runs(client, 2)} == {"north", "south"}


def test_of_two_servers_on_one_database_one_begins_a_time(tmp_path: Path, postgres_store: str) -> None:
    teams = (scheduled_now(tmp_path / "team"),)
    store = postgres_url(postgres_store)
    with (
        running(settings_in(tmp_path / "a", teams=teams, store=store)) as first,
        running(settings_in(tmp_path / "b", teams=teams, store=store)) as second,
    ):
        for server in (first, second):
            with httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client:
                assert len(scheduled_runs(client, 1)) == 1
