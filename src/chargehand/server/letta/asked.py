"""What somebody asked of an agent in one call: the messages, and how they are to be heard.

It is kept in the journal as a note beside the request, so that a run can be told from its entries alone. What comes of
it is not known here.
"""

import uuid
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct

from chargehand.memory.conversation import Turn
from chargehand.runtime.front import checked_goal
from chargehand.server.letta.agent_settings import Unsupported, refuse_unsupported
from chargehand.server.letta.client_tools import ClientTool, check_client_tools
from chargehand.server.letta.message_shapes import MessageSent, TalkSent
from chargehand.server.problem import Problem
from chargehand.terms import events as ev

MOST_STEPS = 50
"""Calls of its model that an agent may make for one request, as Letta has it."""
_STEPS_AT_MOST = 500
_LOG_PROBABILITIES = "log probabilities and token ids are not returned"
_TALK: Mapping[str, Unsupported] = {
    "client_skills": Unsupported("write what the agent shall know of them into a block, or into override_system"),
    "enable_thinking": Unsupported("how a model reasons is left to the model", (False, "false", "False")),
    "include_compaction_messages": Unsupported("summaries are not sent as messages", (False,)),
    "return_logprobs": Unsupported(_LOG_PROBABILITIES, (False,)),
    "return_token_ids": Unsupported(_LOG_PROBABILITIES, (False,)),
    "top_logprobs": Unsupported(_LOG_PROBABILITIES),
}
_SAME_HERE = (  # they are about agents that speak through a tool, of which there are none
    "use_assistant_message",
    "assistant_message_tool_name",
    "assistant_message_tool_kwarg",
)
_MESSAGE: Mapping[str, Unsupported] = {
    "group_id": Unsupported("there are no groups here; send it to the agent"),
    "batch_item_id": Unsupported("there are no batches here"),
}
_MARK = "asked "
_SPACE = uuid.UUID("5c3ab7d2-8d0e-4b0a-9d5b-6a1f4a7c0e21")
_ROLES = ("user", "system", "assistant")
_UNSEEN = {"image": "(an image, which cannot be looked at here)"}


class Said(Struct, frozen=True, omit_defaults=True):
    """One message as it was sent; of its content, the text."""

    text: str
    role: str = "user"
    otid: str = ""
    name: str = ""
    sender: str = ""


class Asked(Struct, frozen=True, omit_defaults=True):
    """A whole call. `mark` is what its repetition is known by; `model` and `system` stand in for the agent's own.

    `conversation` is the one it belongs to; without one it belongs to the agent's own. `tools` are those that the
    caller runs itself.
    """

    agent: str
    said: tuple[Said, ...]
    steps: int = MOST_STEPS
    model: str = ""
    system: str = ""
    background: bool = False
    mark: str = ""
    conversation: str = ""
    tools: tuple[ClientTool, ...] = ()

    @property
    def lane(self) -> str:
        """Where calls are heard one after the other: in a conversation, or before the agent."""
        return self.conversation or self.agent

    @property
    def text(self) -> str:
        """All of it, as the agent is told."""
        plain = all(one.role == "user" for one in self.said) or len(self.said) == 1
        return "\n\n".join(one.text if plain or one.role == "user" else _with_role(one) for one in self.said)

    @property
    def run(self) -> str:
        """The run that answers it: the same for a call that is repeated, where the caller marked its messages."""
        marks = [one.otid for one in self.said if one.otid]
        made = uuid.uuid5(_SPACE, " ".join((self.lane, *marks))) if marks else uuid.uuid4()
        return f"run-{made}"

    @property
    def marked(self) -> bool:
        return any(one.otid for one in self.said)

    def note(self) -> ev.Noted:
        return ev.Noted(_MARK + msgspec.json.encode(self).decode())


def noted(event: ev.Event) -> Asked | None:
    """What was asked, if this is the note of it."""
    if not isinstance(event, ev.Noted) or not event.text.startswith(_MARK):
        return None
    try:
        return msgspec.json.decode(event.text[len(_MARK) :], type=Asked)
    except msgspec.DecodeError:
        return None


