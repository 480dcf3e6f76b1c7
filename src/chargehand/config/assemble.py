"""From the shape of a team to its workers, tools, factory and checks. Everything wrong is collected, then said."""

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Struct, structs

from chargehand.agents.background import check as check_background
from chargehand.agents.checks.spec import Check, Reviewer, Rule, Verifier, declare_checks
from chargehand.agents.worker import AttemptKeys, Factory, FactoryKeys, Worker, WorkerKeys, check_worker_name
from chargehand.config.memory import (
    ALIASES,
    MEMORY_TOOLS,
    NAMEABLE,
    add_memory,
    archives_of,
    contacts_of,
    given_tools,
    named_tools,
)
from chargehand.config.parts import Own, Parts, read_schema
from chargehand.config.schema import (
    CHECK_KINDS,
    PLAIN_SOURCES,
    CheckShape,
    EstimateShape,
    RuleShape,
    VerifierShape,
    WorkerShape,
)
from chargehand.config.source import near
from chargehand.config.tools import make_tools, named_object
from chargehand.config.yaml import Path
from chargehand.engine.budget import Amount
from chargehand.errors import Invalid
from chargehand.models.messages import Settings
from chargehand.text.names import listed
from chargehand.tools import rules
from chargehand.tools.rules import ToolRule
from chargehand.tools.tool import Tool

_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")  # what providers let a tool be called


def assemble(parts: Parts) -> Parts:
    """Fill the parts of a team from its file; what is wrong is added to their findings."""
    team = parts.team
    add_memory(parts)
    for name, written in team.tools.items():
        if not _TOOL_NAME.match(name):
            better = re.sub(r"[^A-Za-z0-9_-]", "_", name[:64])
            parts.say(("tools", name), f"{name[:70]!r} is no name for a tool; use letters, digits, _ and -: {better}")
        if parts.memory is not None and name in MEMORY_TOOLS:
            parts.say(("tools", name), "is the name of a memory tool, which this team has; call yours something else")
        parts.tools[name] = ()
        with parts.at("tools", name):
            parts.tools[name] = make_tools(name, written, parts.source.folder)
    if not team.workers and team.supervisor.factory is None:
        parts.say((), "there are no workers; write  workers:  and under it a name and what that worker does")
    for name, written in team.workers.items():
        with parts.at("workers", name):
            check_worker_name(name)
        shape = WorkerShape(description=written) if isinstance(written, str) else written
        parts.workers.append(_make_worker(parts, name, shape))
    for worker in parts.workers:
        if worker.every is not None:
            with parts.at("workers", worker.name, "every"):
                check_background(parts.memory, (), (worker,))
    factory = team.supervisor.factory
    if factory is not None:
        parts.factory = Factory(
            **_keys_of(factory, FactoryKeys),
            tools=_find_tools(parts, ("supervisor", "factory", "tools"), factory.tools),
            model=parts.handle(factory.model or team.defaults.model),
        )
    return parts


# --- workers


def _make_worker(parts: Parts, name: str, shape: WorkerShape) -> Worker:
    path: Path = ("workers", name)
    if shape.team:  # its file is read when somebody leads: who only looks into the memory needs none of it
        _check_fallbacks(parts, path, name, shape)
        return Worker(name, shape.description, tags=shape.tags, fallbacks=shape.fallbacks)
    if shape.call:
        return _function_worker(parts, path, name, shape)
    defaults = parts.team.defaults
    if not shape.description and shape.every is None:
        parts.say(path, "has no description; the planner reads it to hand out tasks", grave=False)
    named = named_tools(parts, (*path, "tools"), shape)
    tools = _find_tools(parts, (*path, "tools"), shape.tools)
    _check_fallbacks(parts, path, name, shape)
    if shape.replicas and shape.model:
        parts.say((*path, "replicas"), "names models, and so does `model`; keep one of the two")
    own = parts.own.get(name, Own())
    return Worker(
        name,
        **worker_keys(parts, shape, path),
        description=shape.description,
        prompt=parts.prose((*path, "prompt"), shape.prompt),
        tools=(*tools, *named),
        model="" if shape.replicas and not parts.model else parts.handle(shape.model or defaults.model),
        replicas=() if parts.model else shape.replicas,
        fallback_models=() if parts.model else shape.fallback_models,
        output=_read_output(parts, path, shape),
        rules=_make_rules(parts, path, shape, [*(tool.name for tool in tools), *given_tools(parts, shape)]),
        estimate=amount_of(shape.estimate),
        blocks=own.blocks,
        archives=archives_of(parts, name),
        contacts=contacts_of(parts, path, name, shape),
    )


