"""What the tests of several teams ask of them in this process: runs, their artifacts, their data and code."""

import csv
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import cast

import msgspec

from chargehand.agents.result import Result
from chargehand.config.load import load_team
from tests.teams.bundled import TEAMS, model_of


def examples(team: str) -> tuple[str, ...]:
    return tuple(load_team(TEAMS / team).examples)


def asked(team: str, request: str) -> Result:
    """A run in this process, which leaves nothing behind."""
    return load_team(TEAMS / team, model=model_of(team)).run_sync(request)


def workers(result: Result) -> set[str]:
    return {task.worker for task in result.plan.tasks if task.worker}


def rows(team: str, path: str) -> list[dict[str, str]]:
    with (TEAMS / team / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def module(team: str, name: str) -> ModuleType:
    """A module of a team's folder."""
    spec = spec_from_file_location(f"{team}_{name}", TEAMS / team / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def artifacts(result: Result, kind: str) -> list[dict[str, object]]:
    """The tables, charts or figures that tools returned."""
    found: list[dict[str, object]] = []
    for value in result.results.values():
        if isinstance(value, dict):
            held = msgspec.convert(value, dict[str, object], strict=False)
            found += cast("list[dict[str, object]]", held.get("artifacts", []))
    return [one for one in found if one["kind"] == kind]
