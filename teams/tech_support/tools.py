"""What support can work out: how long a job runs, and what a ticket for an engineer must hold. It sends nothing."""

import csv
import re
from collections.abc import Iterator
from decimal import ROUND_UP, Decimal
from pathlib import Path

from chargehand.models.artifacts import Figure, Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
NEEDED = {
    "exports": "the format, a sample of ten rows, and what opens the file",
    "interface": "a picture of the page and the size of the screen",
    "connections": "the database with its version, and where it runs",
    "schedules": "the job file and the times that are wanted",
    "security": "the rule that asks for it, and who must be able to see what",
}
UNKNOWN = "what you want to do, how you do it today, and how many people need it"


def run_time(rows: int, speed: int) -> Figure:
    """How long a job runs: the seconds it needs for so many rows, and whether a timeout of 60 seconds is enough.

    Args:
        rows: how many rows the job reads
        speed: how many rows it reads per second

    """
    if speed <= 0:
        raise ToolFailed("a job reads at least 1 row per second")
    seconds = (Decimal(rows) / speed).quantize(Decimal(1), ROUND_UP)
    enough = "within" if seconds <= 60 else "longer than"
    return Figure(str(seconds), f"{rows} / {speed}", "seconds", f"run time, {enough} the timeout of 60 seconds")


def escalation(feature: str) -> Table:
    """Prepare the escalation of a feature somebody needs, misses, asks to add or wants to speak to an engineer about.

    It says how many votes the feature has, its status, and which engineer decides.

    Args:
        feature: what is missing, in a few words

    """
    wanted = {word for word in re.findall(r"[a-z]+", feature.lower()) if len(word) > 3}
    board = list(_rows("board/requests.csv"))
    known = [row for row in board if wanted & set(re.findall(r"[a-z]+", row["feature"].lower()))]
    engineers = {row["area"]: row for row in _rows("board/engineers.csv")}
    rows = [_row(row, engineers[row["area"]]) for row in known or [row for row in board if row["area"] in wanted]]
    rows = rows or [(feature, 0, "new", "the shift lead", UNKNOWN)]
    return Table(("feature", "votes", "status", "decided by", "they need"), tuple(rows), "board/requests.csv")


def _row(row: dict[str, str], owner: dict[str, str]) -> tuple[object, ...]:
    days = owner["answers_within_days"]
    who = f"{owner['engineer']} (within {days} {'day' if days == '1' else 'days'})"
    return row["feature"], int(row["votes"]), row["status"], who, NEEDED[row["area"]]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
