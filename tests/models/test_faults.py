"""Every fault a provider can have, over real sockets, in all protocols, streamed and not: none passes for success."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import psutil
import pytest
from msgspec import Struct

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.http import Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, Settings
from chargehand.models.model import Model, ModelFailed
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.testing.fault_server import MODES, FaultServer, serve
from chargehand.models.testing.thought_rules import RULES
from tests.support.hearing import hear_answer

TIMES = Timeouts(connect=1.0, first=0.3, whole=0.3, idle=0.3, total=0.5)
PATIENT = Timeouts(connect=20.0, first=20.0, whole=20.0, idle=20.0, total=20.0)  # where nobody is too slow on purpose
CAP = 1024 * 1024
KEY = "sk-a-key-that-nobody-may-see"
ASKED = "Hello, Wörld! How is the weather where you are?"
MODELS = {"openai": OpenAIChat, "responses": OpenAIResponses, "anthropic": AnthropicMessages}
SENT_AGAIN = {"always-thinks": 1, "never-thinks": 2}
"""Calls that are made once more, without a field that was refused: the Responses API is asked for thoughts."""
STRATEGIES = [(protocol, streamed) for protocol in MODELS for streamed in (False, True)]


class Want(Struct, frozen=True):
    """What a client ought to make of it: a reply, or failures of this kind. `says` is in the failure's message."""

    whole: str
    stream: str
    says: str = ""
    permanent: bool = False
    wait: float = 0.0
    finish: str = "stop"
    text: str | None = ASKED


def fails(kind: str, says: str = "", permanent: bool = False, wait: float = 0.0) -> Want:
    return Want(kind, kind, says, permanent, wait)


ANSWERED = Want("reply", "reply")
NO_REPLY = fails("network", "cannot be used")
BROKEN = fails("network")
LATE = fails("timeout")
TOO_LARGE = fails("resource", "larger than")

WANTED: dict[str, Want] = {
    "ok": ANSWERED,
    "late": ANSWERED,
    "429": fails("resource", "slow down", wait=1.0),
    "429-day": fails("resource", "see you", wait=86_400.0),
    "429-date": fails("resource", "slow down", wait=2.0),
    "429-nonsense": fails("resource", "slow down"),
    "500": fails("network", "something broke"),
    "502-html": fails("network", "502"),
    "503": fails("network", "restarting"),
    "529": fails("network", "overloaded"),
    "400": fails("logic", "at least one", permanent=True),
    "401": fails("resource", "invalid api key", permanent=True),
    "403": fails("resource", "no access", permanent=True),
    "404": fails("logic", "model not found", permanent=True),
    "422": fails("logic", "unexpected value", permanent=True),
    "400-long": fails("logic", "context_length_exceeded", permanent=True),
    "429-quota": fails("resource", "insufficient_quota", permanent=True),
    "redirect": fails("logic", "307", permanent=True),
    "reset-before": BROKEN,
    "reset-after-headers": BROKEN,
    "short-body": BROKEN,
    "hang-up": ANSWERED,
    "eof-without-finish": NO_REPLY,
    "chunked-abort": BROKEN,
    "bad-chunk": BROKEN,
    "garbage": BROKEN,
    "stream-error": fails("network", "overloaded"),
    "cut-mid-json": NO_REPLY,
    "slow-comments": LATE,
    "slow-pings": LATE,
    "slow-bytes": LATE,
    "slow-headers": LATE,
    "hang-before-headers": LATE,
    "hang-mid-stream": LATE,
    "skewed-date": ANSWERED,
    "huge-body": TOO_LARGE,
    "endless-events": TOO_LARGE,
    "gzip-bomb": TOO_LARGE,
    "gzip": ANSWERED,
    "brotli": fails("network", "Content-Encoding: br"),
    "bad-gzip": NO_REPLY,
    "huge-header": BROKEN,
    "deep-json": NO_REPLY,
    "bad-json": NO_REPLY,
    "two-jsons": NO_REPLY,
    "html": NO_REPLY,
    "empty-body": NO_REPLY,
    "empty-choices": fails("network or logic"),
    "null-content": fails("logic", "nothing"),
    "wrong-schema": NO_REPLY,
    "error-in-200": fails("network", "overloaded"),
    "wrong-content-type": Want("reply", "network", "cannot be used"),
    "stream-unasked": Want("network", "reply", "cannot be used"),
    "length": Want("reply", "reply", finish="length"),
    "refused": Want("reply", "reply", finish="refused", text="I cannot"),
    "usage-missing": ANSWERED,
    "usage-negative": NO_REPLY,
    "usage-absurd": ANSWERED,
    "duplicate-call-ids": NO_REPLY,
    "wrong-call-index": NO_REPLY,
    "bad-arguments": Want("reply", "reply", finish="tools", text=""),
    "bad-utf8": NO_REPLY,
    "split-utf8": Want("reply", "reply", text="Grüße, 世界 🦩"),
    "odd-lines": ANSWERED,
    "always-thinks": ANSWERED,
    "never-thinks": ANSWERED,
    "thinks-without-tools": ANSWERED,
    "takes-files": ANSWERED,
    "takes-no-documents": ANSWERED,
    **dict.fromkeys(RULES, ANSWERED),
    "server-tools": ANSWERED,
    "tool-search": ANSWERED,
    "no-tool-search": ANSWERED,
}


