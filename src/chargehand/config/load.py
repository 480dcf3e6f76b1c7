"""From a team file to a team: read, validated, built, with the teams nested in it."""

import os
from collections.abc import Mapping
from pathlib import Path as File
from typing import TypeVar

from msgspec import Struct, structs

from chargehand.agents.roles import Hedge, Supervisor, Worker
from chargehand.agents.schedules import Schedule
from chargehand.agents.webhooks import Webhook
from chargehand.config.build import (
    Overrides,
    TeamBuild,
    amount_of,
    build_members,
    find_database,
    make_checks,
    make_mcp_server,
    make_strategy,
    read_prompts,
)
from chargehand.config.environment import Lookup, lookup_beside
from chargehand.config.python_objects import installed_object, is_python_name
from chargehand.config.schema import VerifierShape, WorkerShape
from chargehand.config.source import Path, UnreadableFile, find_team, read_source, refuse
from chargehand.config.validate import validate
from chargehand.engine.budget import Budget
from chargehand.engine.declared import check_declared
from chargehand.engine.policy import Policy
from chargehand.errors import Invalid
from chargehand.memory.catalog import Memory
from chargehand.models.messages import Effort
from chargehand.models.providers import BUILT_IN
from chargehand.models.resolve import check_handle
from chargehand.store_url import PostgresUrl, StoreUrl, postgres_url
from chargehand.team import Team
from chargehand.tools.mcp_client import McpServer

_Declared = TypeVar("_Declared", Schedule, Webhook)
_SECONDS = 300.0
_MAX_TEAMS = 100  # files nested in one, all levels together: they may name each other many times


@check_declared("load_team")
def load_team(
    path: File | str | None = None,
    *,
    model: str = "",
    effort: Effort | None = None,
    memory: File | str | None = None,
    elsewhere: StoreUrl | None = None,
) -> Team:
    """The team of a file or folder; without one, that of the nearest `team.yaml` upwards, else the bundled one.

    `module:attribute` names a `Team` that is written in Python, or a function without arguments that makes one.
    `model` stands in for every model the file names, and `effort` for how much any of them thinks. `memory` is where
    memory is kept when the file does not say; left out, in this process alone. `elsewhere` is where it is kept whatever
    the file says.
    """
    if model:
        check_handle(model)
    if is_python_name(path):
        if effort is not None:
            raise Invalid(f"{str(path)!r} is written in Python, where effort is set; leave out the effort {effort!r}")
        return _python_team(str(path), model, memory, elsewhere)
    build = _read_members(path, Overrides(model, memory, elsewhere, effort))
    team = build_team(build)
    refuse(str(build.source.file), build.findings)
    assert team is not None, "a team without findings"
    return team


def _python_team(name: str, model: str, memory: File | str | None, elsewhere: StoreUrl | None) -> Team:
    value = installed_object(name)
    if not isinstance(value, Team) and callable(value):
        try:
            value = value()
        except (Exception, SystemExit) as error:  # a user's function
            raise Invalid(f"{name!r} made no team: {type(error).__name__}: {error}") from error
    if not isinstance(value, Team):
        raise Invalid(f"{name!r} is a {type(value).__name__}, not a Team or a function that returns one")
    if model:
        raise Invalid(f"{name!r} is written in Python, where its models are named; leave out the model {model!r}")
    return value.remembering_in(usual=memory, always=elsewhere)


def store_of_team(path: File | str | None = None) -> PostgresUrl | None:
    """The database that a team file names for all stores; None where it names none, or cannot be read."""
    if is_python_name(path):
        return None
    try:
        team_file = find_team(path)
        if team_file.how == "bundled" or "store" not in team_file.file.read_text(encoding="utf-8"):
            return None
        written = read_source(team_file.file).data.get("store")
        return postgres_url(written) if isinstance(written, str) and written else None
    except (Invalid, OSError, UnicodeDecodeError):  # loading the team reports what is wrong with it
        return None


def load_mcp_servers(path: File | str | None = None) -> dict[str, McpServer]:
    """The MCP servers of a team file by name, whatever of their tools was approved; Invalid for a wrong file."""
    source = read_source(find_team(path).file)
    shape, misfits = validate(source)
    refuse(str(source.file), misfits)
    build = TeamBuild(source, shape)
    servers: dict[str, McpServer] = {}
    for name, server in shape.mcp_servers.items():
        with build.at("mcp_servers", name):
            servers[name] = make_mcp_server(source, name, server)
    refuse(str(source.file), build.findings)
    return servers


