"""The tools with which agents write to each other, as Letta calls them. Readers are looked up when they are used.

A message is a run inside the attempt of its sender (`runtime.nested`): all readers work at once, each has its own time,
and one that fails is one entry among the replies.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, cast

from chargehand.agents.messages import WorkerMessage, send, shown
from chargehand.engine.budget import NOTHING
from chargehand.engine.roster import Agent, Match
from chargehand.memory.catalog import Catalog, Profile
from chargehand.tools.tool import Caller, Costs, Tool, ToolFailed, tool

MATCHING = "send_message_to_agents_matching_tags"
MESSAGE_TOOLS = ("send_message_to_agent_and_wait_for_reply", MATCHING, "send_message_to_agent_async")
_MESSAGE = "what you want to know or to have done, with everything the reader needs to know"
_MAX_READERS = 500
_DAY = 86400.0  # the nested run ends long before


class AgentMessages:
    """Sends the messages of a tenant's agents. `listed` is an agent as the scheduler sees it.

    `on_answered` is told of the run of a message when it is over.
    """

    def __init__(
        self,
        catalog: Catalog,
        listed: Callable[[Profile], Agent],
        on_answered: Callable[[str], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._listed = listed
        self._on_answered = on_answered
        make_tool = tool(effect="idempotent", timeout=_DAY)
        self.tools: dict[str, Tool] = {name: make_tool(getattr(self, name)) for name in MESSAGE_TOOLS}

    async def send_message_to_agent_and_wait_for_reply(
        self,
        message: Annotated[str, _MESSAGE],
        other_agent_id: Annotated[str, "the id of the other agent"],
        caller: Caller,
    ) -> Costs:
        """Send a message to another agent and wait for the reply."""
        return await self._send(caller, message, await self._find(other_agent_id))

    async def send_message_to_agent_async(
        self,
        message: Annotated[str, _MESSAGE],
        other_agent_id: Annotated[str, "the id of the other agent"],
        caller: Caller,
    ) -> Costs:
        """Send a message to another agent; its reply comes back with the acknowledgement."""
        return await self._send(caller, message, await self._find(other_agent_id))

    async def send_message_to_agents_matching_tags(
        self,
        message: Annotated[str, _MESSAGE],
        caller: Caller,
        match_all: Annotated[Sequence[str], "tags that each of them must carry, every one"] = (),
        match_some: Annotated[Sequence[str], "tags of which each must carry at least one, if any are given"] = (),
    ) -> Costs:
        """Send a message to every other agent with certain tags, to all at once, and wait for their replies."""
        match = Match(tuple(dict.fromkeys(match_all)), tuple(dict.fromkeys(match_some)))
        readers = await self._catalog.find(Profile, tags=match, limit=_MAX_READERS + 1)
        if len(readers) > _MAX_READERS:
            raise ToolFailed(f"More than {_MAX_READERS} agents carry these tags; name more tags, to mean fewer agents.")
        return await self._send(caller, message, readers)

    async def _find(self, agent: str) -> list[Profile]:
        profile = await self._catalog.get(Profile, agent)
        if profile is not None:
            return [profile]
        namesakes = await self._catalog.find(Profile, name=agent, limit=2)
        if len(namesakes) == 1:
            return namesakes
        raise ToolFailed(f"There is no agent {agent[:100]!r}; give the id of one, as agent-...")

    async def _send(self, caller: Caller, message: str, to: Sequence[Profile]) -> Costs:
        context = caller.context
        if context is None:
            raise ToolFailed("Messages cannot be sent from here. Do without.")
        if not message.strip():
            raise ToolFailed("The message is empty; say what you want to know or to have done.")
        sender = caller.worker
        readers = {profile.id: profile for profile in to if profile.id != sender}
        if not readers and to:
            raise ToolFailed("That is yourself; message another agent, or do it.")
        if not readers:
            tags = ", ".join(await self._catalog.tags(Profile)) or "none"
            note = f"No other agent carries these tags; the tags there are: {tags}."
            return Costs({"replies": [], "note": note}, NOTHING)
        agents = tuple(self._listed(profile) for profile in readers.values())
        answered, used = await send(context, caller.key, WorkerMessage(message, agents, sender, foreign=True))
        if answered.run:
            await self._on_answered(answered.run)
        result = shown(answered)
        replies: list[dict[str, object]] = []
        for line in cast("list[dict[str, object]]", result["replies"]):
            agent_id = str(line.pop("worker"))
            name = readers[agent_id].name if agent_id in readers else ""
            replies.append({"agent_id": agent_id, "agent_name": name, **line})
        return Costs({**result, "replies": replies}, used)


def describe_message_tools() -> dict[str, Tool]:
    """The tools as clients are told of them; these cannot be called."""
    nothing = cast("Any", None)
    return AgentMessages(nothing, nothing, nothing).tools
