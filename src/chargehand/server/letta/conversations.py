"""Conversations with an agent beside its own: each remembers for itself, and several go on at once.

An agent's own conversation is called `default` here, with the agent's id, or by the agent's id alone.
"""

import time
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.memory.conversation import Turn
from chargehand.server.letta.agent_settings import check_model_settings, merged_settings, refuse_unsupported
from chargehand.server.letta.agents import found as find_agent
from chargehand.server.letta.asked import check_talk_fields
from chargehand.server.letta.book_rows import Conditions
from chargehand.server.letta.crew import in_conversation
from chargehand.server.letta.message_lists import inherited_messages, list_messages, narrow_to_conversation
from chargehand.server.letta.message_shapes import CompactSent, ConversationTalkSent, StreamSent
from chargehand.server.letta.messages import compact_turns, stop_runs, streamed_talk, whole_talk
from chargehand.server.letta.office import Office
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.runs import follow_run
from chargehand.server.letta.shapes import moment
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, flag, part, raw_body, reply
from chargehand.terms.roster import Match

_OWN = "default"
_MOST = 100_000
_MOST_TURNS = 10_000
_ORDERS = ("created_at", "last_run_completion", "last_message_at")


class ConversationSent(Struct):
    """A conversation that is to be made; its agent is named in the query."""

    summary: str | None = None
    description: str | None = None
    hidden: bool | None = None
    model: str | None = None
    model_settings: dict[str, Any] | UnsetType | None = UNSET
    context_window_limit: int | UnsetType | None = UNSET


class ConversationChange(Struct):
    summary: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    archived: bool | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    model_settings: dict[str, Any] | UnsetType | None = UNSET
    context_window_limit: int | UnsetType | None = UNSET


class ConversationTold(Struct):
    id: str
    agent_id: str
    summary: str | None
    description: str | None
    archived: bool
    archived_at: str | None
    model: str | None
    model_settings: object
    context_window_limit: object
    last_message_at: str | None
    created_at: str
    updated_at: str
    in_context_message_ids: None = None


class ResolvedConversation(Struct, frozen=True):
    """A conversation that is asked for: of whom, and which; None is the agent's own."""

    profile: Profile
    conversation: KeptConversation | None = None

    @property
    def id(self) -> str:
        return "" if self.conversation is None else self.conversation.id

    @property
    def lane(self) -> str:
        return self.id or self.profile.id


def add(api: Api) -> None:
    api.add("POST", "/v1/conversations", create)
    api.add("GET", "/v1/conversations", listing, "read")
    path = "/v1/conversations/{conversation}"
    api.add("GET", path, retrieve, "read")
    api.add("PATCH", path, update)
    api.add("DELETE", path, delete)
    api.add("POST", f"{path}/cancel", cancel)
    api.add("POST", f"{path}/fork", fork)
    api.add("POST", f"{path}/recompile", recompile, "read")
    api.add("POST", f"{path}/messages", send)
    api.add("GET", f"{path}/messages", messages, "read")
    api.add("POST", f"{path}/stream", stream, "read")
    api.add("POST", f"{path}/compact", compact)


async def find_conversation(tenant: Tenant, which: str) -> KeptConversation:
    conversation = await tenant.memory.catalog.get(KeptConversation, which)
    if conversation is None:
        raise unknown("conversation", which)
    return conversation


async def resolve_conversation(request: Request, tenant: Tenant, agent: str | None = None) -> ResolvedConversation:
    """The conversation of a call: by its id, or an agent's own."""
    which = part(request, "conversation")
    agent = agent or request.query_params.get("agent_id")
    if which == _OWN and not agent:
        raise Problem(422, "invalid", "say whose own conversation is meant: `default` needs an agent_id")
    if which == _OWN or which.startswith("agent-"):
        return ResolvedConversation(await find_agent(tenant, which if which != _OWN else agent or ""))
    conversation = await find_conversation(tenant, which)
    if agent and agent != conversation.agent:
        raise Problem(
            422, "invalid", f"conversation {which} belongs to agent {conversation.agent}, not to {agent[:100]}"
        )
    return ResolvedConversation(await find_agent(tenant, conversation.agent), conversation)


async def describe_conversations(tenant: Tenant, conversations: list[KeptConversation]) -> list[ConversationTold]:
    office = tenant.part(Office)
    last = await office.book.last_messages([conversation.id for conversation in conversations])
    for talk in office.talks.values():  # those that are not in the book yet
        if talk.speech.conversation and talk.speech.began:
            last[talk.speech.conversation] = max(talk.speech.began, last.get(talk.speech.conversation, 0.0))
    return [_describe(conversation, last.get(conversation.id)) for conversation in conversations]


