"""The protocols that a person can be asked over, each through the client of its SDK: A2A, AG-UI and MCP."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import httpx
import httpx2
from a2a.client import ClientConfig, create_client
from a2a.client.errors import A2AClientError
from a2a.helpers.proto_helpers import get_artifact_text, get_data_parts, new_data_part, new_text_part
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from ag_ui.core import Event, RunAgentInput
from ag_ui.core.types import ResumeEntry, UserMessage
from google.protobuf.json_format import MessageToDict
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter

from chargehand.integrations.a2a_server import a2a_api
from chargehand.integrations.ag_ui import ag_ui_api
from chargehand.integrations.mcp_server import mcp_api
from chargehand.server.extension import HttpApi

Json = dict[str, Any]
REQUEST = "Do it."
_EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
PLUGINS = ("a2a_server", "ag_ui", "mcp_server")


def door_apis() -> list[HttpApi]:
    """Return the APIs of the three protocols, for one server."""
    return [a2a_api(), ag_ui_api(), mcp_api()]


class DoorRefused(Exception):
    """What a door says to a client that it refuses."""


class Door(Protocol):
    """One protocol, as a client sees it. Runs are named by the door that begins them."""

    def begin(self, team: str) -> str:
        """Begin a run; return its name when it has ended or asks."""
        ...

    def document(self, run: str) -> Json:
        """Return the run document as this door tells it."""
        ...

    def answer(self, run: str, number: int, answer: object, message: str = "") -> Json:
        """Answer a question, in words or by call; return the run document when it has ended or asks.

        `message` is the id of the message; empty: a new one.
        """
        ...


class A2aDoor:
    """Teams as A2A agents. The number of a question is a float of a data part."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self.teams: dict[str, str] = {}
        """The team of each run: agents are told apart by it."""

    def begin(self, team: str) -> str:
        task = self.send(team, [new_text_part(REQUEST)])
        self.teams[task.id] = team
        return task.id

    def document(self, run: str) -> Json:
        async def read() -> pb.Task:
            async with self._client(self.teams[run]) as client:
                return await client.get_task(pb.GetTaskRequest(id=run))

        return read_task(asyncio.run(read()))

    def answer(self, run: str, number: int, answer: object, message: str = "") -> Json:
        data = {"number": number, **({"answer": answer} if isinstance(answer, str) else cast("Json", answer))}
        return read_task(self.send(self.teams[run], [new_data_part(data)], task=run, message=message))

    def say(self, run: str, words: str, message: str = "") -> Json:
        """Answer in words, without a number."""
        return read_task(self.send(self.teams[run], [new_text_part(words)], task=run, message=message))

    def send(self, team: str, parts: list[pb.Part], task: str = "", message: str = "") -> pb.Task:
        """Send a message; return its task when it has ended or asks."""
        identity = message or uuid.uuid4().hex
        sent = pb.Message(role=pb.ROLE_USER, task_id=task, message_id=identity, parts=parts)

        async def call() -> pb.Task:
            async with self._client(team) as client:
                (item,) = [item async for item in client.send_message(pb.SendMessageRequest(message=sent))]
                return item.task

        try:
            return asyncio.run(call())
        except (A2AError, A2AClientError) as error:
            raise DoorRefused(str(error)) from error

    @asynccontextmanager
    async def _client(self, team: str) -> AsyncGenerator[Any]:
        async with httpx.AsyncClient(headers=self._headers, timeout=60) as line:
            config = ClientConfig(streaming=False, httpx_client=line)
            async with await create_client(f"{self._url}/a2a/{team}", config) as client:
                yield client


def read_task(task: pb.Task) -> Json:
    """Return the run document that an A2A task tells."""
    answers = [artifact for artifact in task.artifacts if artifact.name == "answer"]
    questions = get_data_parts(task.status.message.parts)
    return {
        **MessageToDict(task.metadata),
        "answer": _artifact_value(answers[0]) if answers else None,
        "question": questions[0] if questions else None,
    }


def _artifact_value(artifact: pb.Artifact) -> object:
    data = get_data_parts(artifact.parts)
    return data[0] if data else get_artifact_text(artifact)


class AgUiDoor:
    """Teams as AG-UI agents. A run is read by making the call again that began it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._calls: dict[str, tuple[str, RunAgentInput]] = {}

    def begin(self, team: str) -> str:
        message = UserMessage(id="m1", role="user", content=REQUEST)
        sent = RunAgentInput(thread_id="th", run_id=uuid.uuid4().hex, messages=[message])
        run = self._call(team, sent)[0].metadata["run"]
        self._calls[run] = (team, sent)
        return run

    def document(self, run: str) -> Json:
        return read_events(self._call(*self._calls[run]))

    def answer(self, run: str, number: int, answer: object, message: str = "") -> Json:
        return self.resume(run, [ResumeEntry(interrupt_id=f"{run}#{number}", status="resolved", payload=answer)])

    def resume(self, run: str, entries: list[ResumeEntry]) -> Json:
        """Send these entries in one call."""
        team, begun = self._calls[run]
        sent = RunAgentInput(thread_id=begun.thread_id, run_id=uuid.uuid4().hex, messages=[], resume=entries)
        return read_events(self._call(team, sent))

    def _call(self, team: str, sent: RunAgentInput) -> list[Any]:
        body = sent.model_dump(by_alias=True, exclude_none=True, mode="json")
        reply = httpx.post(f"{self._url}/ag-ui/{team}", json=body, headers=self._headers, timeout=60)
        if reply.status_code != 200:
            raise DoorRefused(reply.json()["detail"])
        return [_EVENTS.validate_python(json.loads(line[6:])) for line in reply.text.splitlines() if line]


def read_events(events: list[Any]) -> Json:
    """Return the run document that the last events of an AG-UI call tell."""
    last = events[-1]
    if last.type.value == "RUN_ERROR":
        return {**last.metadata, "question": None}
    interrupts: list[Any] = last.outcome.interrupts if last.outcome.type == "interrupt" else []
    contents = [event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT"]
    answer = {"answer": "".join(contents)} if contents else {}
    return {"answer": None, **last.result, **answer, "question": interrupts[0].metadata if interrupts else None}


class McpDoor:
    """Teams as tools of MCP."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)

    def begin(self, team: str) -> str:
        return self.call("run_team", team=team, goal=REQUEST)["run"]

    def document(self, run: str) -> Json:
        told = self.call("get_run", run=run)
        return {name: value for name, value in told.items() if name not in ("tasks", "notice")}

    def answer(self, run: str, number: int, answer: object, message: str = "") -> Json:
        if isinstance(answer, str):
            verdict, _, text = answer.partition(": ")
            return self.call("answer_run", run=run, number=number, verdict=verdict, text=text)
        return self.call("answer_run", run=run, number=number, verdicts=answer)

    def call(self, tool: str, **arguments: object) -> Json:
        """Call a tool of the server; return its result."""

        async def call() -> Any:
            async with httpx2.AsyncClient(headers=self._headers, timeout=90) as http:
                transport = streamable_http_client(f"{self._url}/mcp", http_client=http)
                async with Client(transport, cache=None) as client:
                    return await client.call_tool(tool, arguments)

        result = asyncio.run(call())
        if result.is_error:
            raise DoorRefused(result.content[0].text)
        return result.structured_content


DOORS: dict[str, type[A2aDoor] | type[AgUiDoor] | type[McpDoor]] = {"a2a": A2aDoor, "ag-ui": AgUiDoor, "mcp": McpDoor}
