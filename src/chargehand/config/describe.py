"""A team file looked at from all sides, for those who check it: what it holds, and everything that is wrong with it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from msgspec import Struct, field, structs

from chargehand.config.assemble import assemble
from chargehand.config.discover import Found, find_team
from chargehand.config.environment import lookup_beside, origin
from chargehand.config.findings import Finding, written
from chargehand.config.findings import Path as Place
from chargehand.config.fit import fit
from chargehand.config.keys import defaults_of_all, meaning
from chargehand.config.load import lead
from chargehand.config.memory import is_handle
from chargehand.config.parts import Parts
from chargehand.config.shapes import TeamShape, VerifierShape
from chargehand.config.source import Source, read_source
from chargehand.config.tools import long_form, source_of
from chargehand.errors import Invalid
from chargehand.memory.blocks import Access, Grant
from chargehand.models.find import Finder
from chargehand.models.known import BUILT_IN, without_secrets

_SECRET = re.compile(r"key|token|secret|pass|credential|auth", re.IGNORECASE)
_ROOM = 60


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


class BlockLine(Struct, frozen=True):
    """`share` is what everybody may do with it, `own` what workers may for whom that is different."""

    label: str
    characters: int
    limit: int
    share: Access
    trusted: bool = False
    read_only: bool = False
    own: dict[str, Access] = field(default_factory=dict[str, Access])


class ArchiveLine(Struct, frozen=True):
    name: str
    embed: str
    share: Access
    own: dict[str, Access] = field(default_factory=dict[str, Access])
    adds: str = ""


class MemoryLine(Struct, frozen=True):
    """`file` is empty where the command line says where it is kept."""

    file: str
    blocks: tuple[BlockLine, ...]
    archives: tuple[ArchiveLine, ...]


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
    workers: list[WorkerLine] = field(default_factory=list[WorkerLine])
    tools: list[ToolLine] = field(default_factory=list[ToolLine])
    models: list[str] = field(default_factory=list[str])
    memory: MemoryLine | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    values: list[Explained] = field(default_factory=list[Explained])

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.grave]


def describe(path: Path | str | None = None, *, model: str = "") -> Description:
    """All there is to say of a team file. Only a file that cannot be found at all is an exception."""
    found = find_team(path)
    told = Description(str(found.file), found.words)
    try:
        source = read_source(found.file)
    except Invalid as error:
        told.findings.append(_unplaced(found, str(error)))
        return told
    team, findings = fit(source)
    told.findings.extend(findings)
    if team is not None:
        _tell(told, source, team, model)
    return told


def _unplaced(found: Found, message: str) -> Finding:
    said = message.removeprefix(f"{found.file}").lstrip(": ")
    line, _, rest = said.partition(": ")
    return Finding(str(found.file), rest, line=int(line)) if line.isdecimal() else Finding(str(found.file), said)


def _tell(told: Description, source: Source, team: TeamShape, model: str) -> None:
    parts = assemble(source, team, model)
    lead(parts)
    _check_models(parts)
    for inner in _inside(parts):
        before = len(inner.findings)
        _check_models(inner)
        parts.findings.extend(inner.findings[before:])
    told.name = team.name
    told.about = team.description
    told.workers = [_worker(parts, at) for at in range(len(parts.workers))]
    told.tools = [line for entry in team.tools if (line := _tool(parts, entry)) is not None]
    told.memory = _memory(parts)
    told.models = sorted({without_secrets(handle) for one in (parts, *_inside(parts)) for _, handle in _handles(one)})
    own = told.file  # what is wrong here first, then what is wrong in the teams inside
    found = dict.fromkeys(parts.findings)
    told.findings.extend(sorted(found, key=lambda one: (one.file != own, one.file, one.line)))
    told.values = _values(parts)


def _worker(parts: Parts, at: int) -> WorkerLine:
    worker = parts.workers[at]
    inner = parts.inside.get(parts.workers[at].name)
    if inner is not None:
        file = str(inner.source.file)
        inside = tuple(_worker(inner, each) for each in range(len(inner.workers)))
        return WorkerLine(
            name=worker.name,
            description=worker.description,
            tools=(),
            model="",
            fallbacks=tuple(worker.fallbacks),
            team=file,
            inside=inside,
        )
    names = tuple(getattr(tool, "name", str(tool)) for tool in worker.tools)
    return WorkerLine(
        name=worker.name,
        description=worker.description,
        tools=names,
        model=without_secrets(str(worker.model)),
        fallbacks=tuple(worker.fallbacks),
        remembers=worker.remembers,
        every=worker.every,
        replicas=max(1, len(worker.replicas)),
    )


def _values(parts: Parts) -> list[Explained]:
    """Where each value comes from; those of a team inside stand behind the name of the worker it is."""
    found = explain(parts.source, parts.team)
    for name, inner in parts.inside.items():
        found += [structs.replace(one, path=f"{name}: {one.path}") for one in _values(inner)]
    return found


def _inside(parts: Parts) -> list[Parts]:
    """The teams among the workers, and those among theirs."""
    return [one for inner in parts.inside.values() for one in (inner, *_inside(inner))]


def _tool(parts: Parts, entry: str) -> ToolLine | None:
    tools = parts.tools.get(entry, ())
    if not tools:
        return None
    source = source_of(long_form(parts.team.tools[entry]))
    return ToolLine(
        entry=entry,
        source=source,
        names=tuple(tool.name for tool in tools),
        effect=tools[0].effect,
        approve=tools[0].approve,
    )


def _memory(parts: Parts) -> MemoryLine | None:
    found = parts.memory
    if found is None:
        return None
    blocks = [
        BlockLine(
            label=one.label,
            characters=len(one.value),
            limit=one.limit,
            share=one.share,
            trusted=one.trusted,
            read_only=one.read_only,
            own={name: _access(own.blocks[one.label]) for name, own in parts.own.items() if one.label in own.blocks},
        )
        for one in found.blocks
    ]
    archives = [
        ArchiveLine(
            name=one.name,
            embed=one.embedding,
            share=one.share,
            own={name: own.archives[one.name] for name, own in parts.own.items() if one.name in own.archives},
            adds=str(found.sources.get(one.name, "")),
        )
        for one in found.archives
    ]
    return MemoryLine(str(found.store or ""), tuple(blocks), tuple(archives))


def _access(given: Access | Grant) -> Access:
    return given.access if isinstance(given, Grant) else given


def _handles(parts: Parts) -> list[tuple[Place, str]]:
    """Every model the team would use, and where it is named."""
    if parts.model:
        return [((), parts.model)]
    team = parts.team
    named = parts.team.supervisor
    usual: Place = ("defaults", "model")
    handles: list[tuple[Place, str]] = [(usual, team.defaults.model or ("" if named.model else BUILT_IN))]
    handles += [(("supervisor", name), str(getattr(named, name))) for name in ("model", "planner", "judge")]
    for name, worker in team.workers.items():
        if not isinstance(worker, str) and not worker.team:
            handles.append((("workers", name, "model"), worker.model))
            handles += [(("workers", name, "replicas", at), one) for at, one in enumerate(worker.replicas)]
            several = enumerate(worker.fallback.models)
            handles += [(("workers", name, "fallback", "models", at), one) for at, one in several]
    if team.factory is not None:
        handles.append((("factory", "model"), team.factory.model))
    for name, check in team.checks.items():
        if isinstance(check.verifier, VerifierShape):
            handles.append((("checks", name, "verifier", "model"), check.verifier.model))
    return [(place, handle) for place, handle in handles if handle]


def _check_models(parts: Parts) -> None:
    """Whether each model is known and has its key. Nobody is called."""
    lookup = lookup_beside(parts.source.file.resolve().parent)
    finder = Finder(lookup)
    for place, handle in _handles(parts):
        if handle == BUILT_IN:
            continue  # needs nothing
        parts.made(place, lambda handle=handle: finder.find(handle), None)
    for one in parts.memory.archives if parts.memory is not None else ():
        if is_handle(one.embedding):  # whatever else is wrong with it is said already
            from chargehand.models.embedding_find import find_embedding  # noqa: PLC0415 - few teams name one

            place = ("memory", "archives", one.name, "embed")
            parts.made(place, lambda handle=one.embedding: find_embedding(handle, lookup), None)


# --- where each value comes from


def explain(source: Source, team: TeamShape) -> list[Explained]:
    """Every value the file gives, then what it leaves to us."""
    given = [
        Explained(
            path=written(path),
            value=_value(source, path, value),
            origin=_origin(source, path),
            meaning=meaning(written(path)),
        )
        for path, value in _leaves(source.data, ())
    ]
    taken = {one.path.partition("[")[0] for one in given}
    left = {written(path): value for path, value in _fields(team, ())} | defaults_of_all()
    ours = [(path, value) for path, value in left.items() if path not in taken]
    return [
        *given,
        *(Explained(path=path, value=_shown(value), origin="built in", meaning=meaning(path)) for path, value in ours),
    ]


def _leaves(value: object, path: Place) -> Iterator[tuple[Place, object]]:
    if isinstance(value, dict) and value:
        for key, item in cast("dict[str, object]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for at, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*path, at))
    else:
        yield path, value


def _fields(shape: Struct, path: Place) -> Iterator[tuple[Place, object]]:
    """The scalars of a team that have a value whether or not the file gives one."""
    for name in shape.__struct_fields__:
        value = getattr(shape, name)
        if isinstance(value, Struct):
            yield from _fields(value, (*path, name))
        elif isinstance(value, str | int | float) and value != "":
            yield (*path, name), value


def _value(source: Source, path: Place, value: object) -> str:
    secret = any(_SECRET.search(name) for name in source.used.get(path, ()))
    return "(not shown)" if secret else _shown(value)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) or value is None else " ".join(str(value).split())
    text = without_secrets(text)
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1]}…"


def _origin(source: Source, path: Place) -> str:
    line = source.line(path)
    place = f"{source.file.name}:{line}" if line else source.file.name
    names = source.used.get(path, ())
    if not names:
        return place
    folder = source.file.resolve().parent
    said = [
        f"{name} of {where}" if (where := origin(name, folder)) else f"what stands after {name}:-" for name in names
    ]
    return f"{place}, {' and '.join(said)}"
