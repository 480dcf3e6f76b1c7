"""Conversations with an agent beside its own: each has its own history, and several go on at once.

An agent's own conversation is called `default`, with the agent's id beside it, or by the agent's id alone.
"""

from msgspec import UNSET, Struct, structs
from starlette.responses import Response

from chargehand.engine.roster import Match
from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.server.letta.executor import change_kept, lock_of
from chargehand.server.letta.index import OWN_CONVERSATION
from chargehand.server.letta.messages import cancel_runs, follow_run, list_messages, read_message_request, respond
from chargehand.server.letta.routing import LettaCall, route
from chargehand.server.letta.wire import Nullable, StreamRequest, Table, format_time
from chargehand.server.wire import Problem, invalid

_PATH = "/v1/conversations/{conversation}"
_MAX_COUNT = 100_000


class ConversationFields(Struct):
    """A new conversation, or a change of one."""

    summary: Nullable[str] = UNSET
    description: Nullable[str] = UNSET


async def _resolve(call: LettaCall, agent: str | None = None) -> tuple[Profile, str]:
    """The agent and the conversation that the path names; the conversation is empty for the agent's own."""
    which = call.path("conversation")
    agent = agent or call.query.get("agent_id")
    if which == OWN_CONVERSATION and not agent:
        raise invalid("say whose own conversation is meant: `default` needs an agent_id")
    if which == OWN_CONVERSATION or which.startswith("agent-"):
        return await call.find(Profile, agent or which), ""
    conversation = await call.find(KeptConversation)
    if agent and agent != conversation.agent:
        raise invalid(f"conversation {which} belongs to agent {conversation.agent}, not to {agent[:100]}")
    return await call.find(Profile, conversation.agent), conversation.id


async def _open_runs(call: LettaCall, agent: str | None = None) -> list[str]:
    profile, conversation = await _resolve(call, agent)
    return await call.sessions.open_runs(conversation or profile.id)


def _describe(conversation: KeptConversation) -> Table:
    return {
        "id": conversation.id,
        "agent_id": conversation.agent,
        "summary": conversation.name or None,
        "description": conversation.description or None,
        "created_at": format_time(conversation.created),
        "updated_at": format_time(conversation.updated),
    }


def _change_fields(conversation: KeptConversation, sent: ConversationFields) -> KeptConversation:
    """A conversation with what was sent of it."""
    return structs.replace(
        conversation,
        name=conversation.name if sent.summary is UNSET else sent.summary or "",
        description=conversation.description if sent.description is UNSET else sent.description or "",
    )


@route("POST", "/v1/conversations")
async def create(call: LettaCall) -> Table:
    agent = call.query.get("agent_id")
    if not agent:
        raise invalid("agent_id is missing: say in the query with which agent the conversation is")
    profile = await call.find(Profile, agent)
    sent = await call.checked_body(ConversationFields)
    new = _change_fields(KeptConversation(agent=profile.id, tags=(profile.id,)), sent)
    return _describe(await call.catalog.add(new))


@route("GET", "/v1/conversations")
async def list_conversations(call: LettaCall) -> list[Table]:
    """All, or those of an agent; the newest first unless it is said otherwise."""
    page = call.page(50, "desc", "agent_id", "summary_search")
    agent = call.query.get("agent_id")
    words = call.query.get("summary_search", "").casefold()
    match = Match((agent,), ()) if agent else Match()
    stored = await call.catalog.find(KeptConversation, tags=match, limit=_MAX_COUNT)
    wanted = page.cut([each for each in stored if words in each.name.casefold()])
    return [_describe(conversation) for conversation in wanted]


@route("GET", _PATH)
async def retrieve(call: LettaCall) -> Table:
    return _describe(await call.find(KeptConversation))


@route("PATCH", _PATH)
async def update(call: LettaCall) -> Table:
    conversation = await call.find(KeptConversation)
    sent = await call.checked_body(ConversationFields)
    changed = await change_kept(
        call.tenant, KeptConversation, conversation.id, lambda conversation: _change_fields(conversation, sent)
    )
    return _describe(changed)


@route("DELETE", _PATH)
async def delete(call: LettaCall) -> None:
    """With what was said in it; its runs stay."""
    sessions = call.sessions
    async with lock_of(call.tenant, call.path("conversation")):
        conversation = await call.find(KeptConversation)
        await sessions.cancel(await sessions.open_runs(conversation.id), "the conversation was deleted")
        await call.catalog.delete(KeptConversation, conversation.id)
        await sessions.index.forget_messages(conversation.agent, conversation.id)


@route("POST", f"{_PATH}/cancel")
async def cancel(call: LettaCall) -> dict[str, str]:
    """Stop what goes on in a conversation."""
    return await cancel_runs(call, await _open_runs(call))


# --- messages


@route("POST", f"{_PATH}/messages")
async def send(call: LettaCall) -> Response:
    """Send messages; the answer is streamed unless the client says otherwise."""
    sent = await read_message_request(call)
    profile, conversation = await _resolve(call, sent.agent_id)
    return await respond(call, sent, profile, conversation, is_streaming=sent.streaming is not False)


@route("GET", f"{_PATH}/messages")
async def messages(call: LettaCall) -> Response:
    profile, conversation = await _resolve(call)
    return await list_messages(call, profile.id, conversation or OWN_CONVERSATION)


@route("POST", f"{_PATH}/stream", "read")
async def stream(call: LettaCall) -> Response:
    """Follow the run that goes on in a conversation."""
    sent = await call.checked_body(StreamRequest)
    runs = await _open_runs(call, sent.agent_id)
    if not runs:
        raise Problem(404, "unknown", "no run goes on in this conversation")
    return await follow_run(call, runs[-1], sent)
