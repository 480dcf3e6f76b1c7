"""A team file looked at from all sides: what it holds, and everything that is wrong with it."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path as File
from typing import Literal

from msgspec import Struct

from chargehand.agents.setup import tool_name
from chargehand.agents.team_spec import Worker
from chargehand.config.build import Overrides, TeamBuild, build_members, is_handle
from chargehand.config.environment import lookup_beside
from chargehand.config.load import build_team, load_team, named_models
from chargehand.config.python_objects import is_python_name
from chargehand.config.source import FileFinding, UnreadableFile, find_team, read_source, written
from chargehand.config.validate import validate
from chargehand.errors import Invalid
from chargehand.models.providers import BUILT_IN, without_secrets
from chargehand.models.resolve import Finder
from chargehand.team import Team
from chargehand.tools.approval import describe_conditions
from chargehand.tools.rules import RequiresApproval
from chargehand.tools.tool import Tool


class WorkerLine(Struct, frozen=True):
    """`team` is the file of one that is a team, and `inside` are those who work in it."""

    name: str
    description: str
    tools: tuple[str, ...]
    model: str
    team: str = ""
    inside: "tuple[WorkerLine, ...]" = ()


class MemoryLine(Struct, frozen=True):
    """Where memory is kept (empty where the command line says), the labels of its blocks, and its archives."""

    file: str
    blocks: tuple[str, ...]
    archives: dict[str, str]
    """What compares meanings, by the name of the archive."""
    remembering: tuple[str, ...] = ()
    """The workers that are shown their earlier tasks."""


class Description(Struct):
    """What a file comes to. Without a name it could not be read at all; the findings say why."""

    file: str
    how: str
    name: str = ""
    about: str = ""
    workers: list[WorkerLine] = []
    tools: list[str] = []
    """All that the file declares or a worker names."""
    models: list[str] = []
    memory: MemoryLine | None = None
    thresholds: list[str] = []
    """How each condition for approval was read: `pay: asks if euros > 500`; those of a rule name its worker."""
    in_doubt: list[str] = []
    """Tools whose effects nothing can look up after a crash: they have no look-up and take no idempotency key."""
    uncertain: Literal["fail", "ask"] = "ask"
    """What happens to such a call after a crash: a person is asked, or its task fails."""
    findings: list[FileFinding] = []

    @property
    def errors(self) -> list[FileFinding]:
        return [finding for finding in self.findings if finding.grave]


def describe(path: File | str | None = None, *, model: str = "") -> Description:
    """All there is to say of a team file. Only a file that cannot be found at all is an exception.

    What is wrong with a team in Python is an exception as well: it was found out when the team was made.
    """
    if is_python_name(path):
        return _describe_python(str(path), model)
    team_file = find_team(path)
    description = Description(str(team_file.file), team_file.words)
    try:
        source = read_source(team_file.file)
    except UnreadableFile as error:
        description.findings.append(error.finding)
        return description
    shape, misfits = validate(source)
    _describe_team(description, build_members(TeamBuild(source, shape, Overrides(model), misfits=misfits)))
    return description


def _describe_python(name: str, model: str) -> Description:
    team = load_team(name, model=model)
    lines: list[WorkerLine] = []
    for worker, agent in zip(team.spec.workers, team.members, strict=True):
        inside = () if worker.team is None else worker.team.roster.agents
        members = tuple(WorkerLine(member.name, member.description, member.tools, member.model) for member in inside)
        line = WorkerLine(agent.name, agent.description, agent.tools, without_secrets(agent.model), inside=members)
        lines.append(line)
    return Description(
        file=name,
        how="written in Python",
        name=team.name,
        workers=lines,
        tools=sorted({tool for line in lines for tool in line.tools}),
        models=sorted({line.model for line in lines if line.model}),
        thresholds=_describe_thresholds((), _all_workers(team)),
        in_doubt=_find_effects_in_doubt(worker.tools for worker in team.spec.workers),
        uncertain=team.policy.uncertain,
    )


def _all_workers(team: Team) -> list[Worker]:
    """Return the workers of a team in Python and of the teams among them."""
    nested = [worker.team for worker in team.spec.workers if isinstance(worker.team, Team)]
    return [*team.spec.workers, *(worker for inner in nested for worker in _all_workers(inner))]


def _describe_team(description: Description, build: TeamBuild) -> None:
    build_team(build)
    teams = [build, *_teams_inside(build)]
    for team in teams:
        before = len(team.findings)
        _check_models(team)
        if team is not build:
            build.findings.extend(team.findings[before:])
    description.name = build.shape.name
    description.about = build.shape.description
    description.workers = _describe_workers(build)
    declared = {tool.name for tools in build.tools.values() for tool in tools}
    description.tools = sorted(declared.union(*(worker.tools for worker in description.workers)))
    workers = [worker for team in teams for worker in team.workers]
    declared_tools = [tool for team in teams for tools in team.tools.values() for tool in tools]
    description.thresholds = _describe_thresholds(declared_tools, workers)
    used = [worker.tools for team in teams for worker in team.workers]
    description.in_doubt = _find_effects_in_doubt([*used, *(tools for team in teams for tools in team.tools.values())])
    description.uncertain = build.shape.policy.uncertain
    description.memory = _describe_memory(build)
    description.models = sorted({without_secrets(handle) for team in teams for _, handle in named_models(team)})
    own = description.file  # what is wrong here first, then what is wrong in the teams inside
    findings = dict.fromkeys(build.findings)
    description.findings.extend(sorted(findings, key=lambda finding: (finding.file != own, finding.file, finding.line)))


def _describe_workers(build: TeamBuild) -> list[WorkerLine]:
    lines: list[WorkerLine] = []
    for worker in build.workers:
        inner = build.nested.get(worker.name)
        line = WorkerLine(
            name=worker.name,
            description=worker.description,
            tools=() if inner else tuple(map(tool_name, worker.tools)),
            model="" if inner else without_secrets(str(worker.model)),
            team="" if inner is None else str(inner.source.file),
            inside=() if inner is None else tuple(_describe_workers(inner)),
        )
        lines.append(line)
    return lines


def _describe_thresholds(tools: Iterable[object], workers: Iterable[Worker]) -> list[str]:
    """Return in words on which arguments approval depends, by the declarations of tools and the rules of workers."""
    workers = list(workers)
    lines: list[str] = []
    for tool in (*tools, *(tool for worker in workers for tool in worker.tools)):
        if isinstance(tool, Tool) and tool.conditions:
            lines.append(f"{tool.name}: {describe_conditions(tool.conditions)}")
        elif isinstance(tool, Tool) and tool.decides is not None:
            lines.append(f"{tool.name}: a function decides whether it asks")
    for worker in workers:
        rules = [rule for rule in worker.rules if isinstance(rule, RequiresApproval) and rule.when]
        with suppress(Invalid):  # a condition that cannot be read is a finding already
            lines.extend(f"{rule.tool} ({worker.name}): {describe_conditions(rule.when)}" for rule in rules)
    return list(dict.fromkeys(lines))


def _find_effects_in_doubt(groups: Iterable[Iterable[object]]) -> list[str]:
    """Return the names of tools with effects that nothing can look up after a crash."""
    effects = [tool for tools in groups for tool in tools if isinstance(tool, Tool) and tool.effect == "effect"]
    return sorted({tool.name for tool in effects if tool.happened is None and not tool.takes_key})


def _teams_inside(build: TeamBuild) -> list[TeamBuild]:
    """The teams among the workers, and those among theirs."""
    return [team for inner in build.nested.values() for team in (inner, *_teams_inside(inner))]


def _describe_memory(build: TeamBuild) -> MemoryLine | None:
    memory = build.memory
    if memory is None:
        return None
    labels = tuple(block.label for block in memory.blocks)
    return MemoryLine(
        file=str(memory.store or ""),
        blocks=labels,
        archives={archive.name: archive.embedding for archive in memory.archives},
        remembering=tuple(worker.name for worker in build.workers if worker.remembers),
    )


# --- models


def _check_models(build: TeamBuild) -> None:
    """Whether each model is known and has its key. No model is called."""
    lookup = lookup_beside(build.source.file.resolve().parent)
    finder = Finder(lookup)
    wrong = {finding.path for finding in build.findings}
    for path, handle in named_models(build):
        if handle != BUILT_IN and written(path) not in wrong:
            with build.at(*path):
                finder.find(handle)
                if near := finder.suggest(handle):
                    words = f"is {handle!r}, unknown to the table of prices (it may be new)"
                    build.report(path, f"{words}; did you mean {' or '.join(map(repr, near))}?", grave=False)
    for archive in build.memory.archives if build.memory is not None else ():
        if is_handle(archive.embedding):  # whatever else is wrong with it is said already
            from chargehand.models.embeddings import find_embedding  # noqa: PLC0415 - few teams name one

            with build.at("memory", "archives", archive.name, "embed"):
                find_embedding(archive.embedding, lookup)
