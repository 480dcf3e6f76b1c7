"""What a run writes, over HTTP: in order, each entry once, over any number of reconnects."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.server_parts import serving
from chargehand.engine.events import Entry, Noted
from chargehand.journal.sqlite import SqliteJournal
from tests.server.api import BOTH, Garden, garden, key_for, team_in
from tests.server.sse_load import load


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    with garden(tmp_path_factory.mktemp("garden")) as found:
        yield found


@pytest.fixture
def home(shared: Garden) -> Garden:
    return shared.free()


def events(text: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in lines:
            found.append(lines)
    return found


def stream(home: Garden, path: str, seen: str = "") -> httpx.Response:
    return home.client.get(path, headers={"Last-Event-ID": seen} if seen else {})


def finished(home: Garden) -> tuple[str, int]:
    run = home.begin(BOTH)
    shown: Any = home.wait(run)
    return run, shown["summary"]["entries"]


def test_entries_are_told_in_parts_and_say_when_nothing_follows(home: Garden) -> None:
    run, last = finished(home)
    path = f"/api/runs/{run}/entries"
    first = home.client.get(path, params={"limit": 5}).json()
    rest = home.client.get(path, params={"after": first["last"]}).json()
    assert [one["seq"] for one in first["entries"] + rest["entries"]] == list(range(1, last + 1))
    assert (first["over"], rest["over"], rest["last"]) == (False, True, last)
    assert first["entries"][0]["event"]["type"] == "run.requested"
    assert home.client.get(path, params={"after": last + 1}).status_code == 409


def test_a_stream_names_every_entry_by_its_number_and_type_and_ends_with_the_run(home: Garden) -> None:
    home.hold()
    run = home.begin(BOTH)
    home.tool_called(run)
    with home.client.stream("GET", f"/api/runs/{run}/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-store"
        home.let_go()
        text = "".join(reply.iter_text())
    assert text.startswith("retry: 1000\n\n")
    found = events(text)
    assert [int(one["id"]) for one in found] == list(range(1, len(found) + 1))
    assert all(json.loads(one["data"])["event"]["type"] == one["event"] for one in found)
    assert found[-1]["event"] == "run.ended"


def test_who_comes_back_goes_on_behind_what_was_seen_and_204_says_that_it_is_over(home: Garden) -> None:
    run, last = finished(home)
    path = f"/api/runs/{run}/events"
    assert int(events(stream(home, path, "7").text)[0]["id"]) == 8
    assert int(events(stream(home, f"{path}?after=7").text)[0]["id"]) == 8
    assert int(events(stream(home, f"{path}?after=3", "7").text)[0]["id"]) == 8
    assert stream(home, path, str(last)).status_code == 204
    assert stream(home, path, "x").status_code == 422
    assert stream(home, path, str(last + 5)).status_code == 409


def test_entries_are_a_stream_to_who_asks_for_one(home: Garden) -> None:
    run, last = finished(home)
    reply = home.client.get(f"/api/runs/{run}/entries", headers={"Accept": "text/event-stream"})
    assert len(events(reply.text)) == last


def test_several_runs_come_in_one_stream_and_each_goes_on_where_it_was(home: Garden) -> None:
    one = finished(home)
    other = finished(home)
    path = f"/api/events?run={one[0]}&run={other[0]}"
    found = events(stream(home, path).text)
    by_run: dict[str, list[int]] = {}
    for each in found:
        said = json.loads(each["data"])
        by_run.setdefault(said["run"], []).append(said["seq"])
    assert by_run == {run: list(range(1, last + 1)) for run, last in (one, other)}
    middle = found[len(found) // 2]["id"]
    rest = events(stream(home, path, middle).text)
    assert len(rest) == sum((one[1], other[1])) - sum(map(int, middle.split(".")))
    assert stream(home, path, f"{one[1]}.{other[1]}").status_code == 204
    assert stream(home, path, "3").status_code == 422


def test_no_stream_has_anything_of_another_tenant(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        run, _ = finished(home)
        other = key_for(tmp_path, "lab")
        for path in (f"/api/runs/{run}/events", f"/api/events?run={run}"):
            assert home.client.get(path, headers=other).status_code == 404


def test_more_streams_than_there_are_seats_are_refused_and_a_seat_is_free_again(tmp_path: Path) -> None:
    from chargehand.server.settings import ServerLimits

    with garden(tmp_path, limits=ServerLimits(streams=1)) as home:
        run = home.begin(BOTH, approve=True)
        home.wait(run, "needs_input")
        path = f"/api/runs/{run}/events"
        with home.client.stream("GET", path) as reply:
            parts = reply.iter_raw()  # held on to: whoever drops it hangs up
            next(parts)
            refused = home.client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "streams")
        for _ in range(500):
            with home.client.stream("GET", path) as reply:
                if reply.status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError("the seat was not given back")


def test_a_run_is_exported_as_a_trace_and_as_lines(home: Garden) -> None:
    run, last = finished(home)
    trace = home.client.get(f"/api/runs/{run}/trace").json()
    assert (trace["run"], trace["ending"], len(trace["tasks"])) == (run, "complete", 2)
    lines = home.client.get(f"/api/runs/{run}/trace", params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, last + 1))


def test_many_who_are_cut_off_again_and_again_miss_nothing_and_see_nothing_twice(home: Garden) -> None:
    served = home.server
    found = asyncio.run(load(served.port, served.token, clients=40, runs=2, tasks=5, cuts=4))
    assert found.wrong == []
    assert found.cuts > 40
    assert found.delivered == found.entries * 20


def test_a_server_that_stops_ends_its_streams_in_order_and_the_next_one_goes_on_with_them(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    with serving(tmp_path / "data", "--team", str(team)) as served:
        headers = {"Authorization": f"Bearer {served.token}"}
        with httpx.Client(base_url=served.url, headers=headers, timeout=20) as client:
            body = {"team": "garden", "goal": BOTH, "approve": True}
            run = client.post("/api/runs", json=body).json()["run"]
            with client.stream("GET", f"/api/runs/{run}/events") as reply:
                parts = reply.iter_text()
                text = next(parts)
                served.process.terminate()
                text += "".join(parts)
        assert served.process.wait(10) == 0
    seen = events(text)[-1]["id"]
    with garden(tmp_path) as home:
        home.client.post(f"/api/runs/{run}/plan", json={"number": 1, "verdict": "approve"})
        found = events(stream(home, f"/api/runs/{run}/events", seen).text)
        assert int(found[0]["id"]) == int(seen) + 1
        assert found[-1]["event"] == "run.ended"


async def test_the_runs_inside_a_run_are_found_by_name_and_no_others(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    for name in ("r", "r/a", "r/a/b", "r-2", "r0", "r.x", "q/r/a", "r/é"):
        lease = await journal.claim(name, new=True)
        await journal.append(lease, [Entry(1, 1.0, Noted("here"))])
        await journal.release(lease)
    assert await journal.inside("r") == ["r/a", "r/a/b", "r/é"]
    assert await journal.inside("r/a") == ["r/a/b"]
    assert await journal.inside("nobody") == []
    await journal.close()


def test_a_damaged_run_is_told_up_to_the_damage_and_the_others_whole(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        (damaged, last), (sound, last_of_sound) = finished(home), finished(home)
        (journal,) = tmp_path.rglob("runs.db")
        with closing(sqlite3.connect(journal)) as connection:
            number = connection.execute("SELECT number FROM runs WHERE run = ?", (damaged,)).fetchone()[0]
            connection.execute("UPDATE entries SET at = 'x' WHERE run = ? AND seq = 6", (number,))
            connection.commit()
        told = home.client.get(f"/api/runs/{damaged}/entries").json()
        assert [one["seq"] for one in told["entries"]] == [1, 2, 3, 4, 5]
        assert f"entry 6 of run '{damaged}' is damaged" in told["damage"]
        assert told["over"] is False
        assert home.client.get(f"/api/runs/{damaged}/entries", params={"limit": 2}).json()["damage"] == ""
        for path in (f"/api/runs/{damaged}", f"/api/runs/{damaged}/entries?after=5"):
            refused = home.client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (500, "corrupt")
            assert f"entry 6 of run '{damaged}' is damaged" in refused.json()["detail"]
        streamed = home.client.get(f"/api/runs/{damaged}/events?after=2").text
        assert [line for line in streamed.splitlines() if line.startswith("id: ")] == ["id: 3", "id: 4", "id: 5"]
        assert streamed.split("event: ")[-1].startswith("damaged\n")
        assert f"entry 6 of run '{damaged}' is damaged" in streamed.split("event: ")[-1]
        assert home.client.get(f"/api/runs/{damaged}/events", headers={"last-event-id": "5"}).status_code == 500
        for query in ("", "?nested=true"):
            traced = home.client.get(f"/api/runs/{damaged}/trace{query}")
            assert traced.status_code == 200
            assert f"entry 6 of run '{damaged}' is damaged" in traced.json()["damage"]
            assert traced.json()["goal"] == BOTH
        *told, last_line = home.client.get(f"/api/runs/{damaged}/trace?format=jsonl").text.splitlines()
        assert [json.loads(line)["seq"] for line in told] == [1, 2, 3, 4, 5]
        assert json.loads(last_line)["seq"] == 6
        assert "is damaged" in json.loads(last_line)["detail"]
        both = home.client.get("/api/events", params={"run": [damaged, sound], "after": "2.0"}).text
        seen = [json.loads(line.removeprefix("data: ")) for line in both.splitlines() if line.startswith("data: ")]
        assert [one["seq"] for one in seen if one["run"] == damaged] == [3, 4, 5, 6]
        assert "is damaged" in next(one["detail"] for one in seen if one["run"] == damaged and one["seq"] == 6)
        assert [one["seq"] for one in seen if one["run"] == sound] == list(range(1, last_of_sound + 1))
        read_on = home.client.get("/api/events", params={"run": [damaged, sound], "after": f"5.{last_of_sound}"})
        assert (read_on.status_code, read_on.headers["content-type"]) == (500, "application/problem+json")
        assert f"entry 6 of run '{damaged}' is damaged" in read_on.json()["detail"]
        lines = {one["run"]: one for one in home.client.get("/api/runs").json()["runs"]}
        assert lines[damaged]["state"] == "damaged"
        assert lines[damaged]["goal"] == BOTH
        assert "entry 6" in lines[damaged]["reason"]
        assert lines[sound]["state"] == "complete"
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute(
                "UPDATE entries SET type = CAST(x'ff' AS TEXT) WHERE run = ? AND seq = ?", (number, last)
            )
            connection.commit()
        listed = home.client.get("/api/runs", params={"state": "damaged"}).json()["runs"]
        assert [one["run"] for one in listed] == [damaged]
        assert home.client.get(f"/api/runs/{sound}/entries").json()["over"] is True
        assert home.client.get("/api/health/workers").status_code == 200
