"""Workers that are teams with files of their own: found, read with all that is wrong in them, and made workers of.

What becomes of their tasks is decided where runs nest.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path as File
from typing import TypeAlias, cast

from msgspec import structs

from chargehand.agents.worker import Worker
from chargehand.config.assemble import amount, filled
from chargehand.config.discover import find_team
from chargehand.config.findings import Finding, Path
from chargehand.config.fit import fit
from chargehand.config.parts import Parts
from chargehand.config.shapes import WorkerShape
from chargehand.config.source import read_source
from chargehand.errors import Invalid
from chargehand.team import Supervisor

Lead: TypeAlias = Callable[[Parts], Supervisor | None]
_MOST = 100  # files inside one, all levels together: they may name each other more often than anybody means
_OUTSIDE = (
    "description",
    "team",
    "tags",
    "fallback",
    "concurrency",
    "timeout",
    "estimate",
    "skills",
    "examples",
    "accept",
)
_PLACED = re.compile(r":(\d+): ")


def add_teams(parts: Parts, lead: Lead) -> None:
    """Put teams in the place of the workers that stand for them. What is wrong inside is said of the lines inside.

    `lead` makes the supervisor of a file's parts.
    """
    for at, worker in enumerate(parts.workers):
        shape = parts.team.workers[worker.name]
        if not isinstance(shape, str) and shape.team:
            parts.workers[at] = _team(parts, worker, shape, lead)


def _team(parts: Parts, worker: Worker, shape: WorkerShape, lead: Lead) -> Worker:
    name = worker.name
    path = ("workers", worker.name)
    _refuse_own(parts, path, name, shape)
    inner = _read(parts, (*path, "team"), shape.team)
    if inner is None:
        return worker  # the findings say why
    parts.inside[name] = inner
    _refuse_one_memory(parts, (*path, "team"), inner)
    team = lead(inner)
    parts.findings.extend(inner.findings)
    if team is None:
        return worker
    timeout = shape.timeout
    wall = shape.estimate.wall
    made = team.as_worker(
        name,
        shape.description or inner.team.description,
        shape.tags,
        amount(shape.estimate),
        None if timeout is None else float(timeout),
    )
    return structs.replace(
        made,
        fallbacks=shape.fallback.workers,
        capacity=shape.concurrency,
        skills=shape.skills,
        examples=shape.examples,
        accept=shape.accept,
        seconds=made.seconds if wall is None else float(wall),
    )


def _refuse_own(parts: Parts, path: Path, name: str, shape: WorkerShape) -> None:
    """What works inside has tools, models and prompts; the one that stands for all of it has none."""
    workers = cast("dict[str, dict[str, object]]", parts.source.data["workers"])
    for key in workers[name]:
        if key not in _OUTSIDE:
            parts.say((*path, key), f"{name!r} is a team and has no {key} of its own; write it in {shape.team}")
    if shape.fallback.models:
        place = (*path, "fallback", "models")
        parts.say(place, f"{name!r} is a team and has no models of its own; write them in {shape.team}")
    if name in parts.own:
        parts.say(path, f"{name!r} is a team, and `memory` shares something with it; a team has a memory of its own")


def _read(parts: Parts, path: Path, written: str) -> Parts | None:
    """The parts of the file that is named here; None where that was refused or it has not the right shape."""
    file = parts.made(path, lambda: _found(parts.source.folder, written), None)
    if file is None:
        return None
    chain = (*parts.above, parts.source.file.resolve())
    if problem := _too_far(parts, chain, file.resolve()):
        parts.say(path, problem)
        return None
    parts.read.append(file)
    try:
        source = read_source(file)
    except Invalid as error:
        parts.findings.append(_unread(file, str(error)))
        return None
    team, findings = fit(source)
    parts.findings.extend(findings)
    if team is None:
        return None
    within = Parts(
        source=source,
        team=team,
        model=parts.model,
        store=parts.store,
        elsewhere=parts.elsewhere,
        above=chain,
        allowed=parts.nesting,
        read=parts.read,
    )
    return filled(within)


def _found(folder: File, written: str) -> File:
    if "\0" in written or written.startswith("~") or File(written).is_absolute():
        raise Invalid(f"{written!r} is not relative to this file; name a team file, or its folder, from here")
    named = folder / written
    plain = File(os.path.normpath(named))  # as people would write it, where that is the same place
    return find_team(plain if plain.resolve() == named.resolve() else named.resolve()).file


def _too_far(parts: Parts, chain: tuple[File, ...], file: File) -> str:
    """Why a file may not be read from here; nothing when it may."""
    if file in chain:
        circle = " > ".join(_short(one, chain[0].parent) for one in (*chain[chain.index(file) :], file))
        return f"goes in a circle: {circle}; a team cannot work for itself: leave it out"
    if len(chain) > parts.nesting:
        known = "supervisor.plan.max_nesting of the outermost file"
        return f"is a team inside {len(chain)} others, and at most {parts.nesting} are allowed ({known})"
    if len(parts.read) >= _MOST:
        return f"is one team too many: {_MOST} are inside the outermost file already; make fewer of them"
    return ""


def _short(file: File, start: File) -> str:
    return os.path.relpath(file, start)


def _unread(file: File, message: str) -> Finding:
    said = message.removeprefix(str(file))
    placed = _PLACED.match(said)
    if placed is None:
        return Finding(str(file), said.lstrip(": "))
    return Finding(str(file), said[placed.end() :], line=int(placed[1]))


def _refuse_one_memory(parts: Parts, path: Path, inner: Parts) -> None:
    if inner.memory is not None and parts.memory is not None and inner.team.name == parts.team.name:
        parts.say(path, f"is called {inner.team.name!r} as well, so both would have one memory; give it another `name`")
