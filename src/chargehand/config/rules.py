"""Tool rules as a team file writes them, one key each, to those of the tool room."""

from collections.abc import Callable, Sequence
from typing import cast

from chargehand.config.findings import near
from chargehand.config.shapes import CasesShape, ChildrenShape, MostShape, ParentShape, RuleShape
from chargehand.errors import Invalid
from chargehand.tools import rules
from chargehand.tools.rules import ToolRule

_ONE_TOOL: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "continue_loop": rules.ContinueLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}


def make_rule(shape: RuleShape, tools: Sequence[str]) -> ToolRule:
    """One rule; Invalid when it is none, or about a tool the worker does not have."""
    named = [name for name in shape.__struct_fields__ if getattr(shape, name) is not None]
    if len(named) != 1:
        raise Invalid(f"names {len(named)} rules; write one rule an entry, for example  - run_first: search")
    rule = _made(named[0], getattr(shape, named[0]))
    for tool in _mentioned(rule):
        if tool not in tools:
            raise Invalid(f"speaks of the tool {tool!r}, which this worker does not have{near(tool, tools)}")
    return rule


def _made(name: str, value: object) -> ToolRule:
    if name in _ONE_TOOL:
        return _ONE_TOOL[name](cast("str", value))
    match value:
        case ChildrenShape(tool, children):
            return rules.ConstrainChildTools(tool, children)
        case ParentShape(tool, parent):
            return rules.ParentLastTool(tool, parent)
        case CasesShape(tool, cases, otherwise):
            return rules.Conditional(tool, cases, otherwise)
        case _:
            most = cast("MostShape", value)
            return rules.MaxCountPerStep(most.tool, most.most)


def _mentioned(rule: ToolRule) -> list[str]:
    more: tuple[str, ...] = ()
    if isinstance(rule, rules.ConstrainChildTools):
        more = rule.children
    elif isinstance(rule, rules.ParentLastTool):
        more = (rule.parent,)
    elif isinstance(rule, rules.Conditional):
        more = (*rule.cases.values(), *([rule.otherwise] if rule.otherwise else []))
    return [rule.tool, *more]
