"""Constraints on the order of tool calls within an attempt, and the same call made again and again.

Pure: calls so far in, what is allowed now out. What is done about a repetition is the caller's business, and so is how
long a tool may be polled.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.engine.declared import Count
from chargehand.errors import Invalid
from chargehand.text.words import did_you_mean
from chargehand.tools.approval import Condition, check_conditions, must_ask, read_conditions


class RunFirst(Struct, frozen=True, tag="run_first"):
    """The tool is called before any other."""

    tool: str


class ExitLoop(Struct, frozen=True, tag="exit_loop"):
    """After the tool was called the attempt ends with its result."""

    tool: str


class ContinueLoop(Struct, frozen=True, tag="continue_loop"):
    """After the tool the attempt may not end: one more step follows."""

    tool: str


class ConstrainChildTools(Struct, frozen=True, tag="constrain_child_tools"):
    """Right after the tool only these may be called."""

    tool: str
    """The tool that comes first."""
    children: tuple[str, ...]
    """What may be called right after it."""


class ParentLastTool(Struct, frozen=True, tag="parent_last_tool"):
    """The tool may be called only right after `parent`."""

    tool: str
    """The tool that is bound."""
    parent: str
    """The one it must follow."""


class Conditional(Struct, frozen=True, tag="conditional"):
    """What comes after the tool depends on its result: the text of a result to the tool that must follow."""

    tool: str
    """The tool whose result counts."""
    cases: dict[str, str]
    """From a result to the tool that must follow."""
    otherwise: str = ""
    """The tool that follows any other result; left out, any may."""


class MaxCountPerStep(Struct, frozen=True, tag="max_count_per_step"):
    """The tool is called at most so often in one step."""

    tool: str
    """The tool that is bound."""
    limit: Count
    """How often."""


class MaxCount(Struct, frozen=True, tag="max_count"):
    """The tool is called at most so often in one attempt."""

    tool: str
    """The tool that is bound."""
    limit: Count
    """How often."""


class RequiredBeforeExit(Struct, frozen=True, tag="required_before_exit"):
    """The attempt does not end before the tool was called."""

    tool: str


class RequiresApproval(Struct, frozen=True, tag="requires_approval"):
    """A person is asked before the tool is called."""

    tool: str
    """The tool whose calls need approval."""
    when: dict[str, Condition] = {}
    """Conditions by argument, such as `{euros: "> 500"}`: only calls that meet all of them need approval; left out, all
    do.
    """


ToolRule: TypeAlias = (
    RunFirst
    | ExitLoop
    | ContinueLoop
    | ConstrainChildTools
    | ParentLastTool
    | Conditional
    | MaxCountPerStep
    | MaxCount
    | RequiredBeforeExit
    | RequiresApproval
)


class Called(Struct, frozen=True):
    """One call that was made: in which step, of what, and the text of its result."""

    step: int
    tool: str
    result: str = ""


def allowed(rules: Sequence[ToolRule], calls: Sequence[Called], tools: Sequence[str]) -> tuple[str, ...]:
    """Which of these tools may be called in the next step."""
    step = calls[-1].step + 1 if calls else 0
    return tuple(tool for tool in tools if not objection(rules, calls, tool, step))


def objection(rules: Sequence[ToolRule], calls: Sequence[Called], tool: str, step: int) -> str:
    """Why this call may not be made in this step, in words for the model; empty when it may.

    Every rule has to agree. Calls made in the same step count as made before this one, in their order.
    """
    if not rules:
        return ""
    if must_exit(rules, calls):
        return f"{tool} cannot be called: {calls[-1].tool} was the last call, give your answer now"
    first = [rule.tool for rule in rules if isinstance(rule, RunFirst)]
    if first and not calls and tool not in first:
        return f"{tool} cannot be called yet: call {_either(first)} first"
    for rule in rules:
        words = _against(rule, calls, tool, step)
        if words:
            return words
    return ""


def may_exit(rules: Sequence[ToolRule], calls: Sequence[Called]) -> str:
    """Why the attempt may not end now, in words for the model; empty when it may."""
    if must_exit(rules, calls):
        return ""
    last = calls[-1].tool if calls else ""
    done = {call.tool for call in calls}
    first = [rule.tool for rule in rules if isinstance(rule, RunFirst)]
    if first and not calls:
        return f"you cannot finish yet: call {_either(first)} first"
    for rule in rules:
        if isinstance(rule, RequiredBeforeExit) and rule.tool not in done:
            return f"you cannot finish yet: {rule.tool} has not been called"
        if isinstance(rule, ContinueLoop) and rule.tool == last:
            return f"you cannot finish right after {rule.tool}: go on with another call"
        if isinstance(rule, Conditional) and rule.tool == last and (wanted := _wanted(rule, calls[-1].result)):
            return f"you cannot finish yet: after this result of {rule.tool}, {wanted} must be called"
    return ""


def must_exit(rules: Sequence[ToolRule], calls: Sequence[Called]) -> bool:
    """Whether the last call ends the attempt."""
    if not rules or not calls:
        return False
    if not any(isinstance(rule, ExitLoop) and rule.tool == calls[-1].tool for rule in rules):
        return False
    done = {call.tool for call in calls}
    return all(rule.tool in done for rule in rules if isinstance(rule, RequiredBeforeExit))


def only_end(rules: Sequence[ToolRule], calls: Sequence[Called], tools: Sequence[str]) -> str:
    """Return the one of these tools with which the attempt must end now; empty where it may end otherwise, or cannot.

    It may end otherwise where a plain answer is allowed, or where several tools would end it.
    """
    if not may_exit(rules, calls):
        return ""
    owed = {rule.tool for rule in rules if isinstance(rule, RequiredBeforeExit)} - {call.tool for call in calls}
    ending = {rule.tool for rule in rules if isinstance(rule, ExitLoop)}
    ends = [tool for tool in allowed(rules, calls, tools) if tool in ending and owed <= {tool}]
    return ends[0] if len(ends) == 1 else ""


def demanded(rules: Sequence[ToolRule]) -> frozenset[str]:
    """Return the tools that rules may demand, or with which they end the attempt."""
    names: set[str] = set()
    for rule in rules:
        if isinstance(rule, RunFirst | ExitLoop | RequiredBeforeExit):
            names.add(rule.tool)
        elif isinstance(rule, Conditional):
            names |= {*rule.cases.values(), rule.otherwise}
    return frozenset(names)


def needs_approval(rules: Sequence[ToolRule], tool: str) -> bool:
    """Check whether a rule asks for approval of some calls of a tool, or of all."""
    return bool(rules) and any(isinstance(rule, RequiresApproval) and rule.tool == tool for rule in rules)


def rule_asks(rules: Sequence[ToolRule], tool: str, arguments: str, schema: Mapping[str, Any]) -> bool:
    """Check whether a rule asks for approval of a call with these arguments; `schema` is that of the tool."""
    return bool(rules) and any(
        isinstance(rule, RequiresApproval) and rule.tool == tool and must_ask(rule.when, arguments, schema)
        for rule in rules
    )


def check_approvals(rules: Sequence[ToolRule], schemas: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise Invalid for a condition that cannot be read, or does not fit its tool, given the schemas by name."""
    for rule in rules:
        if isinstance(rule, RequiresApproval) and rule.when:
            read_conditions(rule.when)  # also of a tool whose arguments are not known
            if rule.tool in schemas:
                check_conditions(rule.when, rule.tool, schemas[rule.tool])