def _describe(conversation: KeptConversation, last: float | None) -> ConversationTold:
    kept = conversation.settings
    archived = kept.get("archived_at")
    return ConversationTold(
        id=conversation.id,
        agent_id=conversation.agent,
        summary=conversation.name or None,
        description=conversation.description or None,
        archived=isinstance(archived, float),
        archived_at=moment(archived) if isinstance(archived, float) else None,
        model=str(kept["model"]) if kept.get("model") else None,
        model_settings=kept.get("model_settings"),
        context_window_limit=kept.get("context_window_limit"),
        last_message_at=None if last is None else moment(last),
        created_at=moment(conversation.created),
        updated_at=moment(conversation.updated),
    )


# --- by id


async def create(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ConversationSent)
    _check_fields(await raw_body(request), ConversationSent)
    agent = request.query_params.get("agent_id")
    if not agent:
        raise Problem(422, "invalid", "agent_id is missing: say in the query with whom the conversation is")
    profile = await find_agent(tenant, agent)
    settings = merged_settings({}, sent)
    if sent.model:
        settings["model"] = sent.model
    if sent.hidden:
        settings["hidden"] = True
    made = KeptConversation(
        name=sent.summary or "",
        agent=profile.id,
        description=sent.description or "",
        tags=(profile.id,),
        settings=settings,
    )
    return reply((await describe_conversations(tenant, [await tenant.memory.catalog.add(made)]))[0])


def _check_fields(raw: bytes, shape: type[Struct]) -> None:
    sent = _table(raw)
    refuse_unsupported(sent, shape.__struct_fields__, {})
    check_model_settings(sent.get("model_settings"))


def _table(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw.strip() or b"{}", type=dict[str, Any])


async def retrieve(request: Request, tenant: Tenant) -> Response:
    return reply(
        (await describe_conversations(tenant, [await find_conversation(tenant, part(request, "conversation"))]))[0]
    )


async def update(request: Request, tenant: Tenant) -> Response:
    which = part(request, "conversation")
    sent = await body(request, ConversationChange)
    _check_fields(await raw_body(request), ConversationChange)
    async with changing(tenant, which):
        before = await find_conversation(tenant, which)
        settings = {**before.settings}
        for name in ("model_settings", "context_window_limit"):
            settings.pop(name, None)
        settings |= merged_settings(before.settings, sent)
        if sent.model is not UNSET:
            settings["model"] = sent.model or ""
        if sent.archived is not UNSET:
            settings["archived_at"] = time.time() if sent.archived else None
        wanted = structs.replace(
            before,
            name=before.name if sent.summary is UNSET else sent.summary or "",
            description=before.description if sent.description is UNSET else sent.description or "",
            settings=settings,
        )
        changed = await tenant.memory.catalog.change(wanted)
    return reply((await describe_conversations(tenant, [changed]))[0])


async def delete(request: Request, tenant: Tenant) -> Response:
    """With what was said in it; its runs stay."""
    which = part(request, "conversation")
    office = tenant.part(Office)
    async with changing(tenant, which):
        await find_conversation(tenant, which)
        await office.cancel(await office.under_way(which), "the conversation was deleted")
        await tenant.memory.catalog.delete(KeptConversation, which)
        office.resets[which] = time.time()
        await office.book.forget_conversation(which)
    return reply(None)


async def listing(request: Request, tenant: Tenant) -> Response:
    """All, or those of an agent; the newest first unless it is said otherwise."""
    asked = request.query_params
    page = page_of(request, 50, "desc")
    order = asked.get("order_by") or "created_at"
    if order not in _ORDERS:
        raise Problem(422, "invalid", f"order_by is {order[:40]!r}; it must be one of {', '.join(_ORDERS)}")
    status = _archive_status(asked.get("archive_status") or "unarchived")
    agent = asked.get("agent_id")
    words = asked.get("summary_search", "").casefold()
    match = Match((agent,), ()) if agent else Match()
    kept = await tenant.memory.catalog.find(KeptConversation, tags=match, limit=_MOST)
    visible = [conversation for conversation in kept if not conversation.settings.get("hidden")]
    listed = await describe_conversations(tenant, visible)
    if status != "all":
        listed = [conversation for conversation in listed if conversation.archived == (status == "archived")]
    if words:
        listed = [conversation for conversation in listed if words in (conversation.summary or "").casefold()]
    if order != "created_at":
        listed.sort(key=lambda conversation: conversation.last_message_at or "")
    return reply(cut([(conversation.id, conversation) for conversation in listed], page))


