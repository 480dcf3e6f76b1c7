"""Tool rules as Letta writes them, as ours. What cannot be kept is refused when it is written, never ignored.

A rule about a tool that the agent does not have is kept and takes effect once it has it. `continue_loop` asks for what
is always so here: after a call there is another step.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from chargehand.engine.validation import describe_misfit
from chargehand.server.letta.settings import as_list
from chargehand.server.problem import invalid
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
_SIMPLE: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}
_IN_JSON = {"True": "true", "False": "false", "None": "null"}


class RuleWire(Struct):
    """A rule as it is sent. Fields that its type does not have are ignored."""

    type: RuleType
    tool_name: str
    args: dict[str, object] | None = None
    children: tuple[str, ...] = ()
    child_arg_nodes: list[dict[str, object]] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool = False
    max_count_limit: int | None = None


def check_rules(sent: object, tools: Sequence[str]) -> None:
    """Raise a problem for rules that an agent with these tools could not keep."""
    for number, each in enumerate(as_list(sent)):
        try:
            rule = msgspec.convert(each, RuleWire, strict=False)
        except msgspec.ValidationError as error:
            found = describe_misfit(error, RuleWire, each)
            raise invalid(f"tool_rules[{number}]{found.place.removeprefix('$')}: {found.message}") from error
        if problem := _problem(rule, tools):
            raise invalid(f"tool_rules[{number}], {rule.type} of {rule.tool_name[:100]!r}: {problem}")
    rules.check(read_rules(sent, tools), tools)


def _problem(rule: RuleWire, tools: Sequence[str]) -> str:
    """Why a rule cannot be kept; empty if it can."""
    if rule.args or any(node.get("args") for node in rule.child_arg_nodes or ()):
        return "arguments cannot be filled in beforehand; say in the agent's instructions what they shall be"
    if rule.type == "conditional" and not rule.child_output_mapping:
        return "child_output_mapping must name at least one result and the tool that follows it"
    if rule.type == "conditional" and rule.require_output_mapping and not rule.default_child:
        return "name a default_child: with require_output_mapping there would be nothing left for other results"
    if rule.type == "max_count_per_step" and (rule.max_count_limit or 0) < 1:
        return "max_count_limit must be at least 1; detach the tool to have it never called"
    if rule.type in ("constrain_child_tools", "parent_last_tool"):
        if not rule.children:
            return "children must name at least one tool"
        if rule.tool_name in tools and not set(rule.children) & set(tools):
            return f"the agent has none of the children; its tools are {', '.join(tools) or 'none'}"
    return ""


def read_rules(sent: object, tools: Sequence[str]) -> tuple[ToolRule, ...]:
    """The rules an agent was given, as far as they are about tools it has."""
    order: list[ToolRule] = []
    for rule in msgspec.convert(sent or [], list[RuleWire], strict=False):
        if rule.tool_name in tools:
            order += _convert(rule, tools)
    return tuple(order)


def _convert(rule: RuleWire, tools: Sequence[str]) -> list[ToolRule]:
    tool = rule.tool_name
    if rule.type in _SIMPLE:
        return [_SIMPLE[rule.type](tool)]
    children = tuple(child for child in rule.children if child in tools)
    if rule.type == "constrain_child_tools":  # without its children nothing is left to call after it
        return [rules.ConstrainChildTools(tool, children) if children else rules.ExitLoop(tool)]
    if rule.type == "max_count_per_step":  # a step of Letta is all that is done for one message
        return [rules.MaxCount(tool, rule.max_count_limit or 1)]
    if rule.type == "parent_last_tool":
        return [rules.ParentLastTool(child, tool) for child in children if child != tool]
    cases: dict[str, str] = {}
    for result, child in (rule.child_output_mapping or {}).items():
        if child in tools:  # results are texts here, in which Python and JSON differ
            cases |= dict.fromkeys((result, _IN_JSON.get(result, result)), child)
    otherwise = rule.default_child if rule.default_child in tools else None
    is_kept = rule.type == "conditional" and (cases or otherwise)
    return [rules.Conditional(tool, cases, otherwise or "")] if is_kept else []