def check(rules: Sequence[ToolRule], tools: Sequence[str]) -> None:
    """Raise Invalid for rules that name tools the worker does not have, or that can never be kept together."""
    names = set(tools)
    for rule in rules:
        for name in tools_of(rule):
            if name not in names:
                hint = did_you_mean(name, sorted(names))
                raise Invalid(f"a rule {_kind(rule)} names the tool {name!r}, which there is not; {hint}")
        if isinstance(rule, MaxCountPerStep | MaxCount) and rule.limit < 1:
            raise Invalid(f"{_kind(rule)} of {rule.tool!r} is {rule.limit}; leave the tool out instead, or say 1")
        if isinstance(rule, ConstrainChildTools) and not rule.children:
            raise Invalid(f"constrain_child_tools of {rule.tool!r} lists no tools; use exit_loop to end after it")
    _check_ends(rules)
    _check_parents(rules)
    _check_dead_ends(rules, tools)


def _check_ends(rules: Sequence[ToolRule]) -> None:
    ends = {rule.tool for rule in rules if isinstance(rule, ExitLoop)}
    for rule in rules:
        if rule.tool in ends and isinstance(rule, ContinueLoop | ConstrainChildTools | Conditional):
            raise Invalid(f"{rule.tool!r} has both exit_loop and {_kind(rule)}; what follows it? Take one away")


def _check_parents(rules: Sequence[ToolRule]) -> None:
    """A tool that needs a parent must be able to follow it, and cannot come first."""
    parents: dict[str, str] = {}
    for rule in rules:
        if not isinstance(rule, ParentLastTool):
            continue
        other = parents.setdefault(rule.tool, rule.parent)
        if other != rule.parent:
            raise Invalid(f"{rule.tool!r} cannot come right after both {other!r} and {rule.parent!r}; take one away")
        if rule.parent == rule.tool:
            raise Invalid(f"{rule.tool!r} may come only right after itself, so never; name another parent")
        if RunFirst(rule.tool) in rules:
            raise Invalid(f"{rule.tool!r} is to run first and only right after {rule.parent!r}; take one rule away")
        if ExitLoop(rule.parent) in rules:
            raise Invalid(f"{rule.tool!r} may come only right after {rule.parent!r}, which ends the attempt")


