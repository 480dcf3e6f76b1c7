"""What a client asks of an agent in one call: messages, or verdicts on tool calls that wait.

Messages are kept in the journal with the request of the run, so that the run can be described from its entries alone.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.engine import events as ev
from chargehand.runtime.runner import checked_goal
from chargehand.server.letta.settings import refuse_unsupported
from chargehand.server.letta.wire import ApprovalEntry, ClientTool, MessageCreate, MessageRequest
from chargehand.server.wire import Problem, check_choice, invalid

MAX_STEPS = 50
"""Model calls that an agent may make for one request, as Letta has it."""
_API = "letta"
_NAMESPACE = uuid.UUID("5c3ab7d2-8d0e-4b0a-9d5b-6a1f4a7c0e21")
_ROLES = ("user", "system", "assistant")
_IMAGE = "(an image, which cannot be looked at here)"


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
    checked_goal(request.text)
    return request


def check_messages(raw: bytes) -> None:
    """Raise a problem for the first field of a message that would have no effect."""
    sent = cast("dict[str, Any]", msgspec.json.decode(raw.strip() or b"{}"))
    for number, message in enumerate(sent.get("messages") or ()):
        refuse_unsupported(message, MessageCreate.__struct_fields__, f"messages[{number}].")


def text_of(content: str | Sequence[dict[str, Any]] | None) -> str:
    """A content as text; of an image, a word that it was there."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_IMAGE if part.get("type") == "image" else str(part.get("text", "")) for part in content)


# --- verdicts on calls that wait


class ClientReturn(Struct, frozen=True, omit_defaults=True):
    """What a call returned at the client, as the journal keeps it with the answer."""

    text: str = ""
    good: bool = True


ClientReturns: TypeAlias = Mapping[bytes, ClientReturn]
"""What the client sent last for a call, by `call_key`."""


def call_key(tool: str, arguments: Mapping[str, object]) -> bytes:
    """The same for the same call. An argument that is null says the same as one that is left out."""
    sent = {name: value for name, value in arguments.items() if value is not None}
    return msgspec.json.encode([tool, sent], order="deterministic")


class Approval(Struct, frozen=True):
    """Calls that a client is asked about."""

    question: ev.InputRequested
    request_id: str
    """The id of the message that asks."""
    calls: dict[str, int]
    """By the id that the client knows, the place of each call in the model's reply."""
    at_client: frozenset[str]
    """The calls that the client makes itself."""


def approvals_in(sent: MessageRequest) -> tuple[MessageCreate, ...]:
    """The messages that approve or reject calls, or say what they returned. They come alone."""
    messages = sent.messages or ()
    approvals = tuple(each for each in messages if each.type in ("approval", "tool_return") or each.role == "approval")
    if approvals and (len(approvals) < len(messages) or sent.input is not None):
        reason = "a verdict on calls that wait comes alone; send what else there is to say once it is answered"
        raise invalid(f"{reason}. Nothing was done.")
    return approvals


def read_answer(approval: Approval, sent: Sequence[MessageCreate]) -> ev.InputAnswered:
    """The answer to the question of a run: a verdict on each call that waits, and on no other; else a problem."""
    verdicts: dict[str, ev.CallVerdict] = {}
    for message in sent:
        if message.approval_request_id not in (None, "", approval.request_id):
            reason = f"approval_request_id is {message.approval_request_id!r}, and {approval.request_id!r} waits"
            raise _refused(reason, approval)
        entries = [*(message.tool_returns or message.approvals or ())]
        if message.approve is not None or not entries:  # that is about every call of the request
            entries += [ApprovalEntry(call, message.approve, message.reason) for call in approval.calls]
        for entry in entries:
            call = entry.tool_call_id
            if call not in approval.calls:
                raise _refused(f"no call with the id {call[:100]} waits", approval)
            verdict = _read_verdict(approval, entry)
            if verdicts.setdefault(call, verdict).verdict != verdict.verdict:
                raise _refused(f"there are two verdicts on {call!r}, and they contradict each other", approval)
    if missing := [call for call in approval.calls if call not in verdicts]:
        raise _refused(f"there is no verdict on {', '.join(missing)}", approval)
    first, *others = sorted(verdicts.values(), key=lambda verdict: verdict.call)
    number = approval.question.number
    return ev.InputAnswered(number, first.verdict, first.feedback, result=first.result, also=tuple(others))


def _read_verdict(approval: Approval, entry: ApprovalEntry) -> ev.CallVerdict:
    """What is said of one call: whether it may be made, or what it returned at the client."""
    call = entry.tool_call_id
    place = approval.calls[call]
    if entry.tool_return is not None:
        if call not in approval.at_client:
            raise _refused(f"{call} is a call of a tool that this server runs: approve it, or reject it", approval)
        if entry.status not in ("success", "error"):
            raise _refused("a tool_return needs a status: success or error", approval)
        returned = ClientReturn(text_of(entry.tool_return), entry.status == "success")
        return ev.CallVerdict(place, "approve", result=msgspec.to_builtins(returned))
    if entry.approve is None:
        raise _refused("there is no verdict: send `approvals`, with tool_call_id and approve of each call", approval)
    if not entry.approve:
        return ev.CallVerdict(place, "reject", entry.reason or "")
    if call in approval.at_client:
        reason = f"{call} is a call of a tool that the client runs: send what it returned, as tool_returns"
        raise _refused(f"{reason}, or reject it", approval)
    return ev.CallVerdict(place, "approve", entry.reason or "")


def _refused(reason: str, approval: Approval) -> Problem:
    waiting = ", ".join(approval.calls)
    return invalid(f"{reason}; send one verdict on each call that waits: {waiting}. Nothing was done.")
