"""The tools with which a worker sends messages to others, and what their replies look like to it.

How a message is carried (as a run of its own) is the runtime's business: a carrier binds itself to the `Post`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Protocol, cast
from weakref import WeakSet

from msgspec import Struct, structs

from chargehand.agents.contacts import check, reach
from chargehand.agents.letters import Letter, Replies, WorkerReply, matching, named, nobody
from chargehand.agents.worker import Contacts, Worker
from chargehand.errors import Invalid, NotJson
from chargehand.models.model import Model
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.roster import Agent, Match
from chargehand.terms.value import encode_value
from chargehand.tools.calling import capped
from chargehand.tools.tool import CallKey, Costs, Tool, ToolFailed, tool, with_names

ONE = "send_message_to_agent_and_wait_for_reply"
MATCHING = "send_message_to_agents_matching_tags"
MAIL = (ONE, MATCHING)
_MESSAGE = "what you want to know or to have done, with everything the reader needs to know"

_NOBODY = Contacts()
_MOST_NAMED = 30
_DAY = 86400.0  # the nested run ends long before
# tokens out and in of one call, where nobody knows better
_REPLY = 1024
_ASKED = 3000
_ROOMS = (512 * 1024, 64 * 1024)  # bytes that all replies together may take; the second where JSON blows them up
_LARGEST = 1024 * 1024


def allowance(worker: Worker, models: Sequence[Model]) -> Amount:
    """What a worker may use for one message at most: its estimate, else what all its steps would cost."""
    out = worker.settings.max_tokens or _REPLY
    given = worker.estimate
    micros = max((model.card.price(_ASKED, out) or 0 for model in models), default=0)
    return Amount(
        tokens=given.tokens or worker.most_replies * (_ASKED + out),
        micros=given.micros or worker.most_replies * micros,
        calls=given.calls or worker.most_replies,
    )


def check_contacts(workers: Sequence[Worker]) -> None:
    """Raise Invalid for the first worker that names a tool for messages and does not say whom it may write to."""
    tags: dict[str, Sequence[str]] = {one.name: tuple(one.tags) for one in workers}
    for one in workers:
        sends = next((name for name in one.tools if isinstance(name, str) and name in MAIL), "")
        if sends or one.contacts:
            check(one.name, one.contract, sends, tags)


# --- the tools


class Carried(Struct, frozen=True):
    """The replies, and what is still to be paid for them."""

    replies: Replies
    used: Amount


class Carrier(Protocol):
    """Whoever can carry the messages of calls it knows."""

    def sender(self, key: str) -> str:
        """The worker who makes this call, as the engine recorded it; nothing if the call is not under way here."""
        ...

    async def sent(self, key: str) -> int:
        """How many messages were sent before this call, for the same task."""
        ...

    async def carry(self, key: str, letter: Letter) -> Carried:
        """Hand a letter to all it is for and wait for their replies, at most as long as the sender has."""
        ...


class Post:
    """Where the workers of one crew hand in messages. `allowances` are what each may use, where money is capped.

    `contracts` say whom each may write to; who has none writes to nobody.
    """

    def __init__(
        self,
        agents: Sequence[Agent] = (),
        allowances: Mapping[str, Amount] | None = None,
        contracts: Mapping[str, Contacts] | None = None,
    ) -> None:
        self._agents = tuple(agents)
        self._allowances = allowances or {}
        self._contracts = contracts or {}
        self._carriers: WeakSet[Carrier] = WeakSet()

    def bind(self, carrier: Carrier) -> None:
        self._carriers.add(carrier)

    def tools(self, sender: str = "") -> dict[str, Tool]:
        """The tools a worker may name among its own; those of a sender say whom it may write to."""
        made = tool(effect="idempotent", timeout=_DAY)
        one = made(self.send_message_to_agent_and_wait_for_reply)
        some = made(self.send_message_to_agents_matching_tags)
        allowed = self._allowed(sender)
        return {each.name: _told(each, sender, allowed, partial(self._reserve, allowed)) for each in (one, some)}

    def _allowed(self, sender: str) -> tuple[Agent, ...]:
        return reach(self._contracts.get(sender, _NOBODY), self._agents, sender)

    async def send_message_to_agent_and_wait_for_reply(
        self,
        message: Annotated[str, _MESSAGE],
        worker: Annotated[str, "the name of the other worker"],
        key: CallKey,
    ) -> Costs:
        """Send a message to another worker of the team and wait for the reply."""
        return await self._send(key, message, worker)

    async def send_message_to_agents_matching_tags(
        self,
        message: Annotated[str, _MESSAGE],
        key: CallKey,
        match_all: Annotated[Sequence[str], "tags that each of them must carry, every one"] = (),
        match_some: Annotated[Sequence[str], "tags of which each must carry at least one, if any are given"] = (),
    ) -> Costs:
        """Send a message to every other worker of the team with certain tags, to all at once, and wait for replies."""
        return await self._send(key, message, Match(tuple(match_all), tuple(match_some)))

    async def _send(self, key: str, message: str, to: str | Match) -> Costs:
        carrier, sender = self._found(key)
        if not message.strip():
            raise ToolFailed("The message is empty; say what you want to know or to have done.")
        allowed = self._allowed(sender)
        agents = matching(allowed, to) if isinstance(to, Match) else self._named(to, sender, allowed)
        if not agents:
            return Costs({"replies": [], "note": self._nobody(cast("Match", to), sender, allowed)}, NOTHING)
        most = self._contracts[sender].most
        if most is not None and await carrier.sent(key) >= most:
            times = "one message" if most == 1 else f"{most} messages"
            raise ToolFailed(f"You may send {times} for a task, and have. Go on with what you know.")
        letter = Letter(message, agents, sender, foreign=True, wanted=repr(to))
        carried = await carrier.carry(key, letter)
        return Costs(shown(carried.replies), carried.used)

    def _named(self, name: str, sender: str, allowed: Sequence[Agent]) -> tuple[Agent, ...]:
        if name == sender:
            raise ToolFailed("That is yourself; message somebody else, or do it.")
        if name not in {one.name for one in allowed} and any(one.name == name for one in self._agents):
            raise ToolFailed(f"You may not write to {name!r}. {_may(allowed)}")
        try:
            return named(allowed, [name])
        except Invalid as error:
            raise ToolFailed(str(error) if allowed else f"there is no worker {name[:100]!r}. {_may(())}") from error

    def _nobody(self, match: Match, sender: str, allowed: Sequence[Agent]) -> str:
        known = {sender, *(one.name for one in allowed)}
        said = nobody([one for one in self._agents if one.name in known], match)
        return said if len(known) == len(self._agents) else f"{said} {_may(allowed)}"

    def _found(self, key: str) -> tuple[Carrier, str]:
        for carrier in self._carriers:
            if sender := carrier.sender(key):
                return carrier, sender
        raise ToolFailed("Messages cannot be sent from here: no run of this team is under way. Do without.")

    def _reserve(self, allowed: Sequence[Agent], given: Mapping[str, object]) -> Amount:
        """What everybody a call means may use together; the nested run gets that and no more."""
        one = given.get("worker")
        some = given.get("match_some")
        every = given.get("match_all")
        match = Match(tuple(cast("list[str]", every or ())), tuple(cast("list[str]", some or ())))
        names = [one] if isinstance(one, str) else [agent.name for agent in matching(allowed, match)]
        return sum((self._allowances[name] for name in names if name in self._allowances), NOTHING)


def _told(made: Tool, sender: str, allowed: Sequence[Agent], reserve: Callable[..., Amount]) -> Tool:
    spec = made.spec
    if sender:  # whoever calls it need not guess
        spec = structs.replace(spec, description=f"{spec.description} {_may(allowed)}")
    known = with_names(structs.replace(made, spec=spec), "worker", [one.name for one in allowed])
    return structs.replace(known, reserve=reserve, share=True)


def _may(allowed: Sequence[Agent]) -> str:
    names = [one.name for one in allowed]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"You may write to {', '.join(names[:_MOST_NAMED]) or 'nobody'}{more}."


def shown(replies: Replies) -> dict[str, object]:
    """Replies as the sender's model reads them: every worker is there, and long words are cut before any is left out.

    Neither times nor names of runs are in it: the same answer twice must look the same.
    """
    found: dict[str, object] = {}
    for room in _ROOMS:
        found = {"replies": [_line(one, room // max(1, len(replies.replies))) for one in replies.replies]}
        if replies.note:
            found["note"] = replies.note
        if len(encode_value(found)) <= _LARGEST:
            break
    return found


def _line(one: WorkerReply, room: int) -> dict[str, object]:
    line: dict[str, object] = {"worker": one.worker, "status": one.status}
    if one.status != "answered":
        return {**line, "failure": capped(one.failure, room)[0]}
    if not one.text and _fits(one.value, room):
        return {**line, "reply": one.value}
    return {**line, "reply": capped(one.text or bytes(encode_value(one.value)).decode(), room)[0]}


def _fits(value: object, room: int) -> bool:
    """Whether a result can stand as it is inside that of a tool, which is a few levels deeper."""
    try:
        return len(encode_value([[[[value]]]])) <= room
    except NotJson:
        return False
