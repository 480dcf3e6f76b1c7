"""Agents in a file (`.af`): written out, and read back in. What a file holds is data: reading it runs nothing.

Ids in a file are those of the file; every agent, block and tool gets one of this server's when it is read in.
"""

from typing import Any

import msgspec
from msgspec import Struct, field

from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Profile
from chargehand.memory.conversation import Turn
from chargehand.server.letta.agent_shapes import KEPT, WITH_MODEL, AgentSent, ToolTold
from chargehand.server.letta.shapes import moment
from chargehand.server.problem import Problem
from chargehand.server.wire import read

PARTS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills")
_MOST = {"agents": 100, "blocks": 1000, "tools": 500}
_MOST_MESSAGES = 10_000
_RUNS = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")  # of the server they ran on


class MessageFiled(Struct):
    role: str = "user"
    content: str | list[dict[str, Any]] | None = None
    created_at: str | None = None

    @property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(str(one.get("text") or "") for one in self.content if one.get("type", "text") == "text")


class AgentFiled(AgentSent):
    """An agent in a file. Its `block_ids` and `tool_ids` are those of the file."""

    id: str = ""
    messages: list[MessageFiled] | None = None


class BlockFiled(Struct):
    label: str
    value: str = ""
    id: str = ""
    description: str | None = None
    limit: int | None = None
    read_only: bool | None = None
    metadata: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    tainted: bool = False
    untainted: str = ""


class ToolFiled(Struct):
    name: str
    id: str = ""
    description: str | None = None
    source_code: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    tool_type: str = "custom"
    tags: tuple[str, ...] | None = None
    return_char_limit: int | None = None


class AgentFile(Struct):
    """A whole file; what else stands in it is let go."""

    agents: list[AgentFiled]
    blocks: list[BlockFiled] = field(default_factory=list[BlockFiled])
    tools: list[ToolFiled] = field(default_factory=list[ToolFiled])


def parsed(raw: bytes) -> AgentFile:
    """What stands in a file; a problem in words where it is none, or holds too much."""
    if not raw.strip():
        raise Problem(422, "invalid", "the file is empty")
    found = read(raw, AgentFile)
    for name, most in _MOST.items():
        if len(getattr(found, name)) > most:
            raise Problem(422, "too_much", f"the file holds {len(getattr(found, name))} {name}; {most} are the most")
    if not found.agents:
        raise Problem(422, "invalid", "there is no agent in this file")
    for one in found.agents:
        if len(one.messages or ()) > _MOST_MESSAGES:
            said = f"agent {(one.name or one.id)[:60]!r} has {len(one.messages or ())} messages in this file"
            raise Problem(422, "too_much", f"{said}; {_MOST_MESSAGES} are the most")
    _check_references(found)
    return found


def _check_references(file: AgentFile) -> None:
    for what, ids in (("block", [one.id for one in file.blocks]), ("tool", [one.id for one in file.tools])):
        known = set(ids)
        if twice := next((one for one in known if one and ids.count(one) > 1), ""):
            raise Problem(
                422, "invalid", f"the file holds two {what}s with the id {twice[:60]!r}; each must have its own"
            )
        for agent in file.agents:
            for which in getattr(agent, f"{what}_ids") or ():
                if which not in known:
                    name = (agent.name or agent.id)[:60]
                    said = f"agent {name!r} has the {what} {which[:60]!r}, which is not in the file"
                    raise Problem(422, "invalid", said)


def turns_of(agent: AgentFiled) -> list[Turn]:
    """What was said, as far as it was words."""
    return [
        Turn("user" if one.role == "user" else "assistant", one.text, tainted=True)  # whoever wrote the file
        for one in agent.messages or ()
        if one.role in ("user", "assistant") and one.text.strip()
    ]


def written(profile: Profile, blocks: list[Block], tools: list[ToolTold], turns: list[Turn], version: str) -> bytes:
    """A file with one agent, as people can read it."""
    kept = [name for name in (*KEPT, *WITH_MODEL) if name in profile.settings and name not in _RUNS]
    settings = {name: profile.settings[name] for name in kept}
    said = [
        {
            "id": f"message-{number}",
            "role": "user" if one.role == "user" else "assistant",
            "content": [{"type": "text", "text": one.text}],
            "agent_id": "agent-0",
            "created_at": moment(one.when),
        }
        for number, one in enumerate(turns)
    ]
    agent: dict[str, object] = {
        **settings,
        "id": "agent-0",
        "name": profile.name,
        "description": profile.description or None,
        "system": profile.prompt,
        "agent_type": settings.get("agent_type") or "letta_v1_agent",
        "model": profile.model or None,
        "tags": profile.tags,
        "metadata": profile.metadata,
        "memory_blocks": [],
        "block_ids": [f"block-{number}" for number in range(len(blocks))],
        "tool_ids": [f"tool-{number}" for number in range(len(tools))],
        "messages": said,
        "in_context_message_ids": [one["id"] for one in said],
        "group_ids": [],
        "source_ids": [],
        "files_agents": [],
    }
    held = [
        {
            "id": f"block-{number}",
            "label": one.label,
            "value": one.value,
            "description": one.description or None,
            "limit": one.limit,
            "read_only": one.read_only,
            "tags": one.tags,
            "metadata": one.metadata,
            "tainted": one.tainted,
            "untainted": one.untainted,
        }
        for number, one in enumerate(blocks)
    ]
    filed = [{**msgspec.to_builtins(one), "id": f"tool-{number}"} for number, one in enumerate(tools)]
    whole: dict[str, object] = {name: [] for name in PARTS}
    whole |= {"agents": [agent], "blocks": held, "tools": filed, "metadata": {"written_by": f"chargehand {version}"}}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2)
