"""Agents exported to files and imported from them. A file is imported whole, or nothing of it is."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, field, structs
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from chargehand.memory.blocks import Block, Origin
from chargehand.memory.catalog import KeptTool, Profile, Thing
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Rethink
from chargehand.server.letta.agents import create_agent, describe_agent
from chargehand.server.letta.custom_tools import require_custom_tools
from chargehand.server.letta.memory import new_block
from chargehand.server.letta.models import model_problem
from chargehand.server.letta.request import text_of
from chargehand.server.letta.routing import LettaCall, route
from chargehand.server.letta.settings import refuse_unsupported
from chargehand.server.letta.tools import ToolFields, built_in, save_tool
from chargehand.server.letta.wire import AgentCreate, BlockCreate, MessageCreate, Table, Window, format_time
from chargehand.server.wire import Problem, invalid, misfit, read

_PARTS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills")
_MAX_MESSAGES = 10_000
_NOT_EXPORTED = ("memory", "llm_config", "pending_approval")  # they are of the server that the agent ran on


class FileModel(Struct):
    """The model of an agent in a file, as Letta's server names it."""

    model: str = ""
    model_endpoint_type: str = ""
    handle: str | None = None
    context_window: Window | None = None


class FileAgent(AgentCreate):
    """An agent in a file. Its `block_ids` and `tool_ids` are those of the file."""

    messages: Annotated[list[MessageCreate], Meta(max_length=_MAX_MESSAGES)] | None = None
    llm_config: FileModel | None = None


class FileBlock(BlockCreate, frozen=True, kw_only=True):
    value: str = ""
    id: str = ""
    tainted: bool = False
    untainted: str = ""


class FileTool(ToolFields, frozen=True, kw_only=True):
    name: str  # pyright: ignore[reportGeneralTypeIssues] - in a file it must be there
    id: str = ""
    tool_type: str = "custom"


class AgentFile(Struct):
    """A whole file; what else stands in it is ignored."""

    agents: Annotated[list[FileAgent], Meta(min_length=1, max_length=100)]
    blocks: Annotated[list[FileBlock], Meta(max_length=1000)] = field(default_factory=list[FileBlock])
    tools: Annotated[list[FileTool], Meta(max_length=500)] = field(default_factory=list[FileTool])


class ImportOptions(Struct):
    """What a client wants of an import, as the form names it. Letta has two names for some of it."""

    name: str = ""
    override_name: str = ""
    model: str = ""
    override_model_handle: str = ""
    strip_messages: bool = False


# --- export


@route("GET", "/v1/agents/{agent}/export")
async def export_agent(call: LettaCall) -> Response:
    call.check_query("scrub_messages")
    profile = await call.agent()
    turns: list[Turn] = []
    if not call.flag("scrub_messages"):
        turns = await call.catalog.turns(profile.id, limit=_MAX_MESSAGES, old=True)
    agent = await describe_agent(call, profile)
    blocks = _number("block", agent.pop("blocks"))
    tools = _number("tool", agent.pop("tools"))
    for name in _NOT_EXPORTED:
        del agent[name]
    agent["id"] = "agent-0"
    agent["model"] = profile.model or None
    agent["block_ids"] = [block["id"] for block in blocks]
    agent["tool_ids"] = [tool["id"] for tool in tools]
    agent["messages"] = [_export_turn(number, turn) for number, turn in enumerate(turns) if turn.role != "summary"]
    file: Table = {name: [] for name in _PARTS}
    file |= {"agents": [agent], "blocks": blocks, "tools": tools}
    file["metadata"] = {"written_by": f"chargehand {version('chargehand')}"}
    return Response(msgspec.json.format(msgspec.json.encode(file), indent=2), media_type="application/json")


def _number(kind: str, things: Sequence[Struct]) -> list[Table]:
    """Blocks or tools with ids of the file."""
    return [msgspec.to_builtins(thing) | {"id": f"{kind}-{number}"} for number, thing in enumerate(things)]


def _export_turn(number: int, turn: Turn) -> Table:
    return {
        "id": f"message-{number}",
        "role": "user" if turn.role == "user" else "assistant",
        "content": [{"type": "text", "text": turn.text}],
        "created_at": format_time(turn.when),
    }


# --- import


