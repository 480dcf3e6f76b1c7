"""APIs of other packages: behind the same checks, with the tenant of the caller in their scope, and a lifespan."""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chargehand.errors import Invalid
from chargehand.server.app import build, serve
from chargehand.server.extension import (
    PROBLEM_HANDLERS,
    AnswerBody,
    Entry,
    HttpApi,
    RunFilter,
    StreamedWords,
    tenant_of,
)
from tests.server.api import GOAL, key_for, team_in
from tests.server.running import Running, running, settings_in

LIVES: list[str] = []


def plain(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def begin(request: Request) -> Response:
    body: dict[str, Any] = await request.json()
    return plain(await tenant_of(request.scope).begin("garden", **body))


async def finish(request: Request) -> Response:
    return plain(await tenant_of(request.scope).wait(request.path_params["run"], 60))


async def answer(request: Request) -> Response:
    sent = AnswerBody(number=1, verdict="approve")
    return plain(await tenant_of(request.scope).answer(request.path_params["run"], sent))


async def cancel(request: Request) -> Response:
    return plain(await tenant_of(request.scope).cancel(request.path_params["run"], "not wanted any more"))


async def follow(request: Request) -> Response:
    after = int(request.query_params.get("after", "0"))
    opened = tenant_of(request.scope).follow(request.path_params["run"], after=after, words=True)

    async def lines() -> AsyncGenerator[bytes]:
        async with opened as items:
            async for item in items:
                what = type(item.event).__name__ if isinstance(item, Entry) else "words"
                assert isinstance(item, Entry | StreamedWords)
                yield f"data: {what}\n\n".encode()

    return StreamingResponse(lines(), media_type="text/event-stream")


async def look(request: Request) -> Response:
    tenant = tenant_of(request.scope)
    (team,) = await tenant.teams()
    page = await tenant.runs(RunFilter(label=("ticket:7",)))
    hits = await tenant.search_memory("garden", "seedlings", limit=3)
    return plain({"tenant": tenant.name, "team": team.name, "runs": [run.run for run in page.runs], "hits": len(hits)})


async def card(request: Request) -> Response:
    if "teams" in request.query_params:
        return plain(await tenant_of(request.scope).teams())
    return PlainTextResponse("anybody may read this")


async def broken(_request: Request) -> Response:
    raise RuntimeError("the secret reason")


@asynccontextmanager
async def lifespan() -> AsyncGenerator[None]:
    LIVES.append("opened")
    yield
    LIVES.append("closed")


MINE = HttpApi(
    name="mine",
    app=Starlette(
        routes=[
            Route("/mine/begin", begin, methods=["POST"]),
            Route("/mine/look", look),
            Route("/mine/broken", broken),
            Route("/mine/runs/{run}/finish", finish),
            Route("/mine/runs/{run}/follow", follow),
            Route("/mine/runs/{run}/answer", answer, methods=["POST"]),
            Route("/mine/runs/{run}/cancel", cancel, methods=["POST"]),
            Route("/.well-known/mine.json", card),
        ],
        exception_handlers=PROBLEM_HANDLERS,
    ),
    prefixes=("/mine", "/.well-known/mine.json"),
    open_paths=("/.well-known/mine.json",),
    lifespan=lifespan,
)


async def plain_app(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RuntimeError("the secret reason")


PLAIN = HttpApi(name="plain", app=plain_app, prefixes=("/plain",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("extension")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    settings = settings_in(folder / "data", teams=(team_in(folder / "team"),))
    with running(settings, apis=[MINE, PLAIN]) as found:
        yield found
    assert LIVES == ["opened", "closed"]


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=90) as found:
        yield found


def begun(client: httpx.Client, **more: object) -> dict[str, Any]:
    found = client.post("/mine/begin", json={"goal": GOAL, **more})
    assert found.status_code == 200, found.text
    return found.json()


def test_a_run_is_begun_waited_for_and_found_by_its_label(client: httpx.Client) -> None:
    run = begun(client, labels={"ticket": "7"})["run"]
    shown = client.get(f"/mine/runs/{run}/finish").json()
    assert shown["summary"]["state"] == "complete"
    assert "48.00 euros" in str(shown["answer"])
    assert client.get(f"/api/runs/{run}").json()["summary"]["labels"] == {"ticket": "7"}
    assert client.get("/mine/look").json() == {"tenant": "main", "team": "garden", "runs": [run], "hits": 0}


def test_the_same_key_is_the_same_run_and_with_another_goal_a_problem(client: httpx.Client) -> None:
    first = begun(client, key="k1")
    again = begun(client, key="k1")
    assert (again["run"], first["replayed"], again["replayed"]) == (first["run"], False, True)
    other = client.post("/mine/begin", json={"goal": "Something else.", "key": "k1"})
    assert (other.status_code, other.json()["code"]) == (422, "other_body")


def test_a_body_that_is_no_json_is_a_problem(client: httpx.Client) -> None:
    answered = client.post("/mine/begin", content=b'{"goal": ', headers={"Content-Type": "application/json"})
    assert (answered.status_code, answered.json()["code"]) == (422, "not_json")


def test_entries_come_as_they_are_written_and_from_any_place(client: httpx.Client) -> None:
    run = begun(client)["run"]
    with client.stream("GET", f"/mine/runs/{run}/follow") as stream:
        names = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    entries = [name for name in names if name != "words"]
    assert (entries[0], entries[-1]) == ("RunRequested", "RunEnded")
    with client.stream("GET", f"/mine/runs/{run}/follow?after={len(entries) - 1}") as stream:
        assert [line for line in stream.iter_lines() if line] == ["data: RunEnded"]


def test_a_question_is_answered_and_a_run_cancelled(client: httpx.Client) -> None:
    run = begun(client, approve=True)["run"]
    assert client.get(f"/mine/runs/{run}/finish").json()["summary"]["state"] == "needs_input"
    assert client.post(f"/mine/runs/{run}/answer").status_code == 200
    assert client.get(f"/mine/runs/{run}/finish").json()["summary"]["state"] == "complete"
    waiting = begun(client, approve=True)["run"]
    assert client.get(f"/mine/runs/{waiting}/finish").json()["summary"]["state"] == "needs_input"
    client.post(f"/mine/runs/{waiting}/cancel")
    assert client.get(f"/mine/runs/{waiting}/finish").json()["summary"]["state"] == "cancelled"


def test_it_is_behind_the_same_checks_as_every_other_api(server: Running, client: httpx.Client) -> None:
    with httpx.Client(base_url=server.url) as stranger:
        refused = stranger.get("/mine/look")
        assert (refused.status_code, refused.json()["code"]) == (401, "no_token")
        assert stranger.get("/mine/nowhere").status_code == 401
    assert client.get("/mine/look", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("/mine/begin", content=b"x=1").json()["code"] == "not_json_type"
    assert client.post("/mine/begin", json={"goal": "x" * 2_000_000}).status_code == 413
    assert client.post("/mine/begin", json={"goal": ""}).json()["code"] == "invalid"
    assert client.get("/mine/nowhere").status_code == 404


def test_an_open_path_needs_no_token_and_shows_nothing_of_a_tenant(server: Running) -> None:
    with httpx.Client(base_url=server.url) as stranger:
        assert stranger.get("/.well-known/mine.json").text == "anybody may read this"
        refused = stranger.get("/.well-known/mine.json?teams")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


def test_a_key_allows_only_what_its_scope_says_and_only_its_own_tenant(
    server: Running, folder: Path, client: httpx.Client
) -> None:
    run = begun(client)["run"]
    with httpx.Client(base_url=server.url, headers=key_for(folder, "main", "read")) as reader:
        assert reader.get(f"/mine/runs/{run}/finish").status_code == 200
        assert reader.post("/mine/begin", json={"goal": GOAL}).json()["code"] == "forbidden"
    with httpx.Client(base_url=server.url, headers=key_for(folder, "lab")) as other:
        assert other.get("/mine/look").json()["tenant"] == "lab"
        assert other.get(f"/mine/runs/{run}/finish").status_code == 404


def test_what_it_raises_is_logged_and_told_without_its_reason_and_counted_under_its_name(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    failed = client.get("/mine/broken")  # the framework answers by itself, and raises as well
    assert failed.status_code == 500
    assert "secret reason" not in failed.text
    refused = client.get("/plain/at-all")
    assert (refused.status_code, refused.json()["code"]) == (500, "internal")
    assert "GET /mine/broken failed" in caplog.text
    assert 'api="mine",status="500"' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("prefixes", "open_paths", "words"),
    [
        ((), (), "has no prefixes"),
        (("mine",), (), "is no prefix"),
        (("/mine/",), (), "is no prefix"),
        (("/api/mine",), (), "belongs to the server itself"),
        (("/v1",), (), "belongs to the server itself"),
        (("/runs",), (), "belongs to the server itself"),
        (("/mine",), ("/other",), "below none of its prefixes"),
    ],
)
def test_prefixes_that_cannot_be_are_refused(
    prefixes: tuple[str, ...], open_paths: tuple[str, ...], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        HttpApi(name="mine", app=Starlette(), prefixes=prefixes, open_paths=open_paths)


@asynccontextmanager
async def failing_lifespan() -> AsyncGenerator[None]:
    raise RuntimeError("the board is away")
    yield


def test_an_api_that_cannot_be_opened_is_named_before_anything_is_served(tmp_path: Path) -> None:
    api = HttpApi(name="board", app=plain_app, prefixes=("/board",), lifespan=failing_lifespan)
    settings = settings_in(tmp_path / "data", teams=(team_in(tmp_path / "team"),))
    with pytest.raises(Invalid, match="API 'board' could not be opened: RuntimeError: the board is away"):
        serve(settings, os.environ.get, lambda _port, _names: None, [api])


def test_two_apis_cannot_share_a_prefix(tmp_path: Path) -> None:
    other = HttpApi(name="other", app=Starlette(), prefixes=("/mine",))
    with pytest.raises(Invalid, match=r"the APIs 'mine' and 'other' both serve /mine"):
        build(settings_in(tmp_path), os.environ.get, [MINE, other])
