"""A team file looked at from all sides: what it holds, where each value comes from, and everything wrong with it."""

import re
from collections.abc import Iterator
from pathlib import Path as File
from typing import cast

from msgspec import Struct, structs

from chargehand.config.build import Overrides, TeamBuild, build_members, is_handle
from chargehand.config.environment import lookup_beside, origin
from chargehand.config.keys import key_at
from chargehand.config.load import build_team, named_models
from chargehand.config.schema import TeamShape
from chargehand.config.source import FileFinding, FileSource, Path, UnreadableFile, find_team, read_source, written
from chargehand.config.tools import long_form, source_of
from chargehand.config.validate import validate
from chargehand.models.providers import BUILT_IN, without_secrets
from chargehand.models.resolve import Finder

_SECRET = re.compile(r"key|token|secret|pass|credential|auth", re.IGNORECASE)
_MAX_VALUE_CHARS = 60


class WorkerLine(Struct, frozen=True):
    """`team` is the file of one that is a team, and `inside` are those who work in it."""

    name: str
    description: str
    tools: tuple[str, ...]
    model: str
    fallbacks: tuple[str, ...] = ()
    remembers: bool = False
    team: str = ""
    inside: "tuple[WorkerLine, ...]" = ()
    every: int | None = None
    replicas: int = 1


class ToolLine(Struct, frozen=True):
    """One entry: where it comes from, and the tools it brings."""

    entry: str
    source: str
    names: tuple[str, ...]
    effect: str = "read"
    approve: bool = False


class MemoryLine(Struct, frozen=True):
    """Where memory is kept (empty where the command line says), the labels of its blocks, and its archives."""

    file: str
    blocks: tuple[str, ...]
    archives: dict[str, str]
    """What compares meanings, by the name of the archive."""


class Explained(Struct, frozen=True):
    """One value, shortened, where it comes from, and what its key means."""

    path: str
    value: str
    origin: str
    meaning: str = ""


class Description(Struct):
    """What a file comes to. Without a name it could not be read at all; the findings say why."""

    file: str
    how: str
    name: str = ""
    about: str = ""
    workers: list[WorkerLine] = []
    tools: list[ToolLine] = []
    models: list[str] = []
    memory: MemoryLine | None = None
    findings: list[FileFinding] = []
    values: list[Explained] = []

    @property
    def errors(self) -> list[FileFinding]:
        return [finding for finding in self.findings if finding.grave]


def describe(path: File | str | None = None, *, model: str = "") -> Description:
    """All there is to say of a team file. Only a file that cannot be found at all is an exception."""
    team_file = find_team(path)
    description = Description(str(team_file.file), team_file.words)
    try:
        source = read_source(team_file.file)
    except UnreadableFile as error:
        description.findings.append(error.finding)
        return description
    team, findings = validate(source)
    description.findings.extend(findings)
    if team is not None:
        _describe_team(description, build_members(TeamBuild(source, team, Overrides(model))))
    return description


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
    description.tools = [_describe_tool(build, entry) for entry in build.shape.tools if build.tools.get(entry)]
    description.memory = _describe_memory(build)
    description.models = sorted({without_secrets(handle) for team in teams for _, handle in named_models(team)})
    own = description.file  # what is wrong here first, then what is wrong in the teams inside
    findings = dict.fromkeys(build.findings)
    description.findings.extend(sorted(findings, key=lambda finding: (finding.file != own, finding.file, finding.line)))
    description.values = _explain_all(build)


def _describe_workers(build: TeamBuild) -> list[WorkerLine]:
    lines: list[WorkerLine] = []
    for worker in build.workers:
        inner = build.nested.get(worker.name)
        line = WorkerLine(
            name=worker.name,
            description=worker.description,
            tools=() if inner else tuple(getattr(tool, "name", str(tool)) for tool in worker.tools),
            model="" if inner else without_secrets(str(worker.model)),
            fallbacks=tuple(worker.fallbacks),
            remembers=worker.remembers,
            team="" if inner is None else str(inner.source.file),
            inside=() if inner is None else tuple(_describe_workers(inner)),
            every=worker.every,
            replicas=max(1, len(worker.replicas)),
        )
        lines.append(line)
    return lines


def _explain_all(build: TeamBuild) -> list[Explained]:
    """Where each value comes from; those of a team inside stand behind the name of the worker it is."""
    values = explain(build.source, build.shape)
    for name, inner in build.nested.items():
        values += [structs.replace(value, path=f"{name}: {value.path}") for value in _explain_all(inner)]
    return values


def _teams_inside(build: TeamBuild) -> list[TeamBuild]:
    """The teams among the workers, and those among theirs."""
    return [team for inner in build.nested.values() for team in (inner, *_teams_inside(inner))]


def _describe_tool(build: TeamBuild, entry: str) -> ToolLine:
    tools = build.tools[entry]
    return ToolLine(
        entry=entry,
        source=source_of(long_form(build.shape.tools[entry])),
        names=tuple(tool.name for tool in tools),
        effect=tools[0].effect,
        approve=tools[0].approve,
    )


def _describe_memory(build: TeamBuild) -> MemoryLine | None:
    memory = build.memory
    if memory is None:
        return None
    labels = tuple(block.label for block in memory.blocks)
    return MemoryLine(str(memory.store or ""), labels, {archive.name: archive.embedding for archive in memory.archives})


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
    for archive in build.memory.archives if build.memory is not None else ():
        if is_handle(archive.embedding):  # whatever else is wrong with it is said already
            from chargehand.models.embeddings import find_embedding  # noqa: PLC0415 - few teams name one

            with build.at("memory", "archives", archive.name, "embed"):
                find_embedding(archive.embedding, lookup)


# --- where each value comes from


def explain(source: FileSource, team: TeamShape) -> list[Explained]:
    """Every value the file gives, then what it leaves to us."""
    values: list[Explained] = []
    for path, value in _leaves(source.data, ()):
        key = key_at(written(path))
        secret = any(_SECRET.search(name) for name in source.used.get(path, ()))
        explained = Explained(
            path=written(path),
            value="(not shown)" if secret else _shorten(value),
            origin=_origin(source, path),
            meaning=key.meaning if key else "",
        )
        values.append(explained)
    explained_paths = {value.path.partition("[")[0] for value in values}
    for path in _built_in(team, ()):
        key = key_at(path)
        if key is not None and key.default and path not in explained_paths:
            values.append(Explained(path=path, value=key.default, origin="built in", meaning=key.meaning))
    return values


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, object]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _built_in(shape: Struct, path: Path) -> Iterator[str]:
    """The keys of a team that have a value whether or not the file gives one."""
    for name, value in structs.asdict(shape).items():
        if isinstance(value, Struct):
            yield from _built_in(value, (*path, name))
        else:
            yield written((*path, name))


def _shorten(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) or value is None else " ".join(str(value).split())
    text = without_secrets(text)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"


def _origin(source: FileSource, path: Path) -> str:
    line = source.line(path)
    place = f"{source.file.name}:{line}" if line else source.file.name
    names = source.used.get(path, ())
    if not names:
        return place
    folder = source.file.resolve().parent
    origins = [
        f"{name} of {where}" if (where := origin(name, folder)) else f"what stands after {name}:-" for name in names
    ]
    return f"{place}, {' and '.join(origins)}"
