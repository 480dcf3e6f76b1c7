"""From a team file to a team: its parts, the teams inside it, the way it is led, and its supervisor."""

import os
from collections.abc import Mapping
from pathlib import Path as File

from msgspec import Struct, structs

from chargehand.agents.checks.spec import Check
from chargehand.agents.hedging import Hedge
from chargehand.agents.prompts import Prompts
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy, Whole
from chargehand.agents.supervisor import Supervisor
from chargehand.agents.worker import Worker
from chargehand.config.assemble import BESIDE_TEAM, amount_of, assemble, make_checks, merge_settings
from chargehand.config.discover import find_team
from chargehand.config.environment import Lookup, lookup_beside
from chargehand.config.memory import check_embedding
from chargehand.config.parts import Parts
from chargehand.config.schema import StrategyName, StrategyShape, SupervisorShape, VerifierShape, WorkerShape
from chargehand.config.source import Unreadable, near, read_source, refuse
from chargehand.config.validate import validate
from chargehand.config.yaml import Path
from chargehand.engine.budget import Budget
from chargehand.engine.declared import check_declared
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Match, fits
from chargehand.errors import Invalid
from chargehand.memory.catalog import Memory
from chargehand.models.providers import BUILT_IN
from chargehand.models.resolve import check_handle
from chargehand.team import Team
from chargehand.text.names import listed

_SECONDS = 300.0
_MAX_TEAMS = 100  # files inside one, all levels together: they may name each other more often than anybody means


@check_declared("load_team")
def load_team(
    path: File | str | None = None,
    *,
    model: str = "",
    memory: File | str | None = None,
    elsewhere: File | str | None = None,
) -> Team:
    """The team of a file or folder; without one, that of the nearest `team.yaml` upwards, else the bundled one.

    `model` stands in for every model the file names. `memory` is where memory is kept when the file does not say;
    left out, in this process alone. `elsewhere` is where it is kept whatever the file says.
    """
    if model:
        check_handle(model)
    parts = _read_parts(path, model, memory=memory, elsewhere=elsewhere)
    supervisor = lead(parts)
    refuse(str(parts.source.file), parts.findings)
    assert supervisor is not None, "a team without findings"
    return supervisor


class TeamMemory(Struct, frozen=True):
    """What it takes to open a team's memory without the team. `said` is whether the file speaks of memory at all."""

    team: str
    memory: Memory
    workers: tuple[Worker, ...]
    lookup: Lookup
    said: bool


def load_memory(
    path: File | str | None = None, *, memory: File | str | None = None, elsewhere: File | str | None = None
) -> TeamMemory:
    """The memory of a team, for whoever looks into it without running anything. No model need be there.

    `memory` and `elsewhere` are as for `load_team`.
    """
    parts = _read_parts(path, memory=memory, elsewhere=elsewhere)
    refuse(str(parts.source.file), parts.findings)
    return TeamMemory(
        team=parts.team.name,
        memory=parts.memory or Memory(elsewhere or memory),
        workers=tuple(parts.workers),
        lookup=lookup_beside(parts.source.file.resolve().parent),
        said=parts.memory is not None,
    )


def _read_parts(
    path: File | str | None,
    model: str = "",
    *,
    memory: File | str | None = None,
    elsewhere: File | str | None = None,
) -> Parts:
    """The parts of a file or folder, with whatever there is to say of them; Invalid for what has not even the shape."""
    file = find_team(path).file
    source = read_source(file)
    team, findings = validate(source)
    refuse(str(file), findings)
    assert team is not None, "a team without findings"
    return assemble(Parts(source=source, team=team, model=model, store=memory, elsewhere=elsewhere))


# --- the supervisor


def lead(parts: Parts) -> Team | None:
    """The supervisor of assembled parts. What is wrong is added to their findings; with errors there is none."""
    for index, worker in enumerate(parts.workers):
        shape = parts.team.workers[worker.name]
        if not isinstance(shape, str) and shape.team:
            parts.workers[index] = _load_inner_team(parts, worker, shape)
    shape = parts.team.supervisor
    instructions = parts.prose(("supervisor", "instructions"), shape.instructions)
    prompts = _prompts(parts, shape)
    strategy = _make_strategy(parts, shape.strategy)
    checks = make_checks(parts)
    for path, handle in named_models(parts):
        with parts.at(*path):
            check_handle(handle)
    if any(finding.grave for finding in parts.findings):
        return None
    with parts.at():
        return _make_supervisor(parts, instructions, prompts, strategy, checks)
    return None


