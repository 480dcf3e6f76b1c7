"""The index of a tenant: runs, messages and steps of its agents, listed and searched without reading every journal.

All of it is derived from the journal; what the index lacks is written in when the tenant is opened. Another kind of
store is one module with an `Index`, and a line in `open_index` of `sessions`.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.memory.catalog import Order
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.wire import RunResponse, StepResponse

_Item = TypeVar("_Item")


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


class IndexRunFilter(Struct, frozen=True, kw_only=True):
    """Which runs are wanted. Empty or None: any."""

    agents: Sequence[str] = ()
    statuses: Sequence[str] = ()
    stop_reason: str = ""
    conversation: str | None = None
    """Empty: the agents' own conversations."""
    background: bool | None = None
    active: bool = False


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Which messages are wanted. Empty or None: any."""

    agent: str = ""
    run: str = ""
    step: str = ""
    types: Sequence[str] = ()
    conversation: str | None = None
    """Empty: the agents' own conversations."""
    inherited: Sequence[tuple[str, Instant]] = ()
    """Of a forked conversation: the conversations it began with, and up to which moment of each."""
    since: Instant | None = None
    until: Instant | None = None


class StepFilter(Struct, frozen=True, kw_only=True):
    """Which steps are wanted. Empty or None: any."""

    id: str = ""
    agent: str = ""
    runs: Sequence[str] = ()
    model: str = ""
    feedback: str = ""
    has_feedback: bool | None = None
    since: Instant | None = None
    until: Instant | None = None


class IndexedRun(Struct, frozen=True):
    """A run: its name in the journal, its agent, and the bodies of its description and its usage."""

    name: str
    agent: str
    body: bytes
    usage: bytes


class IndexedMessage(Struct, frozen=True):
    """A message: its body, its agent and its run."""

    body: bytes
    agent: str
    run: str


class SavedLog(Struct, frozen=True):
    """What is to be written of a run: nothing but that it was there if its agent is deleted."""

    log: MessageLog
    has_messages: bool = False
    is_deleted: bool = False


class Index(Protocol):
    """Bodies are JSON as clients are sent it."""

    async def save(self, saved: Sequence[SavedLog]) -> None:
        """Write what these runs have come to, in one transaction; what is there already stays."""
        ...

    async def forget_agent(self, agent: str) -> None:
        """Drop everything that is known of an agent."""
        ...

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        """Drop the messages of a conversation, or of the agent's own; its runs stay."""
        ...

    async def rate_step(self, step: str, feedback: str, tags: Sequence[str]) -> None:
        """Keep the feedback of a person on a step."""
        ...

    async def runs(self, wanted: IndexRunFilter, page: ListPage) -> list[bytes]:
        """A page of the bodies of runs."""
        ...

    async def run(self, run: str) -> IndexedRun | None: ...

    async def last_runs(self, agents: Sequence[str]) -> dict[str, RunResponse]:
        """The run that began last among those that have ended, of each agent that has any."""
        ...

    async def waiting_run(self, lane: str) -> str:
        """The run that waits for its client, in a conversation or in the agent's own; empty if none does."""
        ...

    async def waiting_agents(self) -> list[str]:
        """The agents of which a run waits for its client in their own conversation."""
        ...

    async def ended(self) -> set[str]:
        """The journals that are indexed to their end."""
        ...

    async def last_active(self, conversation: str = "") -> dict[str, Instant]:
        """When the last message was sent in a conversation, or in each of them."""
        ...

    async def messages(self, wanted: MessageFilter, page: ListPage) -> list[bytes]:
        """A page of the bodies of messages, from the oldest to the newest, whatever the order.

        `after` means newer and `before` older; the order only says at which end a list without a cursor begins. So
        Letta has it.
        """
        ...

    async def message(self, message: str) -> IndexedMessage | None: ...

    async def last_message_time(self, run: str) -> Instant | None:
        """The time that the messages of a run are kept under; None where there are none."""
        ...

    async def search(self, query: str, wanted: MessageFilter, limit: int) -> list[IndexedMessage]:
        """Messages with these words, best first."""
        ...

    async def steps(self, wanted: StepFilter, page: ListPage) -> list[StepResponse]: ...

    async def close(self) -> None: ...