@route("POST", "/v1/agents/import")
async def import_agents(call: LettaCall) -> Table:
    raw, options = await _read_form(call)
    file = _parse(raw)
    if options.name and len(file.agents) > 1:
        raise invalid(f"name is for a file with one agent, and this one holds {len(file.agents)}; leave it out")
    created: list[tuple[type[Thing], str]] = []
    agents: list[str] = []
    try:
        tools = await _import_tools(call, file.tools, created)
        blocks = {block.id: await _import_block(call, block, created) for block in file.blocks}
        for agent in file.agents:
            _adapt(call, agent, options)
            agent.block_ids = tuple(blocks[block] for block in agent.block_ids or ())
            agent.tools = tuple(dict.fromkeys(tools[tool] for tool in agent.tool_ids or () if tool in tools))
            agent.tool_ids = None
            agents.append((await create_agent(call, agent))["id"])
            created.append((Profile, agents[-1]))
            turns = _read_turns(agent)
            if turns and not options.strip_messages:
                await call.catalog.say(agents[-1], turns)
    except BaseException:
        for kind, which in created:
            await call.catalog.delete(kind, which)
        raise
    return {"agent_ids": agents}


async def _read_form(call: LettaCall) -> tuple[bytes, ImportOptions]:
    try:
        async with call.request.form(max_files=1, max_fields=30) as form:
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise invalid("there is no file: send one as `file`, in a form (multipart/form-data)")
            texts = {name: value for name, value in form.items() if isinstance(value, str)}
            refuse_unsupported(texts, ImportOptions.__struct_fields__)
            options = msgspec.convert(texts, ImportOptions, strict=False)
            options.name = options.name or options.override_name
            options.model = options.model or options.override_model_handle
            return await upload.read(), options
    except msgspec.ValidationError as error:
        raise misfit(error, ImportOptions, UNSET) from error
    except HTTPException as error:
        raise invalid(f"the form cannot be read: {error.detail}") from error
    except UnicodeError as error:  # a form may say in which encoding it is
        raise invalid("the form cannot be read: send it in UTF-8") from error
    except ClientDisconnect as error:
        raise Problem(400, "cut", "the file was cut off") from error


def _parse(raw: bytes) -> AgentFile:
    """What stands in a file; a problem if it is none, or if ids in it do not fit together."""
    if not raw.strip():
        raise invalid("the file is empty")
    file = read(raw, AgentFile)
    ids: set[str] = set()
    for thing in (*file.blocks, *file.tools):
        if thing.id and thing.id in ids:
            raise invalid(f"the file holds two things with the id {thing.id[:60]!r}; each must have its own")
        ids.add(thing.id)
    for agent in file.agents:
        for which in (*(agent.block_ids or ()), *(agent.tool_ids or ())):
            if which not in ids:
                raise invalid(f"agent {(agent.name or '')[:60]!r} has {which[:60]!r}, which is not in the file")
    return file


async def _import_tools(
    call: LettaCall, tools: list[FileTool], created: list[tuple[type[Thing], str]]
) -> dict[str, str]:
    """The names of tools by their ids in the file. Those of Letta that there are not here are left out."""
    own = [tool for tool in tools if tool.name not in built_in() and tool.tool_type == "custom"]
    if own:
        require_custom_tools(call.tenant, f"({', '.join(tool.name[:60] for tool in own[:10])}) ")
    for tool in own:
        if not tool.source_code:
            raise Problem(422, "not_a_tool", f"the tool {tool.name[:60]!r} has no source in this file")
        tool_kept, is_new = await save_tool(call, tool, replace=False)
        if is_new:
            created.append((KeptTool, tool_kept.id))
    available = {tool.name for tool in own} | {*built_in()}
    return {tool.id: tool.name for tool in tools if tool.name in available}


async def _import_block(call: LettaCall, filed: FileBlock, created: list[tuple[type[Thing], str]]) -> str:
    """Keep a block; its id. Text from outside stays apart from what instructed before it got in."""
    new = new_block(filed)
    if filed.tainted:
        new = structs.replace(new, value=filed.untainted)
    block = await call.catalog.add(new)
    created.append((Block, block.id))
    if filed.tainted:
        await call.catalog.edit(block.id, Rethink(filed.value), Origin(tainted=True))
    return block.id


def _adapt(call: LettaCall, agent: FileAgent, options: ImportOptions) -> None:
    """Change an agent of a file to what it is here: its name and model, and only the tools it had."""
    agent.name = options.name or agent.name
    config = agent.llm_config or FileModel()
    if config.context_window is not None:
        agent.context_window_limit = config.context_window
    model = agent.model or config.handle or f"{config.model_endpoint_type}/{config.model}"
    if model_problem(model, call.tenant):
        model = ""  # the server that wrote the file had it; here the default one answers
    agent.model = options.model or model
    agent.include_base_tools = False


def _read_turns(agent: FileAgent) -> list[Turn]:
    """What was said, as far as it was words."""
    turns: list[Turn] = []
    for message in agent.messages or ():
        text = text_of(message.content)
        if message.role in ("user", "assistant") and text.strip():
            role = "user" if message.role == "user" else "assistant"
            turns.append(Turn(role, text, tainted=True))  # the file may be from anywhere
    return turns