class Outcome(Struct, frozen=True):
    came: Reply | Failure
    seconds: float
    heard: str


@asynccontextmanager
async def world() -> AsyncGenerator[tuple[FaultServer, Transport]]:
    transport = Transport()
    async with FaultServer() as server:
        try:
            yield server, transport
        finally:
            await transport.close()


def client(protocol: str, url: str, transport: Transport) -> Model:
    late = any(f"/{mode}/" in url for mode, want in WANTED.items() if want is LATE)
    times = TIMES if late else PATIENT
    return MODELS[protocol]("test:model", url, "model", KEY, transport=transport, timeouts=times, max_bytes=CAP)


async def call(model: Model, streamed: bool, text: str = ASKED) -> Outcome:
    heard: list[str] = []
    request = Request((Message("user", text),), settings=Settings(max_tokens=100))
    began = time.perf_counter()
    try:
        came: Reply | Failure = await model.reply(request, hear_answer(heard) if streamed else None)
    except ModelFailed as error:
        came = error.failure
    return Outcome(came, time.perf_counter() - began, "".join(heard))


async def every_way(server: FaultServer, transport: Transport, mode: str) -> dict[tuple[str, bool], Outcome]:
    outcomes: dict[tuple[str, bool], Outcome] = {}

    async def one(protocol: str, streamed: bool) -> None:
        model = client(protocol, server.url(mode), transport)
        outcomes[protocol, streamed] = await call(model, streamed)

    async with asyncio.TaskGroup() as group:
        for protocol, streamed in STRATEGIES:
            group.create_task(one(protocol, streamed))
    return outcomes


def check(want: Want, outcome: Outcome, streamed: bool) -> None:
    kind = want.stream if streamed else want.whole
    came = outcome.came
    assert outcome.seconds < 15
    if kind == "reply":
        assert isinstance(came, Reply), came
        assert (came.finish, came.text) == (want.finish, want.text)
        assert outcome.heard == (came.text if streamed else "")
        return
    assert isinstance(came, Failure), came
    assert came.kind in kind
    assert want.says in came.message
    assert (came.permanent, came.retry_after) == (want.permanent, want.wait)
    assert KEY not in came.message
    assert "{" not in came.message  # words for people, not a dump


def test_every_mode_has_an_expectation_and_a_description() -> None:
    assert set(WANTED) | {"flaky"} == set(MODES)
    assert len(MODES) >= 25
    assert all(said and "\n" not in said for said in MODES.values())


@pytest.mark.parametrize("mode", WANTED)
async def test_no_fault_is_taken_for_success(mode: str) -> None:
    async with world() as (server, transport):
        outcomes = await every_way(server, transport, mode)
        assert len(outcomes) == len(STRATEGIES)
        assert list(server.requests) == [mode]  # nothing was sent elsewhere
        sent_again = server.requests[mode] - len(STRATEGIES)
        assert 0 <= sent_again <= SENT_AGAIN.get(mode, 0)
    for (_, streamed), outcome in outcomes.items():
        check(WANTED[mode], outcome, streamed)


async def test_memory_stays_small_whatever_a_provider_sends() -> None:
    process = psutil.Process()
    async with world() as (server, transport):
        await every_way(server, transport, "ok")
        before = process.memory_info().rss
        most = before
        for mode in ("huge-body", "endless-events", "gzip-bomb", "huge-header", "deep-json", "bad-gzip", "length"):
            await every_way(server, transport, mode)
            most = max(most, process.memory_info().rss)
        slots = asyncio.Semaphore(3)

        async def later(mode: str) -> None:
            nonlocal most
            async with slots:
                await every_way(server, transport, mode)
            most = max(most, process.memory_info().rss)

        async with asyncio.TaskGroup() as group:
            for mode in WANTED:
                group.create_task(later(mode))
    assert most - before <= 32 * 1024 * 1024


