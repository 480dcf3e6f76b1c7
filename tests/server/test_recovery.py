"""What a stop left open goes on by itself when the server starts again; what nobody here can go on with is told."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from chargehand.config.load import load_team
from chargehand.engine.events import Entry, Event, PauseSet, RunEnded, RunReleased, RunRequested
from chargehand.engine.fold import replay
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import read_run
from chargehand.server.run_control import goes_on
from chargehand.server.settings import ResumedRuns, ServerLimits
from tests.server.running import Running, running, settings_in

GOAL = "Show the revenue per country in May 2026"


def request(**changes: object) -> RunRequested:
    return structs.replace(load_team().request(GOAL, time.time()), **changes)


def leave_open(folder: Path, **runs: tuple[Event, ...]) -> None:
    """Runs of which the first entries are on disk, as after a crash."""

    folder.mkdir(parents=True, exist_ok=True)

    async def write() -> None:
        journal = await SqliteJournal.open(folder / "runs.db")
        for name, events in runs.items():
            lease = await journal.claim(name, new=True)
            await journal.append(lease, [Entry(at, time.time(), one) for at, one in enumerate(events, 1)])
            await journal.release(lease)
        await journal.close()

    asyncio.run(write())


def ready(one: Running) -> dict[str, int]:
    return httpx.get(f"{one.url}/readyz", headers=one.headers).json()


def until_ended(folder: Path, run: str, seconds: float = 20.0) -> RunEnded:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        last = read_run(folder / "runs.db", run)[-1].event
        if isinstance(last, RunEnded):
            return last
        time.sleep(0.05)
    raise AssertionError(f"{run} did not end")


def test_open_runs_of_a_team_are_gone_on_with_to_their_end(tmp_path: Path) -> None:
    leave_open(tmp_path / "main", one=(request(),), two=(request(),))
    with running(settings_in(tmp_path)) as server:
        assert until_ended(tmp_path / "main", "one").ending == "complete"
        assert until_ended(tmp_path / "main", "two").ending == "complete"
        assert (ready(server)["resumed"], ready(server)["left"]) == (2, 0)


def test_a_run_of_a_team_that_is_not_served_any_more_is_left_and_told(tmp_path: Path) -> None:
    leave_open(tmp_path / "main", one=(request(team="gone"),), two=(request(),))
    with running(settings_in(tmp_path)) as server:
        until_ended(tmp_path / "main", "two")
        for _ in range(400):
            if ready(server)["left"]:
                break
            time.sleep(0.05)
        assert ready(server)["left"] == 1
    assert len(read_run(tmp_path / "main" / "runs.db", "one")) == 1


@pytest.mark.parametrize(("resume", "resumed"), [("crashed", 1), ("none", 0)])
def test_the_operator_says_which_open_runs_are_resumed(tmp_path: Path, resume: ResumedRuns, resumed: int) -> None:
    leave_open(tmp_path / "main", stopped=(request(), RunReleased()), crashed=(request(),))
    with running(settings_in(tmp_path, resume=resume)) as server:
        if resumed:
            assert until_ended(tmp_path / "main", "crashed").ending == "complete"
        until = time.monotonic() + 20.0
        while ready(server)["left"] < 2 - resumed and time.monotonic() < until:
            time.sleep(0.05)
        assert (ready(server)["resumed"], ready(server)["left"]) == (resumed, 2 - resumed)
    assert len(read_run(tmp_path / "main" / "runs.db", "stopped")) == 2


def test_a_run_that_was_paused_stays_paused(tmp_path: Path) -> None:
    leave_open(tmp_path / "main", one=(request(), PauseSet(paused=True)), two=(request(),))
    with running(settings_in(tmp_path)):
        until_ended(tmp_path / "main", "two")
    assert len(read_run(tmp_path / "main" / "runs.db", "one")) == 2


def test_a_run_that_waits_for_a_person_is_left_to_them(tmp_path: Path) -> None:
    asks = request(policy=structs.replace(request().policy, approve=True))
    leave_open(tmp_path / "main", one=(asks,), two=(request(),))
    with running(settings_in(tmp_path)):  # it goes on until it asks
        until_ended(tmp_path / "main", "two")
        for _ in range(400):
            if replay(read_run(tmp_path / "main" / "runs.db", "one")).input is not None:
                break
            time.sleep(0.05)
        assert not goes_on(replay(read_run(tmp_path / "main" / "runs.db", "one")))
    known = len(read_run(tmp_path / "main" / "runs.db", "one"))
    leave_open(tmp_path / "main", three=(request(),))
    with running(settings_in(tmp_path)):
        until_ended(tmp_path / "main", "three")
    assert len(read_run(tmp_path / "main" / "runs.db", "one")) == known


def test_tenants_with_open_runs_are_served_again_before_they_call(tmp_path: Path) -> None:
    leave_open(tmp_path / "other", one=(request(),))
    leave_open(tmp_path / "idle", one=(request(), RunEnded("failed", "no_results", ())))
    (tmp_path / "idle" / "memory.db").unlink(missing_ok=True)
    with running(settings_in(tmp_path)):
        assert until_ended(tmp_path / "other", "one").ending == "complete"
    assert not (tmp_path / "idle" / "memory.db").exists()  # nobody had anything to do there


def test_recovery_waits_for_places_and_forgets_nobody(tmp_path: Path) -> None:
    leave_open(tmp_path / "main", **{f"r{number}": (request(),) for number in range(5)})
    settings = settings_in(tmp_path, limits=ServerLimits(runs=2, waiting=1))
    with running(settings) as server:
        for number in range(5):
            until_ended(tmp_path / "main", f"r{number}", 40)
        assert ready(server)["resumed"] == 5
