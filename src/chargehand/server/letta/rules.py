"""Tool rules as Letta writes them, as ours. What cannot be kept is refused when it is written, never passed over.

A rule about a tool that the agent does not have is kept and sleeps until it has it. `continue_loop` asks for what is
always so here: after a call there is another step.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import msgspec
from msgspec import Struct, field

from chargehand.server.letta.mapping import items
from chargehand.server.problem import Problem
from chargehand.tools import rules
from chargehand.tools.rules import ToolRule

RuleType = Literal[
    "run_first",
    "exit_loop",
    "continue_loop",
    "conditional",
    "constrain_child_tools",
    "max_count_per_step",
    "parent_last_tool",
    "required_before_exit",
    "requires_approval",
]
_ONE_TOOL: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}
_SAID_IN_JSON = {"True": "true", "False": "false", "None": "null"}


class Written(Struct):
    """A rule as it is sent. Fields that its type does not have are let go."""

    type: RuleType
    tool_name: str
    args: dict[str, object] | None = None
    children: tuple[str, ...] = ()
    child_arg_nodes: list[dict[str, object]] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool = False
    max_count_limit: int | None = None


class Rules(Struct, frozen=True):
    """What an agent has to keep. `counts` is how often a tool may be called for one message, at most."""

    order: tuple[ToolRule, ...] = ()
    counts: dict[str, int] = field(default_factory=dict[str, int])


def checked(written: object, tools: Sequence[str]) -> None:
    """Raise a problem for rules that could not be kept by an agent with these tools."""
    for number, one in enumerate(items(written)):
        try:
            rule = msgspec.convert(one, Written, strict=False)
        except msgspec.ValidationError as error:
            said = f"{error}; the types are {', '.join(get_args(RuleType))}" if "enum" in str(error) else str(error)
            raise Problem(422, "invalid", f"tool_rules[{number}]: {said}") from error
        if words := _unkept(rule, tools):
            raise Problem(422, "invalid", f"tool_rules[{number}], {rule.type} of {rule.tool_name[:100]!r}: {words}")
    rules.check(rules_of(written, tools).order, tools)


def _unkept(rule: Written, tools: Sequence[str]) -> str:
    """Why a rule cannot be kept, in words; empty if it can."""
    if rule.args or any(one.get("args") for one in rule.child_arg_nodes or ()):
        return "arguments cannot be filled in beforehand; say in the agent's instructions what they shall be"
    if rule.type == "conditional" and not rule.child_output_mapping:
        return "child_output_mapping must name at least one result and the tool that follows it"
    if rule.type == "conditional" and rule.require_output_mapping and not rule.default_child:
        return "name a default_child: with require_output_mapping there would be nothing left for other results"
    if rule.type == "max_count_per_step" and (rule.max_count_limit is None or rule.max_count_limit < 1):
        return "max_count_limit must be at least 1; detach the tool to have it never called"
    if rule.type in ("constrain_child_tools", "parent_last_tool"):
        if not rule.children:
            return "children must name at least one tool"
        if rule.tool_name in tools and not set(rule.children) & set(tools):
            return f"the agent has none of the children; its tools are {', '.join(tools) or 'none'}"
    return ""


def rules_of(written: object, tools: Sequence[str]) -> Rules:
    """The rules an agent was given, as far as they are about tools it has."""
    order: list[ToolRule] = []
    counts: dict[str, int] = {}
    for one in msgspec.convert(written or [], list[Written], strict=False):
        if one.tool_name not in tools:
            continue
        if one.type == "max_count_per_step":
            counts[one.tool_name] = min(one.max_count_limit or 1, counts.get(one.tool_name, one.max_count_limit or 1))
        order += _ours(one, tools)
    return Rules(tuple(order), counts)


def _ours(rule: Written, tools: Sequence[str]) -> list[ToolRule]:
    tool = rule.tool_name
    if rule.type in _ONE_TOOL:
        return [_ONE_TOOL[rule.type](tool)]
    children = tuple(one for one in rule.children if one in tools)
    match rule.type:
        case "constrain_child_tools":  # with all its children gone, nothing is left to call after it
            return [rules.ConstrainChildTools(tool, children) if children else rules.ExitLoop(tool)]
        case "parent_last_tool":
            return [rules.ParentLastTool(child, tool) for child in children if child != tool]
        case "conditional":
            return _cases(rule, tools)
        case "max_count_per_step":
            return [rules.MaxCountPerStep(tool, rule.max_count_limit or 1)]
        case _:
            return []


def _cases(rule: Written, tools: Sequence[str]) -> list[ToolRule]:
    cases: dict[str, str] = {}
    for result, child in (rule.child_output_mapping or {}).items():
        if child in tools:
            cases |= dict.fromkeys((result, _SAID_IN_JSON.get(result, result)), child)
    otherwise = rule.default_child if rule.default_child in tools else None
    return [rules.Conditional(rule.tool_name, cases, otherwise or "")] if cases or otherwise else []