@pytest.mark.parametrize(("protocol", "streamed"), STRATEGIES)
async def test_a_negative_or_missing_count_never_reaches_the_books(protocol: str, streamed: bool) -> None:
    async with world() as (server, transport):
        for mode in ("usage-missing", "usage-negative"):
            came = (await call(client(protocol, server.url(mode), transport), streamed)).came
            assert not (isinstance(came, Reply) and came.usage is not None)


@pytest.mark.parametrize(("protocol", "streamed"), STRATEGIES)
async def test_arguments_that_are_no_json_are_handed_on_as_they_are(protocol: str, streamed: bool) -> None:
    async with world() as (server, transport):
        came = (await call(client(protocol, server.url("bad-arguments"), transport), streamed)).came
    assert isinstance(came, Reply)
    with pytest.raises(ValueError, match=r"."):
        msgspec.json.decode(came.calls[0].arguments, type=dict[str, object])


@pytest.mark.parametrize(("protocol", "streamed"), STRATEGIES)
async def test_a_connection_that_was_cut_harms_no_later_call(protocol: str, streamed: bool) -> None:
    async with world() as (server, transport):
        for mode in ("short-body", "chunked-abort", "huge-body", "hang-mid-stream", "stream-error", "reset-before"):
            bad = await call(client(protocol, server.url(mode), transport), streamed)
            good = await call(client(protocol, server.url("ok"), transport), streamed)
            assert isinstance(bad.came, Failure)
            assert isinstance(good.came, Reply)
            assert good.came.text == ASKED


@pytest.mark.parametrize(("protocol", "streamed"), STRATEGIES)
async def test_the_server_makes_the_tool_calls_it_is_asked_for(protocol: str, streamed: bool) -> None:
    wish = 'Do [[tool:look_up {"word": "ostrich"}]] and [[tool:rest]], please'
    async with world() as (server, transport):
        came = (await call(client(protocol, server.url("ok"), transport), streamed, wish)).came
    assert isinstance(came, Reply)
    assert came.finish == "tools"
    assert [(c.name, msgspec.json.decode(c.arguments)) for c in came.calls] == [
        ("look_up", {"word": "ostrich"}),
        ("rest", {}),
    ]
    assert came.usage is not None
    assert came.usage.output > 0


async def test_a_flaky_provider_fails_and_answers_by_turns() -> None:
    async with world() as (server, transport):
        model = client("openai", server.url("flaky"), transport)
        came = [(await call(model, streamed=False)).came for _ in range(4)]
    assert [type(each) for each in came] == [Failure, Reply, Failure, Reply]


async def test_the_fault_can_be_named_by_a_header_or_be_the_servers_own() -> None:
    async with FaultServer(mode="503") as server, aiohttp.ClientSession() as session:
        url = f"{server.origin}/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "hi"}]}
        statuses: list[int] = []
        for headers in ({}, {"x-fault": "429"}, {"x-fault": "ok"}, {"x-fault": "no-such-mode"}):
            async with session.post(url, json=body, headers=headers) as response:
                statuses.append(response.status)
        assert statuses == [503, 429, 200, 404]
        async with session.get(server.origin) as response:
            about = await response.json()
        assert about["requests"] == {"503": 1, "429": 1, "ok": 1}
        assert about["modes"] == MODES


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"messages": 7}',
        b'{"messages": [null, {"content": [3]}]}',
        b'{"input": [{"content": 1}]}',
    ],
)
async def test_bad_requests_are_answered_and_hurt_nobody(body: bytes) -> None:
    async with FaultServer() as server, aiohttp.ClientSession() as session:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            async with session.post(server.origin + path, data=body) as response:
                assert response.status in (200, 400)
                assert await response.read()
        async with session.post(server.origin + "/nowhere", data=b"{}") as response:
            assert response.status == 404


def test_an_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="no-such-mode"):
        FaultServer(mode="no-such-mode")
    with pytest.raises(Invalid, match="no-such-mode"):
        FaultServer().url("no-such-mode")


async def test_the_server_closes_at_once_though_a_client_hangs() -> None:
    async with asyncio.timeout(20), FaultServer() as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"POST /fault/hang-before-headers/v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        for _ in range(200):
            if server.requests:
                break
            await asyncio.sleep(0.01)
    assert await reader.read() == b""
    writer.close()


async def test_it_serves_until_it_is_told_to_stop() -> None:
    ready: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        serving = group.create_task(serve(port=0, mode="401", ready=ready.put_nowait))
        origin = await ready.get()
        async with aiohttp.ClientSession() as session, session.post(f"{origin}/v1/messages", json={}) as response:
            assert response.status == 401
        serving.cancel()
