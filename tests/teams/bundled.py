"""Teams of this repository, run and scored by the real commands, with the replies of models from recordings.

The recordings were made with the rules that the demo model replaced. To record anew with another model:
`RECORD_WITH=openai:gpt-5-mini pytest tests/teams/test_portfolio.py`.
"""

import json
import os
from pathlib import Path
from typing import cast

from msgspec import Struct

from chargehand.config.source import read_yaml
from chargehand.engine import events as ev
from chargehand.evals.cases import read_dataset
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, ROOT, chargehand

TEAMS = ROOT / "teams"
RECORDINGS = ROOT / "tests" / "teams" / "recordings"
_MOST_BYTES = 60_000


def model_of(team: str) -> str:
    """The handle of the model that replays what was recorded of a team, or that records it."""
    file = RECORDINGS / f"{team}.jsonl"
    recorded = os.environ.get("RECORD_WITH", "")
    return f"recording:{file}#{recorded}" if recorded else f"recorded:{file}"


class Ran(Struct, frozen=True):
    """What a program is told of a run, and its journal."""

    told: dict[str, object]
    entries: tuple[ev.Entry, ...]
    code: int

    @property
    def answer(self) -> str:
        return str(self.told["answer"])

    @property
    def workers(self) -> set[str]:
        return {one.event.worker for one in self.entries if isinstance(one.event, ev.AttemptStarted)}

    @property
    def notes(self) -> str:
        return "\n".join(one.event.text for one in self.entries if isinstance(one.event, ev.Noted))

    @property
    def gaps(self) -> str:
        return json.dumps(self.told["gaps"])

    def holds(self, *facts: str) -> None:
        """Every fact stands in the answer."""
        missing = [fact for fact in facts if fact not in self.answer]
        assert not missing, f"{missing} not in:\n{self.answer}"


def ran(folder: Path, team: str, *words: str, run: str = "one") -> Ran:
    """One request, by `--example N` or in words."""
    done = chargehand(
        folder, "run", "--team", TEAMS / team, "--model", model_of(team), *words, "--run", run, "--json", "-q"
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return Ran(json.loads(done.stdout), tuple(read_run(folder / JOURNAL, run)), done.returncode)


def accuracy(folder: Path, team: str) -> dict[str, float]:
    """By kind of case: the share of the team's own cases that it gets right, as `chargehand eval` counts.

    Under `held_out` that of the cases nobody tuned the team on.
    """
    done = chargehand(folder, "eval", "--team", TEAMS / team, "--model", model_of(team), "--json", "-q", "--no-save")
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = {}
    for section in json.loads(done.stdout)["sections"]:
        kind = "held_out" if section["dataset"] == "held_out" else section["kind"]
        found[kind] = next(one["value"] for one in section["measures"] if one["name"] == "accuracy")
    return found


def lacking(team: str) -> list[str]:
    """What a team's folder lacks of what every one of them has."""
    folder = TEAMS / team
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    workers = _workers(folder / "team.yaml")
    tools = [tool for held in workers.values() for tool in held]
    routing = read_dataset(folder / "evals" / "routing.jsonl").cases
    golden = read_dataset(folder / "evals" / "golden.yaml").cases
    has = {
        "a README that says what is made up": "made up" in (folder / "README.md").read_text(encoding="utf-8"),
        "a folder of less than 60 kB": size < _MOST_BYTES,
        "three workers": len(workers) >= 3,
        "tools of which each has one owner": len(tools) == len(set(tools)),
        "fifteen labelled requests": len(routing) >= 15,
        "three requests for nobody": sum(not case.labels for case in routing) >= 3,
        "five golden requests": sum(case.kind == "run" for case in golden) >= 5,
    }
    return [what for what, there in has.items() if not there]


def _workers(file: Path) -> dict[str, list[str]]:
    """The tools of each worker, as the file has them."""
    written = cast("dict[str, dict[str, dict[str, list[str]]]]", read_yaml(file.read_text(encoding="utf-8")).data)
    return {name: worker.get("tools", []) for name, worker in written["workers"].items()}
