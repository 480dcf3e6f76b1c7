"""A cap in dollars with a model whose price nobody knows, over HTTP: calls are capped instead, and a note says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand.models.prices import flat
from tests.server.running import running, settings_in

_TEAM = """
version: 1
name: desk
defaults: {model: "openai:no-such-model"}
timeout: 1s
budget: {usd: 0.50}
workers: {ann: Counts things.}
"""
# the name is reserved for tests: nobody answers there, and it is no loopback address, which would cost nothing
_ENVIRONMENT = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://model.invalid/v1"}
_PLAN = {"tasks": [{"id": "a", "instruction": "Count.", "worker": "ann"}], "combine": "none"}
_WARNING = "the price of openai:no-such-model is unknown, so the budget of"


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "team.yaml").write_text(_TEAM)
    with (
        running(settings_in(folder / "data", teams=(folder / "team.yaml",), grace=0.1)) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as found,
    ):
        yield found


def _events(client: httpx.Client, run: str) -> list[dict[str, Any]]:
    return [entry["event"] for entry in client.get(f"/api/runs/{run}/entries").json()["entries"]]


def _until_ended(client: httpx.Client, run: str) -> dict[str, Any]:
    """The summary of a run once its stream of events is over."""
    client.get(f"/api/runs/{run}/events")
    return client.get(f"/api/runs/{run}").json()["summary"]


def _check(client: httpx.Client, run: str, calls: int, usd: str) -> None:
    events = _events(client, run)
    assert events[0]["budget"]["calls"] == calls
    assert "usd" not in events[0]["budget"]
    notes = [event["text"] for event in events if event["type"] == "noted"]
    assert any(note.startswith(f"{_WARNING} {usd} cannot be kept in dollars; at most {calls} calls") for note in notes)


def test_a_run_of_our_own_api(client: httpx.Client) -> None:
    begun = client.post("/api/runs", json={"team": "desk", "goal": "Count.", "plan": _PLAN})
    assert begun.status_code == 201, begun.text
    _check(client, begun.json()["run"], 50, "$0.50")


def test_a_run_with_a_cap_of_its_own(client: httpx.Client) -> None:
    sent = {"team": "desk", "goal": "Count.", "plan": _PLAN, "budget": {"usd": 0.2}}
    begun = client.post("/api/runs", json=sent)
    assert begun.status_code == 201, begun.text
    _check(client, begun.json()["run"], 20, "$0.20")


def test_a_run_with_a_cap_of_no_dollars_is_refused_and_told_how_to_give_the_price(client: httpx.Client) -> None:
    sent = {"team": "desk", "goal": "Count.", "plan": _PLAN, "budget": {"usd": 0}}
    refused = client.post("/api/runs", json=sent)
    assert refused.status_code == 422, refused.text
    assert "the price of openai:no-such-model is unknown" in refused.text
    assert "--price IN/OUT" in refused.text


def test_the_list_and_the_run_name_the_cap_that_ended_it(client: httpx.Client) -> None:
    sent = {"team": "desk", "goal": "Count.", "plan": _PLAN, "budget": {"calls": 0}}
    run = client.post("/api/runs", json=sent).json()["run"]
    shown = _until_ended(client, run)
    cap = {"cap": "calls", "limit": 0, "used": 0, "needed": 1}
    assert (shown["state"], shown["reason"], shown["cap"]) == ("failed", "budget", cap)
    listed = next(line for line in client.get("/api/runs").json()["runs"] if line["run"] == run)
    assert listed["cap"] == cap


def test_a_chat_of_an_openai_client(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Count."}]
    told = client.post("/v1/chat/completions", json={"model": "desk", "messages": messages})
    assert told.status_code == 500, "nobody answers at that address"
    run = client.get("/api/runs").json()["runs"][0]["run"]
    _check(client, run, 50, "$0.50")


def test_a_server_with_a_price_keeps_the_budget_in_dollars(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(_TEAM)
    settings = settings_in(tmp_path / "data", teams=(tmp_path / "team.yaml",), grace=0.1, price=flat(1.5, 6.0))
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        begun = client.post("/api/runs", json={"team": "desk", "goal": "Count.", "plan": _PLAN})
        events = _events(client, begun.json()["run"])
        assert events[0]["budget"]["usd"] == 0.5
        assert not any(event["type"] == "noted" and _WARNING in event["text"] for event in events)
