"""From the shape of a team to its workers, tools and supervisor. Everything that is wrong is collected, then said."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path as File
from typing import cast

from chargehand.agents.background import check as check_background
from chargehand.agents.factory import Factory
from chargehand.agents.worker import Worker
from chargehand.config import folder
from chargehand.config.findings import Path, near
from chargehand.config.memory import add_memory, archives_of
from chargehand.config.memory_tools import ALIASES, MEMORY_TOOLS, NAMEABLE, contacts_of, given_tools, named_tools
from chargehand.config.parts import Own, Parts
from chargehand.config.shapes import (
    PLAIN_SOURCES,
    CasesShape,
    ChildrenShape,
    EstimateShape,
    MostShape,
    ParentShape,
    RuleShape,
    TeamShape,
    WorkerShape,
)
from chargehand.config.source import Source
from chargehand.config.tools import make_tools, plain_tools
from chargehand.errors import Invalid
from chargehand.models.messages import Settings
from chargehand.terms.budget import Amount
from chargehand.tools import rules
from chargehand.tools.rules import ToolRule
from chargehand.tools.tool import Tool

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # what providers let a tool be called
_ONE_TOOL: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "continue_loop": rules.ContinueLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}


def assemble(
    source: Source,
    team: TeamShape,
    model: str = "",
    *,
    memory: File | str | None = None,
    elsewhere: File | str | None = None,
) -> Parts:
    """The parts of a team, and everything that is wrong with them.

    `memory` is the store of a team that names none, `elsewhere` one that is used whatever the file names.
    """
    return filled(Parts(source=source, team=team, model=model, store=memory, elsewhere=elsewhere))


def filled(parts: Parts) -> Parts:
    """The same for a file whose place is known: it may be inside others."""
    team = parts.team
    source = parts.source
    add_memory(parts)
    for name, written in team.tools.items():
        if not _TOOL_NAME.match(name):
            better = re.sub(r"[^A-Za-z0-9_-]", "_", name[:64])
            parts.say(("tools", name), f"{name[:70]!r} is no name for a tool; use letters, digits, _ and -: {better}")
        if parts.memory is not None and name in MEMORY_TOOLS:
            parts.say(("tools", name), "is the name of a memory tool, which this team has; call yours something else")
        made = parts.made(
            ("tools", name), lambda name=name, written=written: make_tools(name, written, source.folder), ()
        )
        parts.tools[name] = made
    if not team.workers and team.factory is None:
        parts.say((), "there are no workers; write  workers:  and under it a name and what that worker does")
    for name, written in team.workers.items():
        if not _NAME.match(name):
            parts.say(("workers", name), f"{name[:70]!r} is no name; use up to 64 letters, digits, _, - and .")
        parts.workers.append(_worker(parts, name, written))
    for one in parts.workers:
        if one.every is not None:
            place = ("workers", one.name, "every")
            parts.made(place, lambda one=one: check_background(parts.memory, (), (one,)), None)
    if team.factory is not None:
        parts.factory = _factory(parts, team)
    return parts


def _worker(parts: Parts, name: str, written: WorkerShape | str) -> Worker:
    shape = WorkerShape(description=written) if isinstance(written, str) else written
    path: Path = ("workers", name)
    if shape.team:  # its file is read when somebody leads: who only looks into the memory needs none of it
        check_fallbacks(parts, path, name, shape)
        return Worker(name, shape.description, tags=shape.tags, fallbacks=shape.fallback.workers)
    defaults = parts.team.defaults
    if not shape.description and shape.every is None:
        parts.say(path, "has no description; the planner reads it to hand out tasks", grave=False)
    named = named_tools(parts, (*path, "tools"), shape)
    tools = _held(parts, (*path, "tools"), shape.tools)
    check_fallbacks(parts, path, name, shape)
    if shape.replicas and shape.model:
        parts.say((*path, "replicas"), "names models, and so does `model`; keep one of the two")
    own = parts.own.get(name, Own())
    timeout = shape.timeout if shape.timeout is not None else defaults.timeout
    return Worker(
        name,
        description=shape.description,
        prompt=parts.prose((*path, "prompt"), shape.prompt),
        tools=(*tools, *named),
        tags=shape.tags,
        model="" if shape.replicas and not parts.model else parts.handle(shape.model or defaults.model),
        replicas=() if parts.model else shape.replicas,
        fallbacks=shape.fallback.workers,
        fallback_models=() if parts.model else shape.fallback.models,
        output=_output(parts, path, shape),
        rules=_rules(parts, path, shape, [*(tool.name for tool in tools), *given_tools(parts, shape)]),
        steps=shape.steps or defaults.steps or Worker("").steps,
        capacity=shape.concurrency,
        timeout=Worker("").timeout if timeout is None else float(timeout),
        seconds=Worker("").seconds if shape.estimate.wall is None else float(shape.estimate.wall),
        estimate=amount(shape.estimate),
        settings=_settings(parts, shape),
        skills=shape.skills,
        examples=shape.examples,
        accept=shape.accept,
        blocks=own.blocks,
        archives=archives_of(parts, name),
        remembers=shape.remembers,
        may_estimate=shape.may_estimate,
        every=shape.every,
        contacts=contacts_of(parts, path, name, shape),
    )


def _held(parts: Parts, path: Path, names: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools behind these names; two of one name are one too many."""
    held: dict[str, str] = {}
    tools: list[Tool] = []
    ours = (*NAMEABLE, *ALIASES) if path[0] == "workers" else ()
    for at, name in enumerate(names):
        if name in ours and name not in parts.team.tools:
            continue  # made where memory and the team are
        for tool in _found(parts, (*path, at), name):
            if tool.name in held:
                said = f"{name!r} brings a tool {tool.name!r}, which comes from {held[tool.name]!r} already; rename one"
                parts.say((*path, at), "is here twice; name it once" if held[tool.name] == name else said)
                continue
            held[tool.name] = name
            tools.append(tool)
    return tuple(tools)


