"""The index of a tenant: runs and messages of its agents, listed without reading every journal.

All of it is derived from the journal; what the index lacks is written in when the tenant is opened.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from chargehand.memory.catalog import Order
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.wire import LettaMessage

OWN_CONVERSATION = "default"
"""What clients call the conversation that an agent has by itself."""
_Item = TypeVar("_Item")
_ENCODER = msgspec.json.Encoder()


class ListPage(Struct, frozen=True):
    """What of a list is wanted: `after` an id, `before` one, so many, in this order."""

    after: str = ""
    before: str = ""
    limit: int = 100_000
    order: Order = "asc"

    def cut(self, items: Sequence[_Item], key: Callable[[_Item], str] = attrgetter("id")) -> list[_Item]:
        """The page of a whole list, which is in ascending order. After an id that is not in it comes nothing."""
        ordered = list(items) if self.order == "asc" else list(reversed(items))
        ids = [key(item) for item in ordered]
        start = 0
        end = len(ids)
        if self.after:
            start = ids.index(self.after) + 1 if self.after in ids else end
        if self.before:
            end = ids.index(self.before) if self.before in ids else 0
            start = max(start, end - self.limit)
        return ordered[start:end][: self.limit]


class IndexedRunFilter(Struct, frozen=True):
    """Which runs are listed. An empty field asks nothing."""

    agents: Sequence[str] = ()
    statuses: Sequence[str] = ()
    stop: str = ""
    conversation: str = ""
    """Its id, or `OWN_CONVERSATION`."""
    is_active: bool = False
    """Only those that have not ended and do not wait for their client."""


class MessageFilter(Struct, frozen=True):
    """Which messages are listed. An empty field asks nothing."""

    agent: str = ""
    conversation: str = ""
    """Its id, or `OWN_CONVERSATION`."""
    run: str = ""
    types: Sequence[str] = ()


class IndexedRun(Struct, frozen=True):
    """A run: its name in the journal, and its description as clients are sent it."""

    name: str
    body: bytes


class SavedLog(Struct, frozen=True):
    """What is to be written of a run: nothing but that it was there if its agent is deleted."""

    log: MessageLog
    has_messages: bool = False
    is_deleted: bool = False


def is_indexed(saved: SavedLog) -> bool:
    """Whether the messages of a run are listed.

    Not of a run that is in the agent's queue: a reader who goes on from there would miss what comes before it.
    """
    log = saved.log
    return saved.has_messages and (log.over or log.is_working or log.is_waiting)


def run_row(saved: SavedLog) -> tuple[object, ...]:
    """What is written of a run itself."""
    log = saved.log
    return (
        log.run,
        log.name,
        "" if saved.is_deleted else log.agent,
        log.conversation,
        log.began,
        log.status,
        log.stop,
        not log.over,
        log.is_background,
        _ENCODER.encode(log.describe_run()),
    )


def message_row(log: MessageLog, message: LettaMessage, clean: Callable[[bytes], bytes]) -> tuple[object, ...]:
    """What is written of one message; `clean` takes the secrets out of it."""
    return (
        message.id,
        log.agent,
        log.conversation,
        message.run_id,
        message.message_type,
        log.began,
        clean(_ENCODER.encode(message)),
    )


class IndexListing(Struct, frozen=True):
    """Which rows are listed: those whose columns have one of these values, as far as a page goes."""

    tests: Sequence[tuple[str, Sequence[str]]]
    page: ListPage
    is_descending: bool
    """The newest come first."""
    is_from_end: bool
    """The page is read from the end of the list, in the other direction."""

    @property
    def cursors(self) -> list[tuple[str, str]]:
        """How the place of a row compares with that of an id."""
        signs = "<>" if self.is_descending else "><"
        ids = (self.page.after, self.page.before)
        return [(sign, which) for sign, which in zip(signs, ids, strict=True) if which]

    @property
    def direction(self) -> str:
        return "DESC" if self.is_descending != self.is_from_end else "ASC"

    def in_order(self, bodies: list[bytes]) -> list[bytes]:
        """What was read in this direction, as it is shown."""
        return bodies[::-1] if self.is_from_end else bodies


def list_runs(wanted: IndexedRunFilter, page: ListPage) -> IndexListing:
    tests = [
        ("agent", wanted.agents),
        ("status", wanted.statuses),
        ("status", ("created", "running") if wanted.is_active else ()),
        ("stop", _only(wanted.stop)),
        ("conversation", _conversations(wanted.conversation)),
    ]
    return IndexListing(
        tests=[(column, values) for column, values in tests if values],
        page=page,
        is_descending=page.order == "desc",
        is_from_end=bool(page.before) and not page.after,
    )


def list_messages(wanted: MessageFilter, page: ListPage) -> IndexListing:
    tests = [
        ("agent", _only(wanted.agent)),
        ("conversation", _conversations(wanted.conversation)),
        ("run", _only(wanted.run)),
        ("type", wanted.types),
    ]
    return IndexListing(
        tests=[(column, values) for column, values in tests if values],
        page=page,
        is_descending=False,
        is_from_end=not page.after and (bool(page.before) or page.order == "desc"),
    )


def _only(value: str) -> Sequence[str]:
    return (value,) if value else ()


def _conversations(conversation: str) -> Sequence[str]:
    """What is written as the conversation of a row: nothing for an agent's own."""
    return ("",) if conversation == OWN_CONVERSATION else _only(conversation)


class Index(Protocol):
    """What every store of the index promises. Bodies are JSON as clients are sent it."""

    async def save(self, saved: Sequence[SavedLog]) -> None:
        """Write what these runs have come to, in one transaction; messages that are there already stay."""
        ...

    async def forget_agent(self, agent: str) -> None:
        """Drop everything that is known of an agent."""
        ...

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        """Drop the messages of a conversation, or of the agent's own; its runs stay."""
        ...

    async def runs(self, wanted: IndexedRunFilter, page: ListPage) -> list[bytes]:
        """A page of the bodies of runs."""
        ...

    async def run(self, run: str) -> IndexedRun | None: ...

    async def waiting_run(self, lane: str) -> str:
        """The run that waits for its client, in a conversation or in the agent's own; empty if none does."""
        ...

    async def latest_run(self, lane: str) -> str | None:
        """The journal of the run that began last, in a conversation or in the agent's own."""
        ...

    async def waiting_agents(self) -> list[str]:
        """The agents of which a run waits for its client in their own conversation."""
        ...

    async def ended(self) -> set[str]:
        """The journals that are indexed to their end."""
        ...

    async def messages(self, wanted: MessageFilter, page: ListPage) -> list[bytes]:
        """A page of the bodies of messages, from the oldest to the newest, whatever the order.

        `after` means newer and `before` older; the order only says at which end a list without a cursor begins. So
        Letta has it.
        """
        ...

    async def close(self) -> None: ...
