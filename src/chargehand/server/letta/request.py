"""What a client asked of an agent in one call: the messages, and how they are to be answered.

It is kept in the journal with the request of the run, so that the run can be described from its entries alone.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.setup import OURS
from chargehand.engine import events as ev
from chargehand.runtime.front import checked_goal
from chargehand.server.letta.settings import as_list, as_table, check_fields, refuse_unsupported
from chargehand.server.letta.wire import ClientTool, MessageCreate, MessageRequest
from chargehand.server.problem import Problem, check_choice, invalid
from chargehand.tools.json_schema import schema_problem

MAX_STEPS = 50
"""Model calls that an agent may make for one request, as Letta has it."""
_LOG_PROBABILITIES = "log probabilities and token ids are not returned"
_UNSUPPORTED: Mapping[str, str] = {
    "client_skills": "write what the agent shall know of them into a block, or into override_system",
    "enable_thinking": "how a model reasons is left to the model",
    "include_compaction_messages": "summaries are not sent as messages",
    "return_logprobs": _LOG_PROBABILITIES,
    "return_token_ids": _LOG_PROBABILITIES,
    "top_logprobs": _LOG_PROBABILITIES,
}
_UNSUPPORTED_IN_MESSAGE: Mapping[str, str] = {
    "group_id": "there are no groups here; send it to the agent",
    "batch_item_id": "there are no batches here",
}
_API = "letta"
_NAMESPACE = uuid.UUID("5c3ab7d2-8d0e-4b0a-9d5b-6a1f4a7c0e21")
_ROLES = ("user", "system", "assistant")
_IMAGE = "(an image, which cannot be looked at here)"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class AgentRequest(Struct, frozen=True, omit_defaults=True):
    """A whole call. Of the content of its messages, the text is kept.

    `digest` is what its repetition is known by; `model` and `system` replace the agent's own. `conversation` is empty
    for the agent's own. `tools` are those that the client runs itself.
    """

    agent: str
    messages: tuple[MessageCreate, ...]
    steps: int = MAX_STEPS
    model: str = ""
    system: str = ""
    background: bool = False
    digest: str = ""
    conversation: str = ""
    tools: tuple[ClientTool, ...] = ()

    @property
    def lane(self) -> str:
        """Where requests are answered one after the other: a conversation, or the agent."""
        return self.conversation or self.agent

    @property
    def text(self) -> str:
        """All of it, as the agent is told."""
        if len(self.messages) == 1:
            return text_of(self.messages[0].content)
        speakers = {"user": "", "assistant": "[you said] ", "system": "[system] "}
        return "\n\n".join(f"{speakers[message.role]}{message.content}" for message in self.messages)

    @property
    def otids(self) -> list[str]:
        return [message.otid for message in self.messages if message.otid]

    @property
    def run(self) -> str:
        """The run that answers it: the same for a repeated call, if the client gave its messages an otid."""
        run_id = uuid.uuid5(_NAMESPACE, " ".join((self.lane, *self.otids))) if self.otids else uuid.uuid4()
        return f"run-{run_id}"

    def to_record(self) -> ev.ClientRequest:
        return ev.ClientRequest(_API, Raw(msgspec.json.encode(self)), self.digest)


def recorded_request(first: ev.Event) -> AgentRequest | None:
    """What the client asked of an agent, by the first event of a run; None for a run that was begun another way."""
    client = first.client if isinstance(first, ev.RunRequested) else None
    if client is None or client.api != _API:
        return None
    return msgspec.json.decode(client.body, type=AgentRequest)


def read_request(agent: str, sent: MessageRequest, digest: str, conversation: str = "") -> AgentRequest:
    """What a client sent, checked; a problem where there is nothing to say, or nothing that can be said."""
    messages = [*(sent.messages or ())]
    if sent.input is not None:
        messages.append(MessageCreate(content=sent.input))
    for message in messages:
        check_choice("the role", message.role, _ROLES)
        message.content = text_of(message.content)
    request = AgentRequest(
        agent=agent,
        messages=tuple(message for message in messages if text_of(message.content).strip()),
        steps=sent.max_steps or MAX_STEPS,
        model=sent.override_model or "",
        system=sent.override_system or "",
        background=bool(sent.background),
        digest=digest,
        conversation=conversation,
        tools=sent.client_tools or (),
    )
    if not request.messages:
        raise invalid("there is nothing to say: send `messages` with a content, or `input`")
    _check_client_tools(request.tools)
    checked_goal(request.text)
    return request


def check_request_fields(raw: bytes) -> None:
    """Raise a problem for the first field of a call that would have no effect."""
    sent = check_fields(raw, MessageRequest, _UNSUPPORTED)
    for number, message in enumerate(as_list(sent.get("messages"))):
        known = MessageCreate.__struct_fields__
        refuse_unsupported(as_table(message), known, _UNSUPPORTED_IN_MESSAGE, f"messages[{number}].")
    if sent.get("callback_url"):
        advice = "this server makes no callbacks; ask for the run, or read its stream"
        raise Problem(422, "unsupported", f"callback_url is not supported: {advice}")


def text_of(content: str | Sequence[dict[str, Any]] | None) -> str:
    """A content as text; of an image, a word that it was there."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_IMAGE if part.get("type") == "image" else str(part.get("text", "")) for part in content)


def _check_client_tools(tools: Sequence[ClientTool]) -> None:
    """Raise a problem for tools that a model could not be told of."""
    names = [tool.name for tool in tools]
    for number, tool in enumerate(tools):
        place = f"client_tools[{number}]"
        if not _TOOL_NAME.match(tool.name) or tool.name in OURS:
            allowed = "up to 64 letters, digits, - and _, and none of this server's own"
            raise invalid(f"{place}.name is {tool.name[:80]!r}; it must be {allowed}")
        if names.count(tool.name) > 1:
            raise invalid(f"two client_tools are called {tool.name!r}; rename one")
        schema = tool.parameters or NO_PARAMETERS
        if schema.get("type", "object") != "object":
            raise invalid(f"{place}.parameters must be a JSON Schema of an object")
        if problem := schema_problem(schema):
            raise invalid(f"{place}.parameters: {problem}")