def _archive_status(said: str) -> Literal["unarchived", "archived", "all"]:
    if said in ("unarchived", "archived", "all"):
        return said
    raise Problem(422, "invalid", f"archive_status is {said[:40]!r}; it must be unarchived, archived or all")


async def cancel(request: Request, tenant: Tenant) -> Response:
    """Stop what goes on in a conversation."""
    office = tenant.part(Office)
    lane = (await resolve_conversation(request, tenant)).lane
    return reply(await stop_runs(office, await office.under_way(lane)))


async def fork(request: Request, tenant: Tenant) -> Response:
    """A new conversation that begins with what was said in this one, up to a message if one is named."""
    origin = await resolve_conversation(request, tenant)
    catalog = tenant.memory.catalog
    turns = await catalog.turns(origin.lane, limit=_MOST_TURNS, old=True)
    said = [turn for turn in turns if turn.role != "summary"]
    if message := request.query_params.get("message_id"):
        said = await _up_to(tenant, said, message)
    before = KeptConversation() if origin.conversation is None else origin.conversation
    settings = {**before.settings, "hidden": flag(request, "hidden"), "archived_at": None}
    settings["inherited"] = await _inherited(tenant, origin, said)
    made = await catalog.add(
        KeptConversation(
            name=before.name,
            agent=origin.profile.id,
            description=before.description,
            tags=(origin.profile.id,),
            settings=settings,
        )
    )
    if said:
        await catalog.say(made.id, said)
    return reply((await describe_conversations(tenant, [made]))[0])


async def _inherited(tenant: Tenant, origin: ResolvedConversation, turns: list[Turn]) -> list[tuple[str, float]]:
    """Which messages a fork begins with: of which conversations, and of each up to which moment."""
    runs = list(dict.fromkeys(turn.run for turn in turns if turn.run))
    until = await tenant.part(Office).book.last_heard(runs[-1]) if runs else None
    if until is None:
        return []
    earlier = [] if origin.conversation is None else inherited_messages(origin.conversation)
    return [*((which, min(moment, until)) for which, moment in earlier), (origin.id, until)]


async def _up_to(tenant: Tenant, turns: list[Turn], message: str) -> list[Turn]:
    """The turns up to a message, with the answer it belongs to."""
    row = await tenant.part(Office).book.message(message)
    admission = [place for place, turn in enumerate(turns) if row is not None and turn.run == row[1]]
    if not admission:
        raise unknown("message", message)
    return turns[: admission[-1] + 1]


async def recompile(request: Request, tenant: Tenant) -> Response:
    """What the agent would be told at this moment: blocks are read before each step, so nothing is compiled."""
    sent = await body(request, CompactSent)
    wanted = await resolve_conversation(request, tenant, sent.agent_id)
    profile = wanted.profile
    if wanted.conversation is not None:
        profile = in_conversation(profile, wanted.conversation)
    return reply(await tenant.part(Office).crew.system(profile))


# --- messages


async def send(request: Request, tenant: Tenant) -> Response:
    """Say something; what comes of it is streamed unless it is said otherwise."""
    sent = await body(request, ConversationTalkSent)
    check_talk_fields(await raw_body(request), ConversationTalkSent)
    wanted = await resolve_conversation(request, tenant, sent.agent_id)
    begin = whole_talk if sent.streaming is False else streamed_talk
    return await begin(request, tenant, sent, wanted.profile, wanted.id)


async def messages(request: Request, tenant: Tenant) -> Response:
    wanted = await resolve_conversation(request, tenant)
    conditions = Conditions()
    conditions.equal("agent", wanted.profile.id)
    inherited = [] if wanted.conversation is None else inherited_messages(wanted.conversation)
    narrow_to_conversation(conditions, wanted.id or _OWN, inherited)
    return await list_messages(request, tenant, conditions, wanted.profile.id)


async def stream(request: Request, tenant: Tenant) -> Response:
    """Follow the run that goes on in a conversation, or the latest one; or a run that is named."""
    sent = await body(request, StreamSent)
    office = tenant.part(Office)
    if sent.otid:
        raise Problem(
            422, "unsupported", "otid is not supported: send the message again with its otid, and it is joined"
        )
    wanted = await resolve_conversation(request, tenant, sent.agent_id)
    run = sent.run_id or next(iter(reversed(await office.under_way(wanted.lane))), "")
    standing = await office.standing(run) if run else None
    if standing is None or standing.lane != wanted.lane:
        raise unknown("run", run) if run else Problem(404, "unknown", "no run goes on in this conversation")
    return await follow_run(tenant, run, sent)


async def compact(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, CompactSent)
    return await compact_turns(request, tenant, (await resolve_conversation(request, tenant, sent.agent_id)).lane)
