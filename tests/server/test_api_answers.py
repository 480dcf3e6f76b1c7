"""Answers over the HTTP API: several calls, effects in doubt, wrong and old numbers, twice, late."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from chargehand.server.api import control
from tests.server.api import Garden
from tests.server.door_teams import cases
from tests.server.running import running, settings_in

Json = dict[str, Any]
LATE: dict[str, Any] = {"Idempotency-Key": "late"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    folder = tmp_path_factory.mktemp("answers")
    settings = settings_in(folder / "data", teams=tuple(case.team for case in cases().values()), grace=0.2)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder)


def asking(home: Garden, team: str) -> str:
    run = home.begin("Do it.", team=team)
    home.wait(run, "needs_input")
    return run


def answer(home: Garden, run: str, body: Json, **headers: str) -> httpx.Response:
    return home.client.post(f"/api/runs/{run}/answer", json=body, headers=headers)


def events(home: Garden, run: str, kind: str) -> list[Json]:
    entries: list[Json] = home.client.get(f"/api/runs/{run}/entries").json()["entries"]
    return [entry["event"] for entry in entries if entry["event"]["type"] == kind]


def payees(home: Garden, run: str) -> list[str]:
    return [step["arguments"]["payee"] for step in events(home, run, "step.started") if step["name"] == "pay"]


@pytest.mark.parametrize("team", ["calls", "nested"])
def test_each_call_of_a_question_gets_its_own_verdict(home: Garden, team: str) -> None:
    run = asking(home, team)
    body: Json = {
        "number": 1,
        "verdict": "reject",
        "feedback": "too dear",
        "also": [{"call": 2, "verdict": "approve"}],
    }
    assert answer(home, run, body).status_code == 200
    shown: Any = home.wait(run, "partial")
    (gap,) = [gap for gap in shown["gaps"] if gap["status"] == "refused"]
    assert gap["arguments"] == {"payee": "Ott"}
    if team == "calls":
        assert payees(home, run) == ["Bob"]


def test_a_call_without_a_verdict_is_asked_about_next(home: Garden) -> None:
    run = asking(home, "calls")
    assert answer(home, run, {"number": 1, "verdict": "approve"}).status_code == 200
    shown: Any = home.wait(run, "needs_input")
    assert shown["asks"]["number"] == 2
    assert [call["arguments"] for call in shown["asks"]["calls"]] == [{"payee": "Bob"}]
    assert answer(home, run, {"number": 1, "verdict": "approve"}).status_code == 409, "an old number"
    assert answer(home, run, {"number": 3, "verdict": "approve"}).status_code == 409, "a wrong number"
    assert "Bob" not in payees(home, run)


@pytest.mark.parametrize(
    "wrong",
    [
        {"also": [{"call": 9, "verdict": "approve"}]},
        {"also": [{"call": 2, "verdict": "approve"}, {"call": 2, "verdict": "reject"}]},
        {"also": [{"call": 2, "verdict": "again"}]},
    ],
)
def test_verdicts_that_do_not_fit_are_refused_and_the_question_stays_open(home: Garden, wrong: Json) -> None:
    run = asking(home, "calls")
    assert answer(home, run, {"number": 1, "verdict": "approve", **wrong}).status_code == 409
    assert home.state(run) == "needs_input"
    assert payees(home, run) == []


@pytest.mark.parametrize("result", [{"receipt": 7}, None])
def test_an_effect_in_doubt_is_done_with_plain_data_as_its_result(home: Garden, result: object) -> None:
    run = asking(home, "doubt")
    assert answer(home, run, {"number": 1, "verdict": "done"}).status_code == 422, "what did it return?"
    assert answer(home, run, {"number": 1, "verdict": "done", "result": result}).status_code == 200
    home.wait(run, "complete")
    (answered,) = events(home, run, "input.answered")
    assert answered.get("result") == result
    assert answered["by"] == "operator"


def test_the_same_answer_twice_is_one_answer_also_when_the_run_has_ended(home: Garden) -> None:
    run = asking(home, "call")
    body = {"number": 1, "verdict": "approve"}
    key = {"Idempotency-Key": "one"}
    assert answer(home, run, body, **key).status_code == 200
    home.wait(run, "complete")
    again = answer(home, run, body, **key)
    assert again.status_code == 200
    assert again.json()["summary"]["state"] == "complete"
    assert payees(home, run) == ["Ott"]
    late = answer(home, run, body)
    assert (late.status_code, late.json()["code"]) == (409, "refused")


def test_an_answer_with_a_key_that_is_refused_is_refused_at_once(home: Garden) -> None:
    """No other server writes the same answer, so nothing is waited for."""
    run = asking(home, "call")
    assert answer(home, run, {"number": 1, "verdict": "approve"}).status_code == 200
    home.wait(run, "complete")
    begun = time.monotonic()
    late = answer(home, run, {"number": 1, "verdict": "approve"}, **LATE)
    assert (late.status_code, late.json()["code"]) == (409, "refused")
    assert time.monotonic() - begun < control._LOOK * control._LOOKS / 2
