"""The tools with which agents write to each other, as Letta calls them. Who is meant is looked up when they write.

A message is a run inside the attempt of its sender (`runtime.nested`): all who are meant work at once, each has its
own time, whoever fails is one entry among the replies, and nobody waits for somebody who waits for them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, cast
from weakref import WeakSet

from chargehand.agents.letters import Letter
from chargehand.agents.mail import Carrier, shown
from chargehand.memory.catalog import Catalog, Profile
from chargehand.terms.budget import NOTHING
from chargehand.terms.roster import Agent, Match
from chargehand.tools.tool import CallKey, Costs, Tool, ToolFailed, tool

ONE = "send_message_to_agent_and_wait_for_reply"
MATCHING = "send_message_to_agents_matching_tags"
LATER = "send_message_to_agent_async"
MAIL = (ONE, MATCHING, LATER)
_MESSAGE = "what you want to know or to have done, with everything the reader needs to know"
_MOST = 500  # agents that one message is for
_DAY = 86400.0  # the nested run ends long before


async def _unheard(_run: str) -> None:
    """Nobody wants to know."""


class Post:
    """Where the agents of a house hand in messages. `listed` is an agent as the scheduler sees it."""

    def __init__(self, catalog: Catalog | None, listed: Callable[[Profile], Agent] | None) -> None:
        self._kept = catalog
        self._listed = listed
        self._carriers: WeakSet[Carrier] = WeakSet()
        self.carried: Callable[[str], Awaitable[None]] = _unheard
        """Told of the run that carried a message, when it is over."""
        made = tool(effect="idempotent", timeout=_DAY)
        self.tools: dict[str, Tool] = {name: made(getattr(self, name)) for name in MAIL}

    @classmethod
    def described(cls) -> dict[str, Tool]:
        """The tools as a model is told of them; these cannot be called."""
        return cls(None, None).tools

    @property
    def _catalog(self) -> Catalog:
        assert self._kept is not None, "tools that are only described are not called"
        return self._kept

    def bind(self, carrier: Carrier) -> None:
        self._carriers.add(carrier)

    async def send_message_to_agent_and_wait_for_reply(
        self,
        message: Annotated[str, _MESSAGE],
        other_agent_id: Annotated[str, "the id of the other agent"],
        key: CallKey,
    ) -> Costs:
        """Send a message to another agent and wait for the reply."""
        return await self._send(key, message, await self._named(other_agent_id), other_agent_id)

    async def send_message_to_agents_matching_tags(
        self,
        message: Annotated[str, _MESSAGE],
        key: CallKey,
        match_all: Annotated[Sequence[str], "tags that each of them must carry, every one"] = (),
        match_some: Annotated[Sequence[str], "tags of which each must carry at least one, if any are given"] = (),
    ) -> Costs:
        """Send a message to every other agent with certain tags, to all at once, and wait for their replies."""
        match = Match(tuple(dict.fromkeys(match_all)), tuple(dict.fromkeys(match_some)))
        found = await self._catalog.find(Profile, tags=match, limit=_MOST + 1)
        if len(found) > _MOST:
            raise ToolFailed(f"More than {_MOST} agents carry these tags; name more of them, to mean fewer agents.")
        return await self._send(key, message, found, repr(match))

    async def send_message_to_agent_async(
        self,
        message: Annotated[str, _MESSAGE],
        other_agent_id: Annotated[str, "the id of the other agent"],
        key: CallKey,
    ) -> Costs:
        """Send a message to another agent; its reply comes back with the acknowledgement."""
        return await self._send(key, message, await self._named(other_agent_id), other_agent_id)

    # --- inside

    async def _named(self, which: str) -> list[Profile]:
        found = await self._catalog.get(Profile, which)
        if found is not None:
            return [found]
        alike = await self._catalog.find(Profile, name=which, limit=2)
        if len(alike) == 1:
            return alike
        raise ToolFailed(f"There is no agent {which[:100]!r}; give the id of one, as agent-...")

    async def _send(self, key: str, message: str, to: Sequence[Profile], wanted: str) -> Costs:
        carrier, sender = self._found(key)
        if not message.strip():
            raise ToolFailed("The message is empty; say what you want to know or to have done.")
        others = [one for one in to if one.id != sender]
        if not others and to:
            raise ToolFailed("That is yourself; message somebody else, or do it.")
        if not others:
            tags = ", ".join(await self._catalog.tags(Profile)) or "none"
            note = f"No other agent carries these tags; the tags there are: {tags}."
            return Costs({"replies": [], "note": note}, NOTHING)
        assert self._listed is not None
        agents = tuple(self._listed(one) for one in others)
        carried = await carrier.carry(key, Letter(message, agents, sender, foreign=True, wanted=wanted))
        if carried.replies.run:
            await self.carried(carried.replies.run)
        names = {one.id: one.name for one in others}
        return Costs(_named_replies(shown(carried.replies), names), carried.used)

    def _found(self, key: str) -> tuple[Carrier, str]:
        for carrier in self._carriers:
            if sender := carrier.sender(key):
                return carrier, sender
        raise ToolFailed("Messages cannot be sent from here. Do without.")


def _named_replies(told: dict[str, object], names: dict[str, str]) -> dict[str, object]:
    """Replies with the agents' ids and names, as whoever reads Letta's expects them."""
    lines = cast("list[dict[str, object]]", told["replies"])
    replies = [
        {"agent_id": (which := str(one["worker"])), "agent_name": names.get(which, ""), **_without_worker(one)}
        for one in lines
    ]
    return {**told, "replies": replies}


def _without_worker(line: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in line.items() if name != "worker"}