def _check_dead_ends(rules: Sequence[ToolRule], tools: Sequence[str]) -> None:
    """All but counts depends on the last call alone, so trying each tool with each result that matters is enough."""
    results = {"", *(result for rule in rules if isinstance(rule, Conditional) for result in rule.cases)}
    for tool in tools:
        for result in sorted(results):
            calls = [Called(0, tool, result)]
            if may_exit(rules, calls) and not allowed(rules, calls, tools):
                after = f"{tool!r} with the result {result!r}" if result else repr(tool)
                raise Invalid(f"the tool rules are a dead end: after {after} nothing may be called, nor may it end")


def _against(rule: ToolRule, calls: Sequence[Called], tool: str, step: int) -> str:
    """What one rule has against the call."""
    last = calls[-1].tool if calls else ""
    match rule:
        case ParentLastTool(of, parent) if of == tool and last != parent:
            return f"{tool} can be called only right after {parent}"
        case ConstrainChildTools(of, children) if of == last and tool not in children:
            return f"right after {last} only {_either(children)} can be called, not {tool}"
        case Conditional(of) if of == last and tool != (wanted := _wanted(rule, calls[-1].result) or tool):
            return f"after this result of {last}, {wanted} must be called, not {tool}"
        case MaxCountPerStep(of, limit) if (
            of == tool and sum(c.step == step and c.tool == tool for c in calls) >= limit
        ):
            return f"{tool} was called {limit} times in this step, which is the most; go on in the next step"
        case MaxCount(of, limit) if of == tool and sum(c.tool == tool for c in calls) >= limit:
            return f"{tool} was called {limit} times, which is the most; go on without it"
        case _:
            return ""


def _wanted(rule: Conditional, result: str) -> str:
    """The tool that must follow; empty when any may."""
    return rule.cases.get(result.strip(), rule.otherwise)


def tools_of(rule: ToolRule) -> tuple[str, ...]:
    """The tools that a rule names."""
    match rule:
        case ConstrainChildTools(tool, children):
            return tool, *children
        case ParentLastTool(tool, parent):
            return tool, parent
        case Conditional(tool, cases, otherwise):
            return (tool, *cases.values(), *((otherwise,) if otherwise else ()))
        case _:
            return (rule.tool,)


def _kind(rule: ToolRule) -> str:
    return str(rule.__struct_config__.tag)


def _either(names: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(names))


# --- repetition


MAX_REPEATS = 3
_SHOWN = 200


class Seen(Struct, frozen=True, gc=False):
    """What a call means for the attempt. `warning` is for the model; `stuck` says that going on is pointless."""

    warning: str = ""
    stuck: bool = False


NOT_SEEN = Seen()


class Repetition:
    """Fed with every call of one attempt, in order.

    A call is a repeat when tool, arguments and result are those of an earlier one. Repeats are counted from the last
    call that was not one: work that leads to new calls or new results is no circle, however often it looks at the same
    thing in between, and two calls that alternate without end are one. Polling is never counted.
    """

    __slots__ = ("_known", "_times")

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[str]] = {}
        self._times: dict[tuple[str, str, int], int] = {}

    def feed(self, tool: str, arguments: str, result: str, *, poll: bool = False) -> Seen:
        """Note one call and what came of it: a warning at the second time, stuck at the third."""
        if poll:
            return NOT_SEEN
        alike = self._known.get((tool, result))
        if alike is None:  # arguments are only looked at where tool and result are the same: mostly they are not
            self._known[tool, result] = [arguments]
            self._times.clear()
            return NOT_SEEN
        number = next((index for index, earlier in enumerate(alike) if _same(earlier, arguments)), len(alike))
        if number == len(alike):
            alike.append(arguments)
            self._times.clear()
            return NOT_SEEN
        mark = (tool, result, number)
        times = self._times[mark] = self._times.get(mark, 1) + 1
        short = result if len(result) <= _SHOWN else result[:_SHOWN] + "..."
        words = f"{tool} was already called with these arguments and gave the same result: {short}"
        if times < MAX_REPEATS:
            return Seen(f"{words}\nUse that result, or do something else.")
        return Seen(f"{words}\nThat was call {times} of the same kind, with nothing new in between.", stuck=True)


def _same(first: str, other: str) -> bool:
    """Whether two calls mean the same: the order of keys and white space do not count."""
    return first == other or _plain(first) == _plain(other)


def _plain(arguments: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments or "{}"), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return arguments.strip().encode(errors="surrogatepass")
