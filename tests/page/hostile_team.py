"""A team with an attack in every text that a team file, an evaluation and a person can bring to the page."""

import shutil
import time
from pathlib import Path

import yaml

from chargehand.evals.report import EvalReport, Gate, Measure, RouteCount, Score, ScoreChange, Section
from chargehand.evals.report_files import save_report
from tests.page.attacks import ATTACKS, EVERYTHING

NAME = "hostile"
_TOOLS = Path(__file__).parent / "hostile"


def write_hostile_team(folder: Path) -> None:
    shutil.copytree(_TOOLS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    workers = {
        "mallory": {
            "description": EVERYTHING,
            "tags": [ATTACKS[0], ATTACKS[1]],
            "tools": ["echo", "fail", "ask_person"],
        }
    }
    team = {
        "version": 1,
        "name": NAME,
        "description": EVERYTHING,
        "defaults": {"model": "${INCIDENT_MODEL:-demo}"},
        "policy": {"retry": {"attempts": 1}},
        "supervisor": {"instructions": EVERYTHING},
        "workers": workers,
        "tools": {
            "echo": {"python": "hostile_tools:echo", "effect": "read"},
            "fail": {"python": "hostile_tools:fail", "effect": "read"},
        },
        "memory": {
            "blocks": {"notes": {"description": EVERYTHING, "value": EVERYTHING, "limit": 4000}},
            "archives": {"past": {"description": EVERYTHING}},
        },
        "examples": list(ATTACKS[:3]),
    }
    (folder / "team.yaml").write_text(yaml.safe_dump(team, allow_unicode=True))
    save_report(hostile_report(), folder / ".chargehand" / "evals")


def hostile_report() -> EvalReport:
    text = EVERYTHING
    score = Score(
        case=text,
        kind="routing",
        passed=False,
        why=(text,),
        request=text,
        got=text,
        wanted=text,
        mistake=text,
        notes=(text,),
    )
    section = Section(
        dataset=text,
        kind="routing",
        scores=(score,),
        measures=(Measure(text, 0.5, 0.2, 0.8, 1, percent=True),),
        routes=(RouteCount(ATTACKS[0], ATTACKS[1], 1), RouteCount(ATTACKS[1], ATTACKS[1], 2)),
    )
    change = ScoreChange(
        dataset=text,
        kind="routing",
        measure=text,
        before=0.1,
        now=0.2,
        low=0.0,
        high=0.3,
        count=9,
        verdict="better",
        lost=(text,),
        won=(text,),
    )
    gate = Gate(dataset=text, kind="routing", measure=text, wanted=0.9, value=0.5, passed=False, why=text)
    return EvalReport(
        team=NAME,
        sections=(section,),
        gates=(gate,),
        changes=(change,),
        notice=text,
        warnings=(text,),
        stopped=text,
        at=time.time(),
    )