class TeamMemory(Struct, frozen=True):
    """What it takes to open a team's memory without the team."""

    team: str
    memory: Memory
    workers: tuple[Worker, ...]
    lookup: Lookup
    has_memory: bool
    """Whether the file speaks of memory at all."""


def load_memory(
    path: File | str | None = None, *, memory: File | str | None = None, elsewhere: StoreUrl | None = None
) -> TeamMemory:
    """The memory of a team, to look into it without running anything. No model need be there.

    `memory` and `elsewhere` are as for `load_team`.
    """
    build = _read_members(path, Overrides(memory=memory, elsewhere=elsewhere))
    refuse(str(build.source.file), build.findings)
    return TeamMemory(
        team=build.shape.name,
        memory=build.memory or Memory(elsewhere or memory),
        workers=tuple(build.workers),
        lookup=lookup_beside(build.source.file.resolve().parent),
        has_memory=build.memory is not None,
    )


def _read_members(path: File | str | None, overrides: Overrides) -> TeamBuild:
    """The members of a team, with all findings; Invalid for a file that has not even the shape of one."""
    source = read_source(find_team(path).file)
    shape, misfits = validate(source)
    refuse(str(source.file), misfits)
    return build_members(TeamBuild(source, shape, overrides))


# --- the team


def build_team(build: TeamBuild) -> Team | None:
    """The team of built members. What is wrong is added to their findings; with errors there is none."""
    for index, worker in enumerate(build.workers):
        worker_shape = build.shape.workers[worker.name]
        if not isinstance(worker_shape, str) and worker_shape.team:
            build.workers[index] = _nest_team(build, worker, worker_shape)
    shape = build.shape.supervisor
    defaults = build.shape.defaults
    supervisor = Supervisor(
        model=build.handle(shape.model or defaults.model) or BUILT_IN,
        planner=build.handle(shape.planner) if shape.planner else "",
        judge=build.handle(shape.judge) if shape.judge else "",
        instructions=build.prose(("supervisor", "instructions"), shape.instructions),
        review=shape.review,
        stream_plan=shape.stream_plan,
        ask_person=shape.ask_person,
        timeout=shape.timeout,
        queue=shape.queue,
        settings=build.settings(shape.settings),
        strategy=make_strategy(build),
        combine=shape.combine,
        prompts=read_prompts(build),
        factory=build.factory,
        hedge=Hedge() if shape.hedge is True else shape.hedge or None,
    )
    checks = make_checks(build)
    for path, handle in named_models(build):
        with build.at(*path):
            check_handle(handle)
    if any(finding.grave for finding in build.findings):
        return None
    budget = build.shape.budget
    with build.at():
        team = Team(
            build.workers,
            supervisor=supervisor,
            name=build.shape.name,
            timeout=_SECONDS if build.shape.timeout is None else build.shape.timeout,
            budget=Budget(tokens=budget.tokens, usd=budget.usd, calls=budget.calls, seconds=build.shape.timeout),
            policy=_make_policy(build),
            lookup=lookup_beside(build.source.file.resolve().parent),
            memory=build.memory,
            journal=find_database(build),
            cache=build.shape.cache,
            checks=checks,
        )
        team.examples = build.shape.examples
        team.schedules = _make_checked(build, "schedules", Schedule, build.shape.schedules)
        team.webhooks = _make_checked(build, "webhooks", Webhook, build.shape.webhooks)
        return team
    return None


def _make_checked(
    build: TeamBuild, key: str, kind: type[_Declared], shapes: Mapping[str, Struct]
) -> tuple[_Declared, ...]:
    """The schedules or webhooks of a file, those that can work."""
    made: list[_Declared] = []
    for name, shape in shapes.items():
        with build.at(key, name):
            declared = kind(name, **structs.asdict(shape))
            declared.check()
            made.append(declared)
    return tuple(made)