def _found(parts: Parts, path: Path, name: str) -> tuple[Tool, ...]:
    if name in parts.tools:
        return parts.tools[name]
    if name in PLAIN_SOURCES:
        return parts.made(path, lambda: plain_tools(name, parts.source.folder), ())
    known = [*parts.team.tools, *PLAIN_SOURCES]
    if name in NAMEABLE:
        lack = "share no memory" if name in MEMORY_TOOLS else "write to nobody"
        parts.say(path, f"{name} is for workers of the team; those made on the fly {lack}")
        return ()
    hint = near(name, (*known, *NAMEABLE)) or f"; there are {', '.join(known)}"
    parts.say(path, f"there is no tool {name!r}{hint}")
    return ()


def check_fallbacks(parts: Parts, path: Path, name: str, shape: WorkerShape) -> None:
    for at, other in enumerate(shape.fallback.workers):
        place = (*path, "fallback", "workers", at)
        if other == name:
            parts.say(place, f"{name!r} cannot step in for itself; name somebody else")
        elif other not in parts.team.workers:
            parts.say(place, f"there is no worker {other!r} to fall back to{near(other, parts.team.workers)}")


def _output(parts: Parts, path: Path, shape: WorkerShape) -> dict[str, object] | None:
    written = shape.output_schema
    if written is None:
        return None
    return parts.made((*path, "output_schema"), lambda: folder.schema(parts.source.folder, written), None)


def _rules(parts: Parts, path: Path, shape: WorkerShape, names: Sequence[str]) -> tuple[ToolRule, ...]:
    made = [
        parts.made((*path, "rules", at), lambda rule=rule: (_make_rule(rule, names),), ())
        for at, rule in enumerate(shape.rules)
    ]
    return tuple(rule for rules in made for rule in rules)


def _settings(parts: Parts, shape: WorkerShape) -> Settings:
    defaults = parts.team.defaults
    most = shape.max_tokens if shape.max_tokens is not None else defaults.max_tokens
    warmth = shape.temperature if shape.temperature is not None else defaults.temperature
    return Settings(warmth, None if most is None else int(most))


def amount(shape: EstimateShape) -> Amount:
    return Amount(
        tokens=int(shape.tokens or 0),
        micros=shape.usd.micros if shape.usd is not None else 0,
        calls=int(shape.calls or 0),
    )


def _factory(parts: Parts, team: TeamShape) -> Factory:
    shape = team.factory
    plain = Factory()
    assert shape is not None
    return Factory(
        tools=_held(parts, ("factory", "tools"), shape.tools),
        model=parts.handle(shape.model or team.defaults.model),
        most_tools=shape.most_tools or plain.most_tools,
        steps=shape.steps or plain.steps,
        capacity=shape.capacity or plain.capacity,
    )


# --- rules


def _make_rule(shape: RuleShape, tools: Sequence[str]) -> ToolRule:
    """One rule; Invalid when it is none, or about a tool the worker does not have."""
    named = [name for name in shape.__struct_fields__ if getattr(shape, name) is not None]
    if len(named) != 1:
        raise Invalid(f"names {len(named)} rules; write one rule an entry, for example  - run_first: search")
    rule = _rule(named[0], getattr(shape, named[0]))
    for tool in _tools_of(rule):
        if tool not in tools:
            raise Invalid(f"speaks of the tool {tool!r}, which this worker does not have{near(tool, tools)}")
    return rule


def _rule(name: str, value: object) -> ToolRule:
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


def _tools_of(rule: ToolRule) -> list[str]:
    more: tuple[str, ...] = ()
    if isinstance(rule, rules.ConstrainChildTools):
        more = rule.children
    elif isinstance(rule, rules.ParentLastTool):
        more = (rule.parent,)
    elif isinstance(rule, rules.Conditional):
        more = (*rule.cases.values(), *([rule.otherwise] if rule.otherwise else []))
    return [rule.tool, *more]
