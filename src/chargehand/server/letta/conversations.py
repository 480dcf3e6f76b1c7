"""Conversations with an agent beside its own: each has its own history, and several go on at once.

An agent's own conversation is called `default`, with the agent's id beside it, or by the agent's id alone.
"""

from msgspec import UNSET, Struct, structs
from starlette.responses import Response

from chargehand.engine.roster import Match
from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.server.letta.attachments import lock_of
from chargehand.server.letta.index import OWN_CONVERSATION
from chargehand.server.letta.messages import (
    cancel_runs,
    compact_turns,
    list_messages,
    read_message_request,
    respond,
)
from chargehand.server.letta.models import check_model
from chargehand.server.letta.routing import LettaCall, Routes
from chargehand.server.letta.runs import follow_run
from chargehand.server.letta.settings import check_fields, conversation_settings, merge, to_catalog
from chargehand.server.letta.settings import in_conversation as agent_in_conversation
from chargehand.server.letta.wire import CompactRequest, ModelFields, Nullable, StreamRequest, Table, format_time
from chargehand.server.wire import Problem, invalid, unknown

routes = Routes()
_PATH = "/v1/conversations/{conversation}"
_MAX_COUNT = 100_000


class ConversationFields(ModelFields):
    """A new conversation, or a change of one."""

    summary: Nullable[str] = UNSET
    description: Nullable[str] = UNSET
    model: Nullable[str] = UNSET


class _Resolved(Struct, frozen=True):
    """The conversation of a call, and its agent; None is the agent's own."""

    profile: Profile
    conversation: KeptConversation | None = None

    @property
    def id(self) -> str:
        return "" if self.conversation is None else self.conversation.id

    @property
    def lane(self) -> str:
        return self.id or self.profile.id


async def _resolve(call: LettaCall, agent: str | None = None) -> _Resolved:
    """The conversation that the path names: by its id, or an agent's own."""
    which = call.path("conversation")
    agent = agent or call.query.get("agent_id")
    if which == OWN_CONVERSATION:
        if not agent:
            raise invalid("say whose own conversation is meant: `default` needs an agent_id")
        return _Resolved(await call.find(Profile, agent))
    if which.startswith("agent-"):
        return _Resolved(await call.find(Profile, which))
    conversation = await call.find(KeptConversation)
    if agent and agent != conversation.agent:
        reason = f"conversation {which} belongs to agent {conversation.agent}, not to {agent[:100]}"
        raise invalid(reason)
    return _Resolved(await call.find(Profile, conversation.agent), conversation)


def _describe(conversation: KeptConversation) -> Table:
    settings = conversation_settings(conversation)
    return {
        "id": conversation.id,
        "agent_id": conversation.agent,
        "summary": conversation.name or None,
        "description": conversation.description or None,
        "model": settings.model or None,
        "model_settings": conversation.settings.get("model_settings"),
        "context_window_limit": settings.context_window_limit,
        "created_at": format_time(conversation.created),
        "updated_at": format_time(conversation.updated),
    }


async def _read_fields(call: LettaCall, conversation: KeptConversation) -> KeptConversation:
    """A conversation with what was sent of it."""
    sent = await call.body(ConversationFields)
    check_fields(await call.raw_body(), ConversationFields)
    if sent.model is not UNSET:
        check_model("model", sent.model or "", call.tenant)
    settings = merge(conversation_settings(conversation), sent)
    return structs.replace(
        conversation,
        name=conversation.name if sent.summary is UNSET else sent.summary or "",
        description=conversation.description if sent.description is UNSET else sent.description or "",
        settings=to_catalog(settings),
    )


@routes.post("/v1/conversations")
async def create(call: LettaCall) -> Table:
    agent = call.query.get("agent_id")
    if not agent:
        raise invalid("agent_id is missing: say in the query with which agent the conversation is")
    profile = await call.find(Profile, agent)
    new = await _read_fields(call, KeptConversation(agent=profile.id, tags=(profile.id,)))
    return _describe(await call.catalog.add(new))