BESIDE_TEAM = {"description", "tags", "estimate", "skills", "examples", "accept"} | {
    *("fallbacks", "concurrency", "timeout", "seconds")
}
"""The keys that may stand beside `team` and `call`, which bring what they work with."""


def _function_worker(parts: Parts, path: Path, name: str, shape: WorkerShape) -> Worker:
    """A worker whose attempts a function beside the team file makes."""
    _check_fallbacks(parts, path, name, shape)
    for key in parts.written_keys("workers", name):
        if key not in BESIDE_TEAM and key != "call":
            parts.say((*path, key), "does not go with `call`: the function brings what it works with")
    worker = Worker(
        name,
        **worker_keys(parts, shape, path),
        description=shape.description,
        estimate=amount_of(shape.estimate),
    )
    with parts.at(*path, "call"):
        function = named_object(parts.source.folder, shape.call)
        if not callable(function):
            raise Invalid(f"{shape.call!r} is a {type(function).__name__}, not an async function")
        return structs.replace(worker, call=function)
    return worker


def worker_keys(parts: Parts, shape: WorkerShape, path: Path) -> dict[str, Any]:
    """The keys that are the same in Python, with `defaults` for those that the worker leaves out."""
    keys = _keys_of(shape, WorkerKeys)
    written = parts.written_keys(*map(str, path))
    for key, value in _keys_of(parts.team.defaults, AttemptKeys).items():
        if key not in written:
            keys[key] = value
    keys["settings"] = merge_settings(shape.settings, parts.team.defaults.settings)
    return keys


def merge_settings(own: Settings, defaults: Settings) -> Settings:
    """The settings, with defaults for what is left out."""
    left_out = {name: value for name, value in structs.asdict(defaults).items() if getattr(own, name) is None}
    return structs.replace(own, **left_out)


def _keys_of(shape: Struct, keys: type[Struct]) -> dict[str, Any]:
    """The fields of a table that are declared in Python."""
    values = {name: getattr(shape, name) for name in keys.__struct_fields__}
    return {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value for name, value in values.items()
    }


