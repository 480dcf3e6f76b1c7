"""The tools that agents of this door may have: those of memory, those for messages, and those that clients brought.

A client's tool is source text. It is kept, and run only in the sandbox, and only where the operator allows it.
"""

import uuid
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from chargehand.memory.catalog import Catalog, KeptTool, Profile
from chargehand.models.messages import ToolSpec
from chargehand.server.letta.agent_shapes import ToolTold
from chargehand.server.letta.mail import MAIL, Post
from chargehand.server.problem import Problem, unknown
from chargehand.server.tenants import Tenant
from chargehand.tools.remember import described

_SPACE = uuid.UUID("6d1d7b3c-6a0c-4f0e-9f57-3f2a6f0f7a11")
_NO_TOOL = "there is no tool"


def id_of(name: str) -> str:
    """A built-in tool has the same id in every house."""
    return f"tool-{uuid.uuid5(_SPACE, name)}"


@cache
def built_in() -> dict[str, ToolTold]:
    """The tools that are always there, by name."""
    specs: dict[str, ToolSpec] = {name: one.spec for name, one in described().items()}
    specs |= {name: one.spec for name, one in Post.described().items()}
    return {name: _told(spec) for name, spec in specs.items()}


def _told(spec: ToolSpec) -> ToolTold:
    parameters: dict[str, Any] = msgspec.json.decode(spec.parameters)
    kind = "letta_multi_agent_core" if spec.name in MAIL else "letta_core"
    schema: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return ToolTold(
        id=id_of(spec.name),
        name=spec.name,
        description=spec.description,
        json_schema=schema,
        tool_type=kind,
        tags=(kind,),
    )


@cache
def _by_id() -> dict[str, str]:
    return {one.id: name for name, one in built_in().items()}


def kept_told(tool: KeptTool) -> ToolTold:
    schema: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    settings = tool.settings
    return ToolTold(
        id=tool.id,
        name=tool.name,
        description=tool.description,
        json_schema=schema,
        tool_type="custom",
        tags=tool.tags,
        source_code=tool.code or None,
        return_char_limit=_limit(settings),
        metadata_=tool.metadata or None,
        default_requires_approval=bool(settings.get("approval")) or None,
    )


def _limit(settings: dict[str, object]) -> int:
    found = settings.get("limit")
    return found if isinstance(found, int) else 50_000


async def named(catalog: Catalog, names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """The names of tools that were named or given by id; a name that nobody knows is refused."""
    found: dict[str, None] = {}
    for name in names:
        if name not in built_in() and not await catalog.find(KeptTool, name=name, limit=1):
            raise Problem(400, "unknown_tool", f"{_NO_TOOL} {name[:100]!r}; there are {', '.join(built_in())}")
        found[name] = None
    for which in ids:
        name = _by_id().get(which)
        if name is None:
            kept = await catalog.get(KeptTool, which)
            if kept is None:
                raise unknown("tool", which)
            name = kept.name
        found[name] = None
    return tuple(found)


async def of_agents(tenant: Tenant, profiles: Iterable[Profile]) -> dict[str, ToolTold]:
    """The tools that these agents have, as a client reads them, each looked up once.

    What is gone is left out, and so is what clients brought where the operator allows that no more.
    """
    known = built_in()
    found: dict[str, ToolTold] = {}
    for name in dict.fromkeys(name for one in profiles for name in one.tools):
        if name in known:
            found[name] = known[name]
        elif tenant.settings.custom_tools and (kept := await tenant.memory.catalog.find(KeptTool, name=name, limit=1)):
            found[name] = kept_told(kept[0])
    return found


async def tools_told(tenant: Tenant, profile: Profile) -> list[ToolTold]:
    """The tools of an agent, as its client reads them."""
    known = await of_agents(tenant, [profile])
    return [known[name] for name in profile.tools if name in known]
