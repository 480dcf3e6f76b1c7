"""Evaluations over the API: begin one, see how it stands, cancel it, list them.

They are carried beside the runs, on no place.
"""

import asyncio
import logging
import secrets
import time
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.config.discover import find_team
from chargehand.config.load import load_team
from chargehand.errors import ChargehandError, Refused
from chargehand.server.house import House
from chargehand.server.problem import Problem, unknown
from chargehand.server.runs.eval_files import MOST, EvalFiles
from chargehand.server.runs.eval_shapes import EvalAsked, EvalLine, EvalList, EvalShown
from chargehand.server.runs.evaluating import STOPPED, Trial
from chargehand.server.runs.shapes import Reason
from chargehand.server.runs.table import Operation, asked, sent
from chargehand.server.teams import Hall
from chargehand.server.wire import part, reply
from chargehand.terms.policy import Instant

_AT_ONCE = 2
_SUFFIXES = (".jsonl", ".ndjson", ".yaml", ".yml", ".json")
_PATIENCE = 30.0  # for one that is cancelled: it is ended hard long before

logger = logging.getLogger(__name__)


class EvalsWanted(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 50


class Trials:
    """The evaluations of one house. `house.part(Trials)` is it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._files: dict[str, Path] | None = None
        self._under_way: dict[str, Trial] = {}
        self.kept = EvalFiles(house.folder / "evals")

    async def file(self, team: str) -> Path:
        """The file of a team of this house."""
        if self._files is None:
            self._files = await asyncio.to_thread(self._found)
        return self._files[team]

    def _found(self) -> dict[str, Path]:
        settings, memory = self._house.settings, self._house.folder / "memory.db"
        return {
            load_team(path, model=settings.model, elsewhere=memory).name: find_team(path).file.resolve()
            for path in settings.teams or (None,)
        }

    async def begin(self, team: str, file: Path, wanted: EvalAsked) -> EvalLine:
        """On disk and under way when it is back; 429 where there are too many already."""
        if len(self._under_way) >= _AT_ONCE:
            said = f"{_AT_ONCE} evaluations are under way already; nothing was begun: try again when one is done"
            raise Problem(429, "overloaded", said, after=10.0)
        now = time.time()
        name = f"eval-{int(now * 1000):012x}-{secrets.token_hex(6)}"
        line = EvalLine(name, team, "running", wanted.kinds, wanted.gate, now)
        trial = self._under_way[name] = Trial(line)
        try:
            await asyncio.to_thread(self.kept.write, EvalShown(line))
            self._house.floor.beside(self._carried(file, trial))
        except BaseException:
            del self._under_way[name]
            raise
        return line

    async def _carried(self, file: Path, trial: Trial) -> None:
        line = trial.line
        try:
            try:
                shown = await trial.carried(file, self._house.settings.model)
            except OSError as error:
                shown = _failed(line, str(error), time.time())
            await asyncio.to_thread(self._keep, shown)
        except Exception:  # nothing is raised on the floor
            logger.exception("what came of %s was not kept", line.id)
        finally:
            del self._under_way[line.id]
            trial.over.set()

    def _keep(self, shown: EvalShown) -> None:
        self.kept.write(self._house.cleaned(shown))
        self.kept.prune()

    async def cancel(self, name: str, why: str) -> EvalShown | None:
        """It has ended, and its place is free, when this is back. One that was cancelled before is left as it is."""
        if (trial := self._under_way.get(name)) is not None:
            trial.cancel(why)
            try:
                async with asyncio.timeout(_PATIENCE):
                    await trial.over.wait()
            except TimeoutError as error:
                said = f"evaluation {name!r} was cancelled and has not stopped yet; try again soon"
                raise Problem(409, "busy", said) from error
            return await asyncio.to_thread(self.show, name)
        found = await asyncio.to_thread(self.show, name)
        if found is not None and found.line.state != "cancelled":
            again = f"begin another: POST /api/teams/{found.line.team}/evals"
            raise Refused(f"evaluation {name!r} has ended ({found.line.state}); {again}")
        return found

    def show(self, name: str) -> EvalShown | None:
        trial = self._under_way.get(name)  # before it is read: one that ends meanwhile is not one that was cut
        found = self.kept.read(name)
        if found is None or found.line.state != "running":
            return found
        return _failed(found.line, STOPPED, None) if trial is None else EvalShown(trial.stands())

    def lines(self, limit: int) -> tuple[EvalLine, ...]:
        alive = dict(self._under_way)
        found: list[EvalLine] = []
        for name in self.kept.names()[:limit]:
            try:
                line = self.kept.line(name)
            except ChargehandError as error:  # one bad file hides no other
                logger.warning("%s", error)
                continue
            if line is not None and line.state == "running":
                line = alive[name].stands() if name in alive else _failed(line, STOPPED, None).line
            if line is not None:
                found.append(line)
        return tuple(found)


def _failed(line: EvalLine, why: str, now: Instant | None) -> EvalShown:
    return EvalShown(structs.replace(line, state="failed", why=why, ended=now))


async def begin(request: Request, house: House) -> Response:
    team = part(request, "team")
    if team not in house.part(Hall).teams:
        raise unknown("team", team)
    wanted = await sent(request, EvalAsked)
    trials = house.part(Trials)
    file = await trials.file(team)
    if not await asyncio.to_thread(_datasets, file):
        said = f"team {team!r} has no datasets; put some into a folder evals/ beside its file, see docs/evals.md"
        raise Problem(409, "refused", said)
    line = await trials.begin(team, file, wanted)
    return reply(line, 202, {"Location": f"/api/evals/{line.id}"})


def _datasets(file: Path) -> bool:
    folder = file.parent / "evals"
    return folder.is_dir() and any(one.suffix in _SUFFIXES for one in folder.iterdir())


async def listing(request: Request, house: House) -> Response:
    wanted = asked(request, EvalsWanted)
    return reply(EvalList(await asyncio.to_thread(house.part(Trials).lines, wanted.limit)))


async def show(request: Request, house: House) -> Response:
    name = part(request, "eval")
    return _told(name, await asyncio.to_thread(house.part(Trials).show, name))


async def cancel(request: Request, house: House) -> Response:
    wanted, name = await sent(request, Reason), part(request, "eval")
    return _told(name, await house.part(Trials).cancel(name, wanted.reason))


def _told(name: str, found: EvalShown | None) -> Response:
    if found is None:
        raise unknown("evaluation", name)
    return reply(found)


OPERATIONS = (
    Operation(
        method="POST", path="/api/teams/{team}/evals", call=begin, name="begin_eval", group="evals", scope="run",
        asked=EvalAsked, told=EvalLine, status=202, problems=(404, 409, 422, 429, 503),
        summary="Try the datasets beside the team's file on it, in the background.",
    ),
    Operation(
        method="GET", path="/api/evals", call=listing, name="list_evals", group="evals", query=EvalsWanted,
        told=EvalList, problems=(422,), summary="Evaluations, the latest first.",
    ),
    Operation(
        method="GET", path="/api/evals/{eval}", call=show, name="show_eval", group="evals", told=EvalShown,
        problems=(404,), summary="An evaluation: its state, figures, failed cases, gates and the whole report.",
    ),
    Operation(
        method="POST", path="/api/evals/{eval}/cancel", call=cancel, name="cancel_eval", group="evals", scope="run",
        asked=Reason, told=EvalShown, problems=(404, 409, 422), summary="Stop an evaluation; what was tried stays.",
    ),
)  # fmt: skip