def named_models(parts: Parts) -> list[tuple[Path, str]]:
    """Every model the team would use, and where it is named."""
    if parts.model:
        return [((), parts.model)]
    team = parts.team
    supervisor = team.supervisor
    usual = team.defaults.model or ("" if supervisor.model else BUILT_IN)
    handles: dict[Path, str] = {("defaults", "model"): usual}
    handles |= {("supervisor", name): getattr(supervisor, name) for name in ("model", "planner", "judge")}
    for name, worker in team.workers.items():
        if not isinstance(worker, str) and not worker.team:
            path = ("workers", name)
            handles[*path, "model"] = worker.model
            handles |= {(*path, "replicas", index): handle for index, handle in enumerate(worker.replicas)}
            fallbacks = enumerate(worker.fallback_models)
            handles |= {(*path, "fallback_models", index): handle for index, handle in fallbacks}
    if supervisor.factory is not None:
        handles["supervisor", "factory", "model"] = supervisor.factory.model
    for name, check in team.checks.items():
        if isinstance(check.verifier, VerifierShape):
            handles["checks", name, "verifier", "model"] = check.verifier.model
    return [(path, handle) for path, handle in handles.items() if handle]


def _make_supervisor(
    parts: Parts, instructions: str, prompts: dict[str, str], strategy: Strategy, checks: Mapping[str, Check]
) -> Team:
    team = parts.team
    shape = team.supervisor
    defaults = team.defaults
    supervisor = Supervisor(
        model=parts.handle(shape.model or defaults.model) or BUILT_IN,
        planner=parts.handle(shape.planner) if shape.planner else "",
        judge=parts.handle(shape.judge) if shape.judge else "",
        instructions=instructions,
        review=shape.review,
        stream_plan=shape.stream_plan,
        timeout=shape.timeout,
        settings=merge_settings(shape.settings, defaults.settings),
        strategy=strategy,
        combine=shape.combine,
        prompts=prompts,
        factory=parts.factory,
        hedge=Hedge() if shape.hedge is True else shape.hedge or None,
        examples=team.examples,
    )
    return Team(
        parts.workers,
        supervisor=supervisor,
        name=team.name,
        timeout=_SECONDS if team.timeout is None else team.timeout,
        budget=Budget(tokens=team.budget.tokens, usd=team.budget.usd, calls=team.budget.calls, seconds=team.timeout),
        policy=_make_policy(parts),
        lookup=lookup_beside(parts.source.file.resolve().parent),
        memory=parts.memory,
        cache=team.cache,
        checks=checks,
    )


def _prompts(parts: Parts, shape: SupervisorShape) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, written in structs.asdict(shape.prompts).items():
        if written:
            path = ("supervisor", "prompts", name)
            texts[name] = parts.prose(path, written)
            with parts.at(*path):
                Prompts({name: texts[name]})
    return texts


def _make_policy(parts: Parts) -> Policy:
    keys = parts.team.policy
    declared = Policy(**structs.asdict(keys))
    return structs.replace(declared, limits=structs.replace(keys.limits, max_nesting=parts.nesting))


# --- its strategy


_STRATEGIES: dict[str, type[Strategy]] = {
    "plan": Whole,
    "route": Route,
    "loop": Loop,
    "broadcast": Broadcast,
    "round_robin": RoundRobin,
    "dynamic": Dynamic,
    "recursive": Recursive,
}
_STRATEGY: Path = ("supervisor", "strategy")


def _make_strategy(parts: Parts, written: StrategyShape | StrategyName) -> Strategy:
    """The way a team is led: `strategy: route`, or `strategy: {route: {...}}`."""
    if isinstance(written, str):
        return _STRATEGIES[written]()
    named: dict[str, Strategy] = {
        name: strategy for name, strategy in structs.asdict(written).items() if strategy is not None
    }
    if len(named) != 1:
        problem = f"names {len(named)} strategies ({listed(named)})" if named else "names no strategy"
        parts.say(_STRATEGY, f"{problem}; a team has exactly one: {', '.join(_STRATEGIES)}")
        return Whole()
    (strategy,) = named.values()
    if isinstance(strategy, Route):
        _check_route(parts, strategy)
    if isinstance(strategy, Broadcast) and parts.workers:
        match = Match(strategy.match_all, strategy.match_some)
        if not any(fits(match, worker.tags) for worker in parts.workers):
            tags = sorted({tag for worker in parts.workers for tag in worker.tags})
            parts.say((*_STRATEGY, "broadcast"), f"nobody has these tags; the tags are {listed(tags) or 'none'}")
    return strategy