def named_models(build: TeamBuild) -> list[tuple[Path, str]]:
    """Every model the team would use, and where it is named."""
    if build.overrides.model:
        return [((), build.overrides.model)]
    shape = build.shape
    supervisor = shape.supervisor
    usual = shape.defaults.model or ("" if supervisor.model else BUILT_IN)
    handles: list[tuple[Path, str]] = [
        (("defaults", "model"), usual),
        (("supervisor", "model"), supervisor.model),
        (("supervisor", "planner"), supervisor.planner),
        (("supervisor", "judge"), supervisor.judge),
    ]
    for name, worker in shape.workers.items():
        if not isinstance(worker, str) and not worker.team:
            handles.append((("workers", name, "model"), worker.model))
            for key, models in (("replicas", worker.replicas), ("fallback_models", worker.fallback_models)):
                handles += [(("workers", name, key, index), handle) for index, handle in enumerate(models)]
    if supervisor.factory is not None:
        handles.append((("supervisor", "factory", "model"), supervisor.factory.model))
    for name, check in shape.checks.items():
        if isinstance(check.verifier, VerifierShape):
            handles.append((("checks", name, "verifier", "model"), check.verifier.model))
    return [(path, handle) for path, handle in handles if handle]


def _make_policy(build: TeamBuild) -> Policy:
    keys = build.shape.policy
    declared = Policy(**structs.asdict(keys))
    return structs.replace(declared, limits=structs.replace(keys.limits, max_nesting=build.max_nesting))


# --- teams nested in it


def _nest_team(build: TeamBuild, worker: Worker, shape: WorkerShape) -> Worker:
    """A worker that is a team with a file of its own. What is wrong inside is said of the lines inside."""
    name = worker.name
    path: Path = ("workers", name)
    inner = _read_nested(build, (*path, "team"), shape.team)
    if inner is None:
        return worker  # the findings say why
    build.nested[name] = inner
    if inner.memory is not None and build.memory is not None and inner.shape.name == build.shape.name:
        same = f"is called {inner.shape.name!r} as well, so both would have one memory; give it another `name`"
        build.report((*path, "team"), same)
    team = build_team(inner)
    build.findings.extend(inner.findings)
    if team is None:
        return worker
    worker = team.as_worker(
        name,
        shape.description or inner.shape.description,
        shape.tags,
        amount_of(shape.estimate),
        shape.timeout if build.is_written(*map(str, path), "timeout") else None,
    )
    return structs.replace(
        worker,
        fallbacks=shape.fallbacks,
        concurrency=shape.concurrency,
        skills=shape.skills,
        examples=shape.examples,
        accept=shape.accept,
        seconds=shape.seconds,
        queue=shape.queue,
    )


def _read_nested(build: TeamBuild, path: Path, written: str) -> TeamBuild | None:
    """The members of the file that is named here; None where that was refused or it has not the right shape."""
    chain = (*build.above, build.source.file.resolve())
    with build.at(*path):
        file = _find_nested(build.source.folder, written)
        _check_depth(build, chain, file.resolve())
        build.nested_files.append(file)
        try:
            source = read_source(file)
        except UnreadableFile as error:
            build.findings.append(error.finding)
            return None
        shape, misfits = validate(source)
        inner = TeamBuild(
            source=source,
            shape=shape,
            overrides=build.overrides,
            above=chain,
            max_nesting=build.max_nesting,
            nested_files=build.nested_files,
            misfits=misfits,
        )
        return build_members(inner)
    return None


def _find_nested(folder: File, written: str) -> File:
    if "\0" in written or written.startswith("~") or File(written).is_absolute():
        raise Invalid(f"{written!r} is not relative to this file; name a team file, or its folder, from here")
    path = folder / written
    plain = File(os.path.normpath(path))  # as people would write it, where that is the same place
    return find_team(plain if plain.resolve() == path.resolve() else path.resolve()).file


def _check_depth(build: TeamBuild, chain: tuple[File, ...], file: File) -> None:
    """Raise Invalid for a file that may not be read from here."""
    if file in chain:
        circle = (*chain[chain.index(file) :], file)
        chain_text = " > ".join(os.path.relpath(name, chain[0].parent) for name in circle)
        raise Invalid(f"goes in a circle: {chain_text}; a team cannot work for itself: leave it out")
    if len(chain) > build.max_nesting:
        limit = "policy.limits.max_nesting of the outermost file"
        raise Invalid(f"is a team inside {len(chain)} others, and at most {build.max_nesting} are allowed ({limit})")
    if len(build.nested_files) >= _MAX_TEAMS:
        raise Invalid(f"is one team too many: {_MAX_TEAMS} are inside the outermost file already; make fewer of them")
