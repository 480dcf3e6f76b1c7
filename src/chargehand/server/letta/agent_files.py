"""Agents exported to files and imported from them. A file is imported whole, or nothing of it is."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

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
from chargehand.server.letta.models import configured_handle, model_problem
from chargehand.server.letta.request import text_of
from chargehand.server.letta.routing import LettaCall, Routes
from chargehand.server.letta.settings import refuse_unsupported
from chargehand.server.letta.tools import ToolFields, built_in, save_tool
from chargehand.server.letta.wire import AgentCreate, BlockCreate, MessageCreate, Table, format_time
from chargehand.server.wire import Problem, invalid, misfit, read

routes = Routes()
_PARTS = ("agents", "groups", "blocks", "files", "sources", "tools", "mcp_servers", "skills")
_MAX_MESSAGES = 10_000
_EMBEDDING_HEADER = "x-override-embedding-model"
_NOT_EXPORTED = (  # they are of the server that the agent ran on
    "memory",
    "llm_config",
    "pending_approval",
    "last_stop_reason",
    "last_run_completion",
    "last_run_duration_ms",
)


class FileAgent(AgentCreate):
    """An agent in a file. Its `block_ids` and `tool_ids` are those of the file."""

    id: str = ""
    messages: Annotated[list[MessageCreate], Meta(max_length=_MAX_MESSAGES)] | None = None


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
    """The name of the agent; refused if the file holds several."""
    override_name: str = ""
    model: str = ""
    override_model_handle: str = ""
    embedding: str = ""
    override_embedding_handle: str = ""
    project_id: str = ""
    append_copy_suffix: bool = False
    strip_messages: bool = False
    override_existing_tools: bool = False


# --- export


@routes.get("/v1/agents/{agent}/export")
async def export_agent(call: LettaCall) -> Response:
    profile = await call.agent()
    if call.flag("use_legacy_format"):
        raise Problem(422, "unsupported", "the old format is not written any more; leave use_legacy_format out")
    if call.query.get("conversation_id"):
        advice = "the agent's own messages are exported; leave it out"
        raise Problem(422, "unsupported", f"conversation_id is not supported: {advice}")
    turns: list[Turn] = []
    if not call.flag("scrub_messages"):
        turns = await call.catalog.turns(profile.id, limit=_MAX_MESSAGES, old=True)
    agent = await describe_agent(call, profile)
    messages = [_export_turn(number, turn) for number, turn in enumerate(turns) if turn.role != "summary"]
    blocks = _number("block", agent.pop("blocks"))
    tools = _number("tool", agent.pop("tools"))
    for name in _NOT_EXPORTED:
        agent.pop(name, None)
    agent |= {
        "id": "agent-0",
        "model": profile.model or None,
        "block_ids": [block["id"] for block in blocks],
        "tool_ids": [tool["id"] for tool in tools],
        "messages": messages,
        "in_context_message_ids": [message["id"] for message in messages],
        **{name: [] for name in ("memory_blocks", "group_ids", "source_ids", "files_agents")},
    }
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
        "agent_id": "agent-0",
        "created_at": format_time(turn.when),
    }


# --- import


@routes.post("/v1/agents/import")
async def import_agents(call: LettaCall) -> Table:
    raw, options = await _read_form(call)
    file = _parse(raw)
    if options.name and len(file.agents) > 1:
        raise invalid(f"name is for a file with one agent, and this one holds {len(file.agents)}; leave it out")
    created: list[tuple[type[Thing], str]] = []
    agents: list[str] = []
    try:
        tools = await _import_tools(call, file.tools, created, replace=options.override_existing_tools)
        blocks = {block.id: await _import_block(call, block, created) for block in file.blocks}
        for agent in file.agents:
            sent = _read_agent(call, agent, options)
            sent.block_ids = tuple(blocks[block] for block in agent.block_ids or ())
            sent.tools = tuple(dict.fromkeys(tools[tool] for tool in agent.tool_ids or () if tool in tools))
            agents.append((await create_agent(call, sent))["id"])
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
            return await upload.read(), _read_options(texts, call.request.headers.get(_EMBEDDING_HEADER, ""))
    except msgspec.ValidationError as error:
        raise misfit(error, ImportOptions, UNSET) from error
    except HTTPException as error:
        raise invalid(f"the form cannot be read: {error.detail}") from error
    except UnicodeError as error:  # a form may say in which encoding it is
        raise invalid("the form cannot be read: send it in UTF-8") from error
    except ClientDisconnect as error:
        raise Problem(400, "cut", "the file was cut off") from error


def _read_options(texts: dict[str, str], embedding: str) -> ImportOptions:
    refuse_unsupported(texts, ImportOptions.__struct_fields__)
    options = msgspec.convert(texts, ImportOptions, strict=False)
    return structs.replace(
        options,
        name=options.name or options.override_name,
        model=options.model or options.override_model_handle,
        embedding=options.embedding or options.override_embedding_handle or embedding,
    )


def _parse(raw: bytes) -> AgentFile:
    """What stands in a file; a problem if it is none, or holds too much."""
    if not raw.strip():
        raise invalid("the file is empty")
    file = read(raw, AgentFile)
    ids = _check_ids("block", [block.id for block in file.blocks])
    ids |= _check_ids("tool", [tool.id for tool in file.tools])
    for agent in file.agents:
        for which in (*(agent.block_ids or ()), *(agent.tool_ids or ())):
            if which not in ids:
                name = (agent.name or agent.id)[:60]
                raise invalid(f"agent {name!r} has {which[:60]!r}, which is not in the file")
    return file


def _check_ids(kind: str, ids: list[str]) -> set[str]:
    """The ids, each of which must be there once."""
    if twice := next((each for each in ids if each and ids.count(each) > 1), ""):
        raise invalid(f"the file holds two {kind}s with the id {twice[:60]!r}; each must have its own")
    return set(ids)


async def _import_tools(
    call: LettaCall, tools: list[FileTool], created: list[tuple[type[Thing], str]], *, replace: bool
) -> dict[str, str]:
    """The names of tools by their ids in the file. Those of Letta that there are not here are left out."""
    own = [tool for tool in tools if tool.name not in built_in() and tool.tool_type == "custom"]
    if own:
        require_custom_tools(call.tenant, f"({', '.join(tool.name[:60] for tool in own[:10])}) ")
    for tool in own:
        if not tool.source_code:
            raise Problem(422, "not_a_tool", f"the tool {tool.name[:60]!r} has no source in this file")
        tool_kept, is_new = await save_tool(call, tool, replace=replace)
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


def _read_agent(call: LettaCall, filed: FileAgent, options: ImportOptions) -> AgentCreate:
    fields: dict[str, Any] = {name: getattr(filed, name) for name in AgentCreate.__struct_fields__}
    name = options.name or filed.name
    model = filed.model or ("" if filed.llm_config is None else configured_handle(filed.llm_config))
    if model_problem(model, call.tenant):
        model = ""  # the server that wrote the file had it; here the default one answers
    fields |= {
        "name": f"{name}_copy" if options.append_copy_suffix and name else name,
        "model": options.model or model,
        "embedding": options.embedding or filed.embedding,
        "project_id": options.project_id or filed.project_id,
        "tool_ids": None,
        "include_base_tools": False,
        "initial_message_sequence": None,
    }
    return AgentCreate(**fields)


def _read_turns(agent: FileAgent) -> list[Turn]:
    """What was said, as far as it was words."""
    texts = [(message.role, text_of(message.content)) for message in agent.messages or ()]
    return [
        Turn("user" if role == "user" else "assistant", text, tainted=True)  # the file may be from anywhere
        for role, text in texts
        if role in ("user", "assistant") and text.strip()
    ]
