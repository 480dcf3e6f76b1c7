"""A remote A2A agent as a worker of a team."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from chargehand import Assignment, Done, Failure, StepContext, Worker, WorkFailed
from chargehand.engine.budget import NOTHING
from chargehand.engine.events import Effect
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.extras import OfExtra
from chargehand.trace_context import trace_headers

with OfExtra("an A2A worker", "a2a"):
    import httpx
    from a2a.client import Client, ClientConfig, create_client
    from a2a.client.errors import A2AClientError
    from a2a.helpers.proto_helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import MessageToDict, ParseDict

_OPEN = (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING, pb.TASK_STATE_UNSPECIFIED)
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_CANCEL_SECONDS = 5.0
_LONGEST_OUTAGE = 60.0
"""For how long an agent that has a task may be out of reach before the attempt fails."""


def from_a2a(
    name: str,
    url: str,
    *,
    description: str = "",
    headers: Mapping[str, str] | None = None,
    effect: Effect = "effect",
    timeout: float = 300.0,
) -> Worker:
    """A worker whose tasks an A2A agent does. `url` is where its card is: `http://host/a2a/shop`.

    Messages have ids that stay the same after a crash. An agent that takes the same id for the same message, as our own
    server does, may be declared `effect="idempotent"`: then an interrupted call is made again, and otherwise a person
    is asked what became of it. What the agent asks is asked of the person who made the request.
    """
    if not url.startswith(("http://", "https://")):
        raise Invalid(f"worker {name!r}: url is {url[:200]!r}; write the whole of it, such as http://host/a2a/shop")
    agent = RemoteAgent(url, dict(headers or {}), effect)
    return Worker(name, description or f"the agent at {url}", call=agent, timeout=timeout)


class RemoteAgent:
    """Makes attempts by sending messages to an A2A agent."""

    def __init__(
        self, url: str, headers: dict[str, str], effect: Effect, *, longest_pause: Seconds = _LONGEST_PAUSE
    ) -> None:
        """Create it. `longest_pause` is the longest wait between two questions how a task stands."""
        self._url = url
        self._headers = headers
        self._effect: Effect = effect
        self._longest_pause = longest_pause

    async def __call__(self, assignment: Assignment, context: StepContext) -> object:
        async with _http_client(self._headers) as line, await self._connect(line) as client:
            parts = [new_text_part(assignment.instruction)]
            if assignment.inputs:
                parts.append(new_data_part({"inputs": dict(assignment.inputs)}))
            message = pb.Message(role=pb.ROLE_USER, parts=parts)
            task = await self._send(context, client, message)
            while task.status.state in (pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED):
                answer = assignment.ask_person(_status_text(task), free_text=True)
                parts = [new_text_part(str(answer)), *_quoted(task)]
                reply = pb.Message(role=pb.ROLE_USER, task_id=task.id, parts=parts)
                task = await self._send(context, client, reply)
        if task.status.state != pb.TASK_STATE_COMPLETED:
            state = pb.TaskState.Name(task.status.state)
            raise WorkFailed(Failure("logic", f"the agent at {self._url} ended {state}: {_status_text(task)}"), NOTHING)
        return _result(task)

    async def _connect(self, line: httpx.AsyncClient) -> Client:
        """Fetch the card. That changes nothing at the agent, so it is no step: it may fail and be tried again."""
        try:
            return await create_client(self._url, ClientConfig(streaming=False, polling=True, httpx_client=line))
        except (httpx.HTTPError, A2AError, A2AClientError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> WorkFailed:
        if advice := _ADVICE.get(status := _status_of(error)):
            return WorkFailed(Failure("network", f"{self._url} answered {status}: {advice}", permanent=True))
        message = f"{self._url}: {str(error) or type(error).__name__}"
        return WorkFailed(Failure("network" if _is_outage(error) else "logic", message))

    async def _send(self, context: StepContext, client: Client, message: pb.Message) -> pb.Task:
        """Send a message and wait until its task has ended or asks. A recorded answer is not asked for again."""

        async def call(key: str) -> Done:
            message.message_id = key
            try:
                return Done(MessageToDict(await _call(client, message, self._longest_pause)), NOTHING)
            except (httpx.HTTPError, A2AError, A2AClientError) as error:
                raise self._failed(error) from error

        request = msgspec.json.encode(MessageToDict(message)).decode()
        recorded = await context.step("a2a", call, request=request, effect=self._effect)
        return ParseDict(cast("dict[str, Any]", recorded), pb.Task(), ignore_unknown_fields=True)


def _is_outage(error: Exception) -> bool:
    """Whether the agent was not reached, other than refusing what was asked."""
    return isinstance(error, httpx.HTTPError) or isinstance(error.__cause__, httpx.HTTPError)


_ADVICE = {
    401: "give its worker a key that the agent takes: headers={'Authorization': 'Bearer ...'}",
    403: "the key of its worker does not allow this; give it another one in headers",
    404: "there is no agent; url is where its card is, such as http://host/a2a/shop",
}
"""What to change where an agent answers with these statuses of HTTP."""


def _status_of(error: Exception) -> int:
    """The status of HTTP that an agent refused a call with; 0: there is none."""
    cause = error if isinstance(error, httpx.HTTPStatusError) else error.__cause__
    return cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else 0


def _http_client(headers: Mapping[str, str]) -> httpx.AsyncClient:
    """A client whose requests belong to the trace of the step that makes them."""

    async def add_trace(request: httpx.Request) -> None:
        request.headers.update(trace_headers())

    return httpx.AsyncClient(headers=headers, timeout=60, event_hooks={"request": [add_trace]})


async def _call(client: Client, message: pb.Message, longest_pause: Seconds) -> pb.Task:
    task = await _sent(client, message)
    pause = _FIRST_PAUSE
    clock = asyncio.get_running_loop().time
    last_answer = clock()
    try:
        while task.status.state in _OPEN:
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest_pause)
            try:
                task = await client.get_task(pb.GetTaskRequest(id=task.id))
                last_answer = clock()
            except (httpx.HTTPError, A2AClientError) as error:
                if not _is_outage(error) or clock() - last_answer > _LONGEST_OUTAGE:
                    raise
    except asyncio.CancelledError:  # the run does not wait any more: neither need the agent work
        with suppress(Exception):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        raise
    return task


async def _sent(client: Client, message: pb.Message) -> pb.Task:
    configuration = pb.SendMessageConfiguration(return_immediately=True)
    request = pb.SendMessageRequest(message=message, configuration=configuration)
    async for item in client.send_message(request):
        if item.HasField("task"):
            return item.task
        if item.HasField("message"):  # an agent may answer at once, without a task
            artifact = pb.Artifact(artifact_id="message", parts=item.message.parts)
            return pb.Task(status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED), artifacts=[artifact])
    raise WorkFailed(Failure("logic", "the agent answered with neither a task nor a message"))


def _status_text(task: pb.Task) -> str:
    return "\n".join(get_text_parts(task.status.message.parts)) or "it did not say more"


def _quoted(task: pb.Task) -> list[pb.Part]:
    """Return the number of the question that a status tells as data, for its answer; empty: it tells none."""
    questions = get_data_parts(task.status.message.parts)
    if not questions or not isinstance(questions[0], dict) or "number" not in questions[0]:
        return []
    return [new_data_part({"number": questions[0]["number"]})]


def _result(task: pb.Task) -> object:
    """The artifact named `answer`, or all of them: text, or data where there is no text."""
    answers = [artifact for artifact in task.artifacts if artifact.name == "answer"]
    parts = [part for artifact in answers or task.artifacts for part in artifact.parts]
    if texts := get_text_parts(parts):
        return "\n\n".join(texts)
    data = get_data_parts(parts)
    return data[0] if len(data) == 1 else data or _status_text(task)
