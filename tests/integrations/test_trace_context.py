"""Calls to other systems carry the trace context of their own span."""

import asyncio
from pathlib import Path

import httpx

from chargehand import Plan, Supervisor, Task, Team, Worker
from chargehand.engine.plan import TaskId
from tests.integrations.collector import Collector, collecting
from tests.integrations.test_a2a import asking, served, worker_of
from tests.integrations.test_otel import listener_to
from tests.mcp.peers import http_server, shop, shop_tools, team_of, wish
from tests.models.loopback import Asked, Move, loopback, whole
from tests.models.test_openai import said


def name_of_parent(collector: Collector, traceparent: str) -> str:
    _, trace, span, flags = traceparent.split("-")
    parent = collector.by_id()[bytes.fromhex(span)]
    assert parent.trace_id.hex() == trace
    assert flags == "01"
    return parent.name


async def ask_models(collector: Collector | None) -> list[str]:
    """The header of the calls of a worker's and of the supervisor's model; empty where there is none."""
    headers: list[str] = []

    def play(asked: Asked) -> list[Move]:
        headers.append(asked.headers.get("traceparent", ""))
        return whole(said("twelve"))

    async with loopback(play) as server:
        model = f"openai+{server.url}#m-1"
        plan = Plan((Task(TaskId("t1"), "Count.", "ann"), Task(TaskId("t2"), "Count.", "ann")), "merge")
        team = Team([Worker("ann", model=model)], supervisor=Supervisor(plan=plan, model=model))
        listener = None if collector is None else listener_to(collector)
        result = await team.run("Count", listener=listener)
        assert result.ending == "complete"
        if listener is not None:
            listener.close()
    return headers


async def test_each_call_of_a_model_has_the_id_of_its_own_span() -> None:
    with collecting() as collector:
        headers = await ask_models(collector)
    assert len(headers) == len(set(headers)) == 3
    assert {name_of_parent(collector, header) for header in headers} == {"chat m-1"}


async def test_without_tracing_no_header_is_sent() -> None:
    assert await ask_models(None) == ["", "", ""]


async def test_the_run_of_a_remote_agent_is_inside_the_step_that_sent_the_message(tmp_path: Path) -> None:
    with collecting() as collector, served(tmp_path) as home:
        listener = listener_to(collector)
        result = await asking(worker_of(home)).run("Ask the garden.", listener=listener)
        listener.close()
        assert result.ending == "complete"
        (run,) = home.client.get("/api/runs").json()["runs"]
    assert name_of_parent(collector, run["labels"]["traceparent"]) == "execute_tool a2a"


async def test_a_call_of_an_mcp_server_over_http_has_the_id_of_its_step(tmp_path: Path) -> None:
    headers: list[str] = []
    await asyncio.to_thread(shop_tools)  # it has a loop of its own
    with collecting() as collector, http_server() as url, httpx.Client(timeout=60) as upstream:

        def relay(asked: Asked) -> list[Move]:
            """Pass a message on to the server of the SDK, which is another process."""
            if not asked.body:
                return whole("", 405)  # no stream without a message
            if b'"tools/call"' in asked.body:
                headers.append(asked.headers["traceparent"])
            passed_on = {name: value for name, value in asked.headers.items() if name not in ("host", "content-length")}
            answer = upstream.post(url, content=asked.body, headers=passed_on)
            names = [name for name in answer.headers if name.startswith("mcp-")]
            kind = answer.headers.get("content-type", "application/json")
            lines = [f"HTTP/1.1 {answer.status_code} OK", f"content-type: {kind}"]
            lines += [f"content-length: {len(answer.content)}", *(f"{name}: {answer.headers[name]}" for name in names)]
            return ["\r\n".join([*lines, "", ""]).encode() + answer.content]

        async with loopback(relay) as server:
            stock = [wish("shop_stock", f'{{"product": "{product}"}}') for product in ("anvils", "tongs")]
            team = team_of(shop(tmp_path, url=server.url, private=True), *stock)
            listener = listener_to(collector)
            result = await team.run("How many anvils are there?", listener=listener)
            listener.close()
            assert result.ending == "complete"
    assert len(headers) == len(set(headers)) == 2
    assert {name_of_parent(collector, header) for header in headers} == {"execute_tool shop_stock"}