def _find_tools(parts: Parts, path: Path, names: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools behind these names; two of one name are one too many."""
    origins: dict[str, str] = {}
    tools: list[Tool] = []
    made_later = (*NAMEABLE, *ALIASES) if path[0] == "workers" else ()  # where memory and the team are
    for index, name in enumerate(names):
        if name in made_later and name not in parts.team.tools:
            continue
        with parts.at(*path, index):
            for tool in _find_tool(parts, name):
                if origins.get(tool.name) == name:
                    raise Invalid("is here twice; name it once")
                if tool.name in origins:
                    other = f"a tool {tool.name!r}, which comes from {origins[tool.name]!r} already"
                    raise Invalid(f"{name!r} brings {other}; rename one")
                origins[tool.name] = name
                tools.append(tool)
    return tuple(tools)


def _find_tool(parts: Parts, name: str) -> tuple[Tool, ...]:
    if name in parts.tools:
        return parts.tools[name]
    if name in PLAIN_SOURCES:
        return make_tools(name, name, parts.source.folder)
    if name in NAMEABLE:
        lack = "share no memory" if name in MEMORY_TOOLS else "write to nobody"
        raise Invalid(f"{name} is for workers of the team; those made on the fly {lack}")
    known = [*parts.team.tools, *PLAIN_SOURCES]
    hint = near(name, (*known, *NAMEABLE)) or f"; there are {', '.join(known)}"
    raise Invalid(f"there is no tool {name!r}{hint}")


def _check_fallbacks(parts: Parts, path: Path, name: str, shape: WorkerShape) -> None:
    for index, other in enumerate(shape.fallbacks):
        place = (*path, "fallbacks", index)
        if other == name:
            parts.say(place, f"{name!r} cannot step in for itself; name somebody else")
        elif other not in parts.team.workers:
            parts.say(place, f"there is no worker {other!r} to fall back to{near(other, parts.team.workers)}")


def _read_output(parts: Parts, path: Path, shape: WorkerShape) -> dict[str, object] | None:
    if shape.output is not None:
        with parts.at(*path, "output"):
            return read_schema(parts.source.folder, shape.output)
    return None


def amount_of(shape: EstimateShape) -> Amount:
    return Amount(
        tokens=shape.tokens or 0,
        micros=round((shape.usd or 0) * 1_000_000),
        calls=shape.calls or 0,
    )


# --- rules


_RULES: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "continue_loop": rules.ContinueLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}
"""Rules that are written with the name of a tool alone."""


def _make_rules(parts: Parts, path: Path, shape: WorkerShape, tools: Sequence[str]) -> tuple[ToolRule, ...]:
    made: list[ToolRule] = []
    for index, rule in enumerate(shape.rules):
        with parts.at(*path, "rules", index):
            made.append(_make_rule(rule, tools))
    return tuple(made)


def _make_rule(shape: RuleShape, tools: Sequence[str]) -> ToolRule:
    """One rule; Invalid when it is none, or about a tool the worker does not have."""
    named = {name: value for name, value in structs.asdict(shape).items() if value is not None}
    if len(named) != 1:
        raise Invalid(f"names {len(named)} rules; write one rule an entry, for example  - run_first: search")
    ((name, value),) = named.items()
    rule: ToolRule = _RULES[name](value) if isinstance(value, str) else value
    for tool in rules.tools_of(rule):
        if tool not in tools:
            raise Invalid(f"speaks of the tool {tool!r}, which this worker does not have{near(tool, tools)}")
    return rule


# --- checks


def make_checks(parts: Parts) -> dict[str, Check]:
    """The checks by name. What is wrong with them, or with who names them, is added to the findings."""
    checks: dict[str, Check] = {}
    for name, shape in parts.team.checks.items():
        with parts.at("checks", name):
            check = _make_check(parts, name, shape)
            if not isinstance(check, Reviewer):  # who reviews is looked at below, with its place
                declare_checks({name: check}, ())
            checks[name] = check
    named: set[str] = set()
    for worker, written in parts.team.workers.items():
        if isinstance(written, WorkerShape):
            named.update(written.accept)
            _check_accepted(parts, worker, written, checks)
    for name in parts.team.checks:
        if name not in named:
            words = "no worker names it under `accept`, so only a task of a plan of yours can be held to it"
            parts.say(("checks", name), words, grave=False)
    return checks


def _make_check(parts: Parts, name: str, shape: CheckShape) -> Check:
    given = {key: value for key, value in structs.asdict(shape).items() if value not in (None, False)}
    kinds = [key for key in given if key in CHECK_KINDS]
    is_rule = len(given) > len(kinds)
    if len(kinds) + is_rule != 1:
        raise Invalid(
            f"{f'mixes {listed(given)}' if given else 'checks nothing'}; a check is one of {', '.join(CHECK_KINDS)}, "
            "or a rule of contains, matches, min_words, max_words, cites, has_number"
        )
    if shape.python is not None:
        return _find_check(parts, shape.python)
    if shape.schema is not None:
        return read_schema(parts.source.folder, shape.schema)
    if shape.reviewer is not None:
        if shape.reviewer not in parts.team.workers:
            raise Invalid(f"there is no worker {shape.reviewer!r} to review{near(shape.reviewer, parts.team.workers)}")
        return Reviewer(shape.reviewer)
    if shape.verifier:
        settings = shape.verifier if isinstance(shape.verifier, VerifierShape) else VerifierShape()
        prompt = parts.prose(("checks", name, "verifier", "prompt"), settings.prompt)
        return Verifier(prompt, parts.handle(settings.model) if settings.model else "")
    return structs.replace(Rule(), **given)


def _find_check(parts: Parts, handle: str) -> Check:
    check = named_object(parts.source.folder, handle)
    if isinstance(check, Rule | Reviewer | Verifier):
        return check
    if not callable(check):
        raise Invalid(f"{handle!r} is {type(check).__name__}, not a function of a result")
    return check


def _check_accepted(parts: Parts, worker: str, shape: WorkerShape, checks: dict[str, Check]) -> None:
    known = parts.team.checks
    for index, name in enumerate(shape.accept):
        place: Path = ("workers", worker, "accept", index)
        check = checks.get(name)
        if name not in known:
            hint = f"; there are {listed(known)}" if known else "; write it under  checks:"
            parts.say(place, f"there is no check {name!r}{near(name, known) or hint}")
        elif isinstance(check, Reviewer) and check.worker == worker:
            parts.say(place, f"{worker!r} would review its own results; let another worker review them")
