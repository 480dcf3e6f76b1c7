"""A supervisor-worker system for LLM agents. The promised names, nothing else; importing it does nothing.

A name is fetched from its module when it is first asked for, so that `import chargehand` costs next to nothing.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chargehand.agents.checks import Reviewer, Rule, Verifier
    from chargehand.agents.executor import Assignment
    from chargehand.agents.messages import Replies, WorkerReply
    from chargehand.agents.result import Result
    from chargehand.agents.roles import Factory, Hedge, Supervisor, Worker
    from chargehand.agents.scripted import Move, Script, ScriptedExecutor
    from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Whole
    from chargehand.config.load import load_team
    from chargehand.engine.budget import Amount, Budget
    from chargehand.engine.events import CancelRequested, InputAnswered, RunRequested
    from chargehand.engine.failure import Failure
    from chargehand.engine.owed import Brief
    from chargehand.engine.plan import Edge, Plan, Task
    from chargehand.engine.policy import Limits, Policy, Retry
    from chargehand.engine.roster import Agent, Match, Roster
    from chargehand.errors import ChargehandError
    from chargehand.journal.memory import MemoryJournal
    from chargehand.journal.store import open_journal
    from chargehand.memory.archives import Archive
    from chargehand.memory.blocks import Block, Grant
    from chargehand.memory.catalog import Memory
    from chargehand.memory.session import open_catalog
    from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, Usage
    from chargehand.models.model import Model, ModelCard, ModelFailed
    from chargehand.models.testing.scripted import ScriptedModel
    from chargehand.runtime.approving import ApprovalRequest
    from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext, WorkFailed
    from chargehand.runtime.runner import Outcome, Runner
    from chargehand.team import Team
    from chargehand.tools.calling import ToolFailed
    from chargehand.tools.mcp_client import McpServer
    from chargehand.tools.schema import Caller, CallKey
    from chargehand.tools.tool import Costs, Tool, Toolbox, Unknown, tool, tool_from_schema, toolbox_tools
    from chargehand.tools.tool_files import ToolFile, WithFiles

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent until the program configures logging

_MODULES = {
    "agents.checks": ("Reviewer", "Rule", "Verifier"),
    "runtime.executor": ("Executor", "Done", "StepContext", "Proposal", "Refined", "WorkFailed"),
    "agents.executor": ("Assignment",),
    "agents.messages": ("Replies", "WorkerReply"),
    "agents.scripted": ("Move", "Script", "ScriptedExecutor"),
    "agents.strategies.base": ("Whole",),
    "agents.strategies.chat": ("Broadcast", "Dynamic", "RoundRobin"),
    "agents.strategies.loop": ("Loop",),
    "agents.strategies.recursive": ("Recursive",),
    "agents.strategies.route": ("Route",),
    "agents.roles": ("Factory", "Hedge", "Supervisor", "Worker"),
    "config.load": ("load_team",),
    "engine.owed": ("Brief",),
    "errors": ("ChargehandError",),
    "memory.archives": ("Archive",),
    "memory.blocks": ("Block", "Grant"),
    "memory.catalog": ("Memory",),
    "memory.session": ("open_catalog",),
    "models.messages": ("Message", "Reply", "Request", "Settings", "ToolCall", "Usage"),
    "models.model": ("Model", "ModelCard", "ModelFailed"),
    "models.testing.scripted": ("ScriptedModel",),
    "runtime.approving": ("ApprovalRequest",),
    "runtime.runner": ("Runner", "Outcome"),
    "journal.memory": ("MemoryJournal",),
    "journal.store": ("open_journal",),
    "agents.result": ("Result",),
    "team": ("Team",),
    "engine.budget": ("Amount", "Budget"),
    "engine.events": ("CancelRequested", "InputAnswered", "RunRequested"),
    "engine.failure": ("Failure",),
    "engine.plan": ("Edge", "Plan", "Task"),
    "engine.policy": ("Limits", "Policy", "Retry"),
    "engine.roster": ("Agent", "Match", "Roster"),
    "tools.calling": ("ToolFailed",),
    "tools.mcp_client": ("McpServer",),
    "tools.schema": ("Caller", "CallKey"),
    "tools.tool": ("Costs", "Tool", "Toolbox", "Unknown", "tool", "tool_from_schema", "toolbox_tools"),
    "tools.tool_files": ("ToolFile", "WithFiles"),
}
_HOME = {name: f"chargehand.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of the modules above
    "Reviewer",
    "Rule",
    "Verifier",
    "Executor",
    "Done",
    "StepContext",
    "Proposal",
    "Refined",
    "WorkFailed",
    "Factory",
    "Assignment",
    "Hedge",
    "Replies",
    "WorkerReply",
    "Move",
    "Script",
    "ScriptedExecutor",
    "Broadcast",
    "Dynamic",
    "Loop",
    "Recursive",
    "RoundRobin",
    "Route",
    "Whole",
    "Supervisor",
    "Worker",
    "load_team",
    "Brief",
    "ChargehandError",
    "Archive",
    "Block",
    "Grant",
    "Memory",
    "Message",
    "Reply",
    "Request",
    "Settings",
    "ToolCall",
    "Usage",
    "Model",
    "ModelCard",
    "ModelFailed",
    "ScriptedModel",
    "ApprovalRequest",
    "Runner",
    "Outcome",
    "open_catalog",
    "MemoryJournal",
    "open_journal",
    "Result",
    "Team",
    "Amount",
    "Budget",
    "CancelRequested",
    "InputAnswered",
    "RunRequested",
    "Failure",
    "Edge",
    "Plan",
    "Task",
    "Limits",
    "Policy",
    "Retry",
    "Agent",
    "Match",
    "Roster",
    "ToolFailed",
    "McpServer",
    "Caller",
    "CallKey",
    "Costs",
    "Tool",
    "Toolbox",
    "Unknown",
    "tool",
    "tool_from_schema",
    "toolbox_tools",
    "ToolFile",
    "WithFiles",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"chargehand has no name {name!r}; it promises {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
