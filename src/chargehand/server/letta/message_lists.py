"""Messages that were said: of an agent, of all of them, by id, and by their words."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import KeptConversation
from chargehand.server.letta.agents import found
from chargehand.server.letta.book import Book
from chargehand.server.letta.book_rows import Conditions
from chargehand.server.letta.mapping import instant
from chargehand.server.letta.message_shapes import MessageTold, SearchSent
from chargehand.server.letta.office import Office
from chargehand.server.letta.pages import page_of
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, reply

_MESSAGES = msgspec.json.Decoder(MessageTold)
_MOST_FOUND = 100
_USUAL = 100
_MOST_LISTED = 10_000


def add(api: Api) -> None:
    api.add("GET", "/v1/agents/{agent}/messages", of_agent, "read")
    api.add("GET", "/v1/messages", of_all, "read")
    api.add("POST", "/v1/messages/search", search, "read")
    api.add("GET", "/v1/messages/{message}", retrieve, "read")


def joined(bodies: list[bytes]) -> Response:
    """Bodies as they are kept, as one array."""
    return Response(b"[" + b",".join(bodies) + b"]", media_type="application/json")


async def of_agent(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    wanted = Conditions()
    wanted.equal("agent", profile.id)
    return await list_messages(request, tenant, wanted, profile.id)


async def of_all(request: Request, tenant: Tenant) -> Response:
    return await list_messages(request, tenant, Conditions(), "")


async def list_messages(request: Request, tenant: Tenant, wanted: Conditions, agent: str) -> Response:
    # a client that follows the pages goes on from the last message to newer ones: what is older must be on the page
    page = page_of(request, _MOST_LISTED if agent else _USUAL, "desc")
    if request.query_params.get("group_id"):
        raise Problem(422, "unsupported", "group_id is not supported: there are no groups here; leave it out")
    if conversation := request.query_params.get("conversation_id"):
        kept = None if conversation == "default" else await tenant.memory.catalog.get(KeptConversation, conversation)
        narrow_to_conversation(wanted, conversation, [] if kept is None else inherited_messages(kept))
    wanted.among("type", request.query_params.getlist("include_return_message_types"))
    await tenant.part(Office).settle(agent)
    return joined(await tenant.part(Book).messages(wanted, page))


def narrow_to_conversation(
    wanted: Conditions, conversation: str | None, inherited: Sequence[tuple[str, float]] = ()
) -> None:
    """Only what belongs to a conversation, with what a fork inherited; `default` is an agent's own."""
    if not conversation:
        return
    tests = ["conversation = ?", *["(conversation = ? AND at <= ?)"] * len(inherited)]
    values = [value for pair in inherited for value in pair]
    wanted.add(f"({' OR '.join(tests)})", "" if conversation == "default" else conversation, *values)


def inherited_messages(conversation: KeptConversation) -> list[tuple[str, float]]:
    """What a fork begins with: conversations, and up to which moment of each."""
    return msgspec.convert(conversation.settings.get("inherited") or [], list[tuple[str, float]])


async def retrieve(request: Request, tenant: Tenant) -> Response:
    """One message, as a list of it: so its client has it."""
    await tenant.part(Office).settle()
    row = await tenant.part(Book).message(part(request, "message"))
    if row is None:
        raise unknown("message", part(request, "message"))
    return joined([row[0]])


async def search(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, SearchSent)
    wanted = Conditions()
    wanted.equal("messages.agent", sent.agent_id)
    if sent.start_date:
        wanted.add("messages.at >= ?", instant(sent.start_date, "start_date"))
    if sent.end_date:
        wanted.add("messages.at <= ?", instant(sent.end_date, "end_date"))
    await tenant.part(Office).settle(sent.agent_id or "")
    limit = min(_MOST_FOUND, max(1, sent.limit or 50))
    hits = await tenant.part(Book).search(sent.query, wanted, limit)
    return reply([_hit(_MESSAGES.decode(one), agent) for one, agent in hits])


def _hit(one: MessageTold, agent: str) -> dict[str, object]:
    said = {"reasoning": one.reasoning} if one.reasoning is not None else {"content": one.content or ""}
    return {
        "message_id": one.id,
        "message_type": one.message_type,
        "created_at": one.date,
        "agent_id": agent,
        **said,
    }