@routes.get("/v1/conversations")
async def list_conversations(call: LettaCall) -> list[Table]:
    """All, or those of an agent; the newest first unless it is said otherwise."""
    page = call.page(50, "desc", "agent_id", "summary_search")
    agent = call.query.get("agent_id")
    words = call.query.get("summary_search", "").casefold()
    match = Match((agent,), ()) if agent else Match()
    stored = await call.catalog.find(KeptConversation, tags=match, limit=_MAX_COUNT)
    wanted = page.cut([each for each in stored if words in each.name.casefold()])
    return [_describe(conversation) for conversation in wanted]


@routes.get(_PATH)
async def retrieve(call: LettaCall) -> Table:
    return _describe(await call.find(KeptConversation))


@routes.patch(_PATH)
async def update(call: LettaCall) -> Table:
    async with lock_of(call.tenant, call.path("conversation")):
        changed = await _read_fields(call, await call.find(KeptConversation))
        return _describe(await call.catalog.change(changed))


@routes.delete(_PATH)
async def delete(call: LettaCall) -> None:
    """With what was said in it; its runs stay."""
    sessions = call.sessions
    async with lock_of(call.tenant, call.path("conversation")):
        conversation = await call.find(KeptConversation)
        await sessions.cancel(await sessions.open_runs(conversation.id), "the conversation was deleted")
        await call.catalog.delete(KeptConversation, conversation.id)
        await sessions.index.forget_messages(conversation.agent, conversation.id)


@routes.post(f"{_PATH}/cancel")
async def cancel(call: LettaCall) -> dict[str, str]:
    """Stop what goes on in a conversation."""
    return await cancel_runs(call, await call.sessions.open_runs((await _resolve(call)).lane))


@routes.post(f"{_PATH}/recompile", "read")
async def recompile(call: LettaCall) -> str:
    """What the agent would be told now: blocks are read before each step, so nothing is compiled."""
    resolved = await _resolve(call, (await call.body(CompactRequest)).agent_id)
    profile = resolved.profile
    if resolved.conversation is not None:
        profile = agent_in_conversation(profile, resolved.conversation)
    return await call.sessions.executor.system_prompt(profile)


# --- messages


@routes.post(f"{_PATH}/messages")
async def send(call: LettaCall) -> Response:
    """Send messages; the answer is streamed unless the client says otherwise."""
    sent = await read_message_request(call)
    resolved = await _resolve(call, sent.agent_id)
    return await respond(call, sent, resolved.profile, resolved.id, is_streaming=sent.streaming is not False)


@routes.get(f"{_PATH}/messages")
async def messages(call: LettaCall) -> Response:
    resolved = await _resolve(call)
    return await list_messages(call, resolved.profile.id, resolved.id or OWN_CONVERSATION)


@routes.post(f"{_PATH}/stream", "read")
async def stream(call: LettaCall) -> Response:
    """Follow the run that goes on in a conversation, or one that is named."""
    sent = await call.body(StreamRequest)
    if sent.otid:
        advice = "send the message again with its otid, and it is joined"
        raise Problem(422, "unsupported", f"otid is not supported: {advice}")
    lane = (await _resolve(call, sent.agent_id)).lane
    runs = [sent.run_id] if sent.run_id else await call.sessions.open_runs(lane)
    if not runs:
        raise Problem(404, "unknown", "no run goes on in this conversation")
    log = await call.sessions.log_of(runs[-1])
    if log is None or log.lane != lane:
        raise unknown("run", runs[-1])
    return await follow_run(call, runs[-1], sent)


@routes.post(f"{_PATH}/compact")
async def compact(call: LettaCall) -> Table:
    sent = await call.body(CompactRequest)
    return await compact_turns(call, sent, (await _resolve(call, sent.agent_id)).lane)
