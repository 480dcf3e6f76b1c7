"""Agents sent out as files and taken in from them. A file is taken in whole, or nothing of it is."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct, field, structs
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import KeptTool, Profile
from chargehand.memory.conversation import Turn
from chargehand.memory.editing import Rethink
from chargehand.memory.origin import Origin
from chargehand.server.letta.agent_shapes import KEPT, WITH_MODEL, AgentSent, ToolTold
from chargehand.server.letta.agents import found, made
from chargehand.server.letta.custom import allowed
from chargehand.server.letta.mapping import block_made
from chargehand.server.letta.shapes import BlockSent, moment
from chargehand.server.letta.tool_routes import ToolSent, tool_made
from chargehand.server.letta.tools import built_in, tools_told
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import flag, part, read, reply

# --- agent files

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


_MOST_TURNS = 10_000
_NAMES = "names of tools"


class Made(Struct):
    """What was made so far, to be taken away again if the rest cannot be."""

    agents: list[str] = field(default_factory=list[str])
    blocks: dict[str, str] = field(default_factory=dict[str, str])
    tools: list[str] = field(default_factory=list[str])


class Wishes(Struct):
    """How a file is to be taken in."""

    name: str = ""
    model: str = ""
    suffix: bool = False
    without_messages: bool = False
    replace_tools: bool = False


def add(api: Api) -> None:
    api.add("POST", "/v1/agents/import", take_in)
    api.add("GET", "/v1/agents/{agent}/export", send_out, "read")


async def send_out(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    catalog = tenant.memory.catalog
    if flag(request, "use_legacy_format"):
        raise Problem(422, "unsupported", "the old format is not written any more; leave use_legacy_format out")
    blocks = [one.thing for one in await catalog.attached(profile.id) if not isinstance(one.thing, Archive)]
    turns = [] if flag(request, "scrub_messages") else await catalog.turns(profile.id, limit=_MOST_TURNS, old=True)
    told = await tools_told(tenant, profile)
    said = [one for one in turns if one.role != "summary"]
    return Response(written(profile, blocks, told, said, version("chargehand")), media_type="application/json")


async def take_in(request: Request, tenant: Tenant) -> Response:
    raw, wishes = await _sent(request)
    file = parsed(raw)
    kept = Made()
    try:
        names = await _tools(tenant, file.tools, kept, replace=wishes.replace_tools)
        for one in file.blocks:
            await _keep_block(tenant, one, kept)
        for one in file.agents:
            kept.agents.append(await _agent(tenant=tenant, filed=one, file=file, wishes=wishes, names=names, kept=kept))
    except BaseException:
        await _take_away(tenant, kept)
        raise
    return reply({"agent_ids": kept.agents})


async def _sent(request: Request) -> tuple[bytes, Wishes]:
    try:
        async with request.form(max_files=1, max_fields=30) as form:
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise Problem(422, "invalid", "there is no file: send one as `file`, in a form (multipart/form-data)")
            return await upload.read(), _wishes(form)
    except HTTPException as error:
        raise Problem(422, "invalid", f"the form cannot be read: {error.detail}") from error
    except UnicodeError as error:  # a form may say in which encoding it is
        raise Problem(422, "invalid", "the form cannot be read: send it in UTF-8") from error
    except ClientDisconnect as error:
        raise Problem(400, "cut", "the file was cut off") from error


def _wishes(form: FormData) -> Wishes:
    def text(*names: str) -> str:
        found = (form.get(name) for name in names)
        return next((one for one in found if isinstance(one, str) and one), "")

    def true(name: str) -> bool:
        return text(name).lower() in ("true", "1")

    return Wishes(
        name=text("name", "override_name"),
        model=text("model", "override_model_handle"),
        suffix=true("append_copy_suffix"),
        without_messages=true("strip_messages"),
        replace_tools=true("override_existing_tools"),
    )


async def _keep_block(tenant: Tenant, filed: BlockFiled, kept: Made) -> None:
    """A block of the file. Text from outside stays apart from what instructed before it got in."""
    value = filed.untainted if filed.tainted else filed.value
    sent = BlockSent(
        label=filed.label,
        value=value,
        description=filed.description,
        limit=filed.limit,
        read_only=filed.read_only,
        metadata=filed.metadata,
        tags=filed.tags,
    )
    block = await tenant.memory.catalog.add(block_made(sent))
    kept.blocks[filed.id] = block.id
    if filed.tainted:
        await tenant.memory.catalog.edit(block.id, Rethink(filed.value), Origin(tainted=True))


async def _tools(tenant: Tenant, tools: Sequence[ToolFiled], kept: Made, *, replace: bool) -> dict[str, str]:
    """The names of tools by their ids in the file. Those of Letta that there are not here are left out."""
    own = [one for one in tools if one.name not in built_in() and one.tool_type == "custom"]
    if own and not tenant.settings.custom_tools:
        named = ", ".join(one.name[:60] for one in own[:10])
        raise Problem(403, "custom_tools_off", f"the file brings tools of its own ({named}), which are off here")
    if own:
        allowed(tenant)
    fresh = [tool_made(KeptTool(""), _as_sent(one)) for one in own]
    async with changing(tenant, _NAMES):
        for one in fresh:
            known = await tenant.memory.catalog.find(KeptTool, name=one.name, limit=1)
            if not known:
                kept.tools.append((await tenant.memory.catalog.add(one)).id)
            elif replace:
                await tenant.memory.catalog.change(structs.replace(one, id=known[0].id))
    there = {one.name for one in own} | set(built_in())
    return {one.id: one.name for one in tools if one.name in there}


def _as_sent(filed: ToolFiled) -> ToolSent:
    if not filed.source_code:
        raise Problem(422, "not_a_tool", f"the tool {filed.name[:60]!r} has no source in this file")
    return ToolSent(
        filed.source_code,
        filed.source_type,
        filed.description,
        filed.json_schema,
        tags=filed.tags,
        return_char_limit=filed.return_char_limit,
        name=filed.name,
    )


async def _agent(
    tenant: Tenant, filed: AgentFiled, file: AgentFile, wishes: Wishes, names: dict[str, str], kept: Made
) -> str:
    name = wishes.name if wishes.name and len(file.agents) == 1 else filed.name
    sent = AgentSent(**{each: getattr(filed, each) for each in AgentSent.__struct_fields__})
    sent = structs.replace(
        sent,
        name=f"{name}_copy" if wishes.suffix and name else name,
        model=wishes.model or sent.model,
        block_ids=tuple(kept.blocks[one] for one in filed.block_ids or ()),
        tool_ids=None,
        include_base_tools=False,
        initial_message_sequence=None,
        tools=tuple(dict.fromkeys(names[one] for one in filed.tool_ids or () if one in names)),
    )
    made_one = await made(tenant, sent)
    turns = turns_of(filed)
    if turns and not wishes.without_messages:
        await tenant.memory.catalog.say(made_one.id, turns)
    return made_one.id


async def _take_away(tenant: Tenant, kept: Made) -> None:
    catalog = tenant.memory.catalog
    for which in kept.agents:
        await catalog.delete(Profile, which)
    for which in kept.blocks.values():
        await catalog.delete(Block, which)
    for which in kept.tools:
        await catalog.delete(KeptTool, which)