def _check_route(parts: Parts, shape: Route) -> None:
    workers = parts.team.workers
    path = (*_STRATEGY, "route")
    chosen: dict[Path, str] = {("rules", phrase): worker for phrase, worker in shape.rules.items()}
    if shape.generalist:
        chosen["generalist",] = shape.generalist
    for key, name in chosen.items():
        written = workers.get(name)
        if written is None:
            parts.say((*path, *key), f"there is no worker {name!r}{near(name, workers)}")
        elif isinstance(written, WorkerShape) and written.every is not None:
            words = f"{name!r} works only after turns (`every`), and takes no requests; name another worker"
            parts.say((*path, *key), words)
    if shape.samples > 1 and shape.secondary:
        parts.say((*path, "samples"), "cannot be with `secondary`; keep one of them")
    check_embedding(parts, (*path, "embed"), shape.embed)
    if shape.router == "rules" and not shape.rules:
        parts.say(path, "routes by rules, and has none; write some under  rules:  phrase: worker")


# --- teams inside it


def _load_inner_team(parts: Parts, worker: Worker, shape: WorkerShape) -> Worker:
    """A worker that is a team with a file of its own. What is wrong inside is said of the lines inside."""
    name = worker.name
    path: Path = ("workers", name)
    for key in parts.written_keys(*path):
        if key not in BESIDE_TEAM and key != "team":
            parts.say((*path, key), f"{name!r} is a team and has no {key} of its own; write it in {shape.team}")
    if name in parts.own:
        parts.say(path, f"{name!r} is a team, and `memory` shares something with it; a team has a memory of its own")
    inner = _read_inner(parts, (*path, "team"), shape.team)
    if inner is None:
        return worker  # the findings say why
    parts.inside[name] = inner
    if inner.memory is not None and parts.memory is not None and inner.team.name == parts.team.name:
        same = f"is called {inner.team.name!r} as well, so both would have one memory; give it another `name`"
        parts.say((*path, "team"), same)
    team = lead(inner)
    parts.findings.extend(inner.findings)
    if team is None:
        return worker
    made = team.as_worker(
        name,
        shape.description or inner.team.description,
        shape.tags,
        amount_of(shape.estimate),
        shape.timeout if parts.is_written(*path, "timeout") else None,
    )
    return structs.replace(
        made,
        fallbacks=shape.fallbacks,
        concurrency=shape.concurrency,
        skills=shape.skills,
        examples=shape.examples,
        accept=shape.accept,
        seconds=shape.seconds,
    )


def _read_inner(parts: Parts, path: Path, written: str) -> Parts | None:
    """The parts of the file that is named here; None where that was refused or it has not the right shape."""
    chain = (*parts.above, parts.source.file.resolve())
    with parts.at(*path):
        file = _find_inner(parts.source.folder, written)
        _check_depth(parts, chain, file.resolve())
        parts.read.append(file)
        try:
            source = read_source(file)
        except Unreadable as error:
            parts.findings.append(error.finding)
            return None
        team, findings = validate(source)
        parts.findings.extend(findings)
        if team is None:
            return None
        inner = Parts(
            source=source,
            team=team,
            model=parts.model,
            store=parts.store,
            elsewhere=parts.elsewhere,
            above=chain,
            allowed=parts.nesting,
            read=parts.read,
        )
        return assemble(inner)
    return None


def _find_inner(folder: File, written: str) -> File:
    if "\0" in written or written.startswith("~") or File(written).is_absolute():
        raise Invalid(f"{written!r} is not relative to this file; name a team file, or its folder, from here")
    named = folder / written
    plain = File(os.path.normpath(named))  # as people would write it, where that is the same place
    return find_team(plain if plain.resolve() == named.resolve() else named.resolve()).file


def _check_depth(parts: Parts, chain: tuple[File, ...], file: File) -> None:
    """Raise Invalid for a file that may not be read from here."""
    if file in chain:
        circle = (*chain[chain.index(file) :], file)
        shown = " > ".join(os.path.relpath(name, chain[0].parent) for name in circle)
        raise Invalid(f"goes in a circle: {shown}; a team cannot work for itself: leave it out")
    if len(chain) > parts.nesting:
        known = "policy.limits.max_nesting of the outermost file"
        raise Invalid(f"is a team inside {len(chain)} others, and at most {parts.nesting} are allowed ({known})")
    if len(parts.read) >= _MAX_TEAMS:
        raise Invalid(f"is one team too many: {_MAX_TEAMS} are inside the outermost file already; make fewer of them")
