"""The same run through every door: each tells the run document, and nothing else.

Each door has a reader. `OwnApi` is what the others are compared with. Some doors cannot show a run that another door
began: their readers begin one of the same team.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.cli.commands import chargehand
from tests.integrations.doors import DOORS, door_apis
from tests.server.api import Garden
from tests.server.door_teams import Case, cases
from tests.server.running import running, settings_in

CASES = cases()
Json = dict[str, Any]


class Runs:
    """One server with a run in each state."""

    def __init__(self, home: Garden, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.own = OwnApi(home)
        self.runs = {name: self.own.begin(name) for name in CASES}


def drive(home: Garden, run: str, name: str) -> None:
    """Bring a run of a team to the state of its case."""
    home.wait(run)
    path = f"/api/runs/{run}"
    if name == "cancelled":
        assert home.client.post(f"{path}/cancel", json={"reason": "wrong supplier"}).status_code == 200
    if name == "refused":
        answer = {"number": 1, "verdict": "reject", "feedback": "too dear"}
        assert home.client.post(f"{path}/answer", json=answer).status_code == 200
    home.wait(run)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("doors")
    settings = settings_in(folder / "data", teams=tuple(case.team for case in CASES.values()), grace=0.2)
    with (
        running(settings, apis=door_apis()) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Runs(Garden(server, client, folder), folder)


class OwnApi:
    """The HTTP API of the server itself."""

    def __init__(self, home: Garden) -> None:
        self._home = home

    def begin(self, team: str) -> str:
        run = self._home.begin("Do it.", team=team)
        drive(self._home, run, team)
        return run

    def document(self, run: str) -> Json:
        info: Json = self._home.show(run)
        summary = info["summary"]
        spent = summary["spent"]
        for call in info["asks"]["calls"] if info["asks"] else ():
            call.setdefault("because", "declared")  # the default is left out here
        names = ("run", "team", "state", "reason", "why", "cap")
        return {
            **{name: summary[name] for name in names},
            **{name: info[name] for name in ("answer", "gaps", "in_doubt")},
            **{name: spent[name] for name in ("usd", "tokens", "calls")},
            "lost_usd": summary["lost"]["usd"],
            "question": info["asks"],
        }


class Cli:
    """`chargehand runs show` on the store of the server."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def document(self, run: str) -> Json:
        journal = next((self._runs.folder / "data").glob("*/runs.db"))
        shown = chargehand(self._runs.folder, "runs", "show", run, "--json", "--journal", journal)
        assert shown.returncode == 0, shown.stderr
        told: Json = json.loads(shown.stdout)
        for call in told.get("question", {}).get("calls", ()):
            call.setdefault("because", "declared")
        return {"state": told["ending"], "question": None, **told}


class Chat:
    """Chat completions: the extension field of the completion, or of the error. A chat begins its own run."""

    def __init__(self, home: Garden) -> None:
        self._client = openai.OpenAI(base_url=f"{home.server.url}/v1", api_key=home.server.token, max_retries=0)

    def document(self, team: str) -> Json:
        message: Any = {"role": "user", "content": "Do it."}
        try:
            completion = self._client.chat.completions.create(model=team, messages=[message])
        except openai.InternalServerError as error:
            body: Any = error.body
            return body["chargehand"]
        text = completion.choices[0].message.content or ""
        return {**extension(completion), "text": text}


class Responses:
    """Responses in the background: read again once their run stands still, by whatever door it was brought there."""

    def __init__(self, home: Garden) -> None:
        self._home = home
        self._client = openai.OpenAI(base_url=f"{home.server.url}/v1", api_key=home.server.token, max_retries=0)

    def document(self, team: str) -> Json:
        response = self._client.responses.create(model=team, input="Do it.", background=True)
        drive(self._home, response.id.removeprefix("resp_"), team)
        response = self._client.responses.retrieve(response.id)
        return {**extension(response), "text": response.output_text, "status": response.status}


def extension(reply: Any) -> Json:
    return reply.model_extra["chargehand"]


@pytest.mark.parametrize("name", CASES)
def test_the_own_api_tells_every_state_with_its_reason(runs: Runs, name: str) -> None:
    case: Case = CASES[name]
    document = runs.own.document(runs.runs[name])
    assert (document["state"], document["reason"]) == (case.state, case.reason)
    for word in case.told:
        assert word in json.dumps(document), word
    question = document["question"]
    assert (question is not None) == (case.state == "needs_input")
    assert len(question["calls"] if question else ()) == case.calls
    for word in case.told if question else ():
        assert word in question["message"], word


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_tells_the_same(runs: Runs, name: str) -> None:
    run = runs.runs[name]
    told = Cli(runs).document(run)
    own = runs.own.document(run)
    assert {field: told[field] for field in own} == own


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("cancelled", "refused")])
def test_a_chat_tells_the_same(runs: Runs, name: str) -> None:
    told = Chat(runs.home).document(name)
    own = runs.own.document(told["run"])
    assert told["ending"] == own.pop("state")
    answer = own.pop("answer")
    assert {field: told.get(field) for field in own} == own
    if CASES[name].state in ("complete", "partial"):
        assert told["text"].startswith(str(answer))


STATUSES = {"needs_input": "in_progress", "complete": "completed", "partial": "completed"}


@pytest.mark.parametrize("name", CASES)
def test_a_response_tells_the_same(runs: Runs, name: str) -> None:
    told = Responses(runs.home).document(name)
    own = runs.own.document(told["run"])
    state = own.pop("state")
    assert told["ending"] == state
    answer = own.pop("answer")
    assert {field: told.get(field) for field in own} == own
    assert told["status"] == ("incomplete" if own["reason"] == "budget" else STATUSES.get(state, state))
    if state in ("complete", "partial"):
        assert told["text"].startswith(str(answer))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", CASES)
def test_a2a_ag_ui_and_mcp_tell_the_same(runs: Runs, door: str, name: str) -> None:
    """AG-UI shows only runs that were begun over it, so each protocol begins a run of its own."""
    reader = DOORS[door](runs.home.server.url, runs.home.server.headers)
    run = reader.begin(name)
    drive(runs.home, run, name)
    own = runs.own.document(run)
    for call in own["question"]["calls"] if own["question"] else ():
        call.setdefault("because", "declared")
    assert reader.document(run) == own