def asked_of(agent: str, sent: TalkSent, raw: bytes, conversation: str = "") -> Asked:
    """What a client sent, checked; Problem where there is nothing to say, or nothing that can be said."""
    sent_by = (*(sent.messages or ()), *(() if sent.input is None else (MessageSent(content=sent.input),)))
    said = tuple(_said(one) for one in sent_by)
    found = Asked(
        agent=agent,
        said=tuple(one for one in said if one.text.strip()),
        steps=_steps(sent.max_steps),
        model=sent.override_model or "",
        system=sent.override_system or "",
        background=bool(sent.background),
        mark=mark_of(conversation or agent, raw),
        conversation=conversation,
        tools=sent.client_tools or (),
    )
    if not found.said:
        raise Problem(422, "invalid", "there is nothing to say: send `messages` with a content, or `input`")
    check_client_tools(found.tools)
    checked_goal(found.text)
    return found


def check_talk_fields(raw: bytes, shape: type[TalkSent] = TalkSent) -> None:
    """Raise a problem for the first field of a call, as it was sent, that would have no effect."""
    sent = cast("dict[str, Any]", msgspec.json.decode(raw.strip() or b"{}"))
    refuse_unsupported(sent, (*shape.__struct_fields__, *_SAME_HERE), _TALK)
    for number, message in enumerate(cast("list[dict[str, object]]", sent.get("messages") or ())):
        refuse_unsupported(message, MessageSent.__struct_fields__, _MESSAGE, f"messages[{number}].")


def mark_of(agent: str, raw: bytes) -> str:
    return blake2b(agent.encode() + b" " + raw, digest_size=12).hexdigest()


def approvals_in(sent: TalkSent) -> tuple[MessageSent, ...]:
    """The messages that allow calls or do not, or say what they came to.

    They come alone: what is said beside them would not be heard.
    """
    answers = ("approval", "tool_return")
    approvals = tuple(one for one in sent.messages or () if one.type in answers or one.role == "approval")
    if approvals and (len(approvals) < len(sent.messages or ()) or sent.input is not None):
        said = "a verdict on calls that wait comes alone; send what else there is to say once it is answered"
        raise Problem(422, "invalid", f"{said}. Nothing was done.")
    return approvals


def _said(message: MessageSent) -> Said:
    if message.role not in _ROLES:
        raise Problem(422, "invalid", f"the role is {message.role[:40]!r}; it must be one of {', '.join(_ROLES)}")
    return Said(
        text=text_of(message.content),
        role=message.role,
        otid=message.otid or "",
        name=message.name or "",
        sender=message.sender_id or "",
    )


def turns_to_begin_with(messages: Sequence[MessageSent]) -> list[Turn]:
    """A conversation that an agent begins with, as it remembers it."""
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        if message.role not in ("user", "assistant"):
            said = f"initial_message_sequence[{number}].role is {message.role[:40]!r}; it must be user or assistant"
            raise Problem(422, "invalid", f"{said}: what an agent is to be told beforehand goes into system")
        turns.append(Turn("user" if message.role == "user" else "assistant", text_of(message.content)))
    return [turn for turn in turns if turn.text.strip()]


def text_of(content: str | Sequence[dict[str, Any]] | None) -> str:
    """A content as text; of parts that are none, a word that they were there."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_UNSEEN.get(str(one.get("type", "text")), str(one.get("text", ""))) for one in content)


def _steps(wanted: int | None) -> int:
    if wanted is not None and wanted < 1:
        raise Problem(422, "invalid", f"max_steps is {wanted}; it must be 1 or more")
    if wanted is not None and wanted > _STEPS_AT_MOST:
        raise Problem(422, "invalid", f"max_steps is {wanted}; {_STEPS_AT_MOST} are the most for one message")
    return wanted or MOST_STEPS


def _with_role(said: Said) -> str:
    return f"[{'you said' if said.role == 'assistant' else said.role}] {said.text}"
