"""Puts topics in an order that can be taught, spreads them over weeks, and makes exercises with their solutions.

What there is to teach is data (data/*.csv). Nothing here says how to teach.
"""

import csv
import random
import statistics
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

DATA = Path(__file__).parent / "data"
Topic = Literal[
    "reading data",
    "mean and median",
    "spread",
    "probability",
    "sampling",
    "normal distribution",
    "correlation",
    "confidence intervals",
    "hypothesis tests",
    "regression",
]
Hours = Annotated[int, Meta(ge=1, le=40)]


def learning_path(goal: Topic, hours: Hours = 4) -> Table:
    """Build the learning path (course, syllabus, order of topics) to a goal: what has to be taught before it.

    It goes week by week, and says how many weeks it takes to get there.

    Args:
        goal: the topic learners should master in the end
        hours: teaching hours a week

    """
    wanted = {one["topic"]: int(one["hours"]) for one in _rows("topics.csv")}
    rows: list[tuple[object, ...]] = []
    begun = 0
    for topic in order(goal):
        begun += wanted[topic]
        rows.append((topic, (begun - wanted[topic]) // hours + 1, wanted[topic], (begun - 1) // hours + 1))
    columns = ("topic", "week", "hours", "done in week")
    return Table(columns, tuple(rows), source="data/topics.csv, data/prerequisites.csv")


def learning_objectives(goal: Topic) -> Table:
    """Structure the learning objectives of a topic: what a learner should be able to do after it, and before that.

    Args:
        goal: the topic learners should master in the end

    """
    told = {one["topic"]: one for one in _rows("topics.csv")}
    rows = tuple((topic, told[topic]["level"], told[topic]["objective"]) for topic in reversed(order(goal)))
    return Table(("topic", "level", "objective"), rows, source="data/topics.csv, data/prerequisites.csv")


def order(goal: str) -> list[str]:
    """All that has to be taught for a goal, each topic after what it needs, else in the order of the file."""
    needs: dict[str, set[str]] = {}
    for row in _rows("prerequisites.csv"):
        needs.setdefault(row["topic"], set()).add(row["needs"])
    known = [one["topic"] for one in _rows("topics.csv")]
    wanted = set[str]()
    waiting = [goal]
    while waiting:
        topic = waiting.pop()
        if topic not in wanted:
            wanted.add(topic)
            waiting.extend(needs.get(topic, ()))
    sorter = TopologicalSorter({topic: needs.get(topic, set()) & wanted for topic in wanted})
    sorter.prepare()
    found: list[str] = []
    ready = list(sorter.get_ready())
    while ready:
        ready.sort(key=known.index)
        topic = ready.pop(0)
        found.append(topic)
        sorter.done(topic)
        ready.extend(sorter.get_ready())
    return found


def exercises(topic: Literal["mean and median", "spread", "probability"], seed: int = 1) -> Table:
    """Make exercises (a quiz) on a topic, with solutions that were worked out.

    Args:
        topic: what the exercises are about
        seed: another number makes other exercises

    """
    chance = random.Random(f"{topic} {seed}")  # noqa: S311 - exercises, not secrets
    makers = {"mean and median": _middle, "spread": _spread, "probability": _dice}
    if topic not in makers:
        raise ToolFailed(f"there are no exercises on {topic!r}; there are some on {', '.join(makers)}")
    rows = [pair for _ in range(2) for pair in makers[topic](chance)]
    return Table(("exercise", "solution"), tuple(rows), source=f"worked out, seed {seed}")


def _middle(chance: random.Random) -> list[tuple[str, str]]:
    values = [chance.randint(1, 20) for _ in range(5)]
    shown = ", ".join(map(str, values))
    return [
        (f"Work out the mean of {shown}", f"{statistics.mean(values):g}"),
        (f"Find the median of {shown}", f"{statistics.median(values):g}"),
    ]


def _spread(chance: random.Random) -> list[tuple[str, str]]:
    values = [chance.randint(1, 20) for _ in range(5)]
    shown = ", ".join(map(str, values))
    return [
        (f"Find the range of {shown}", f"{max(values) - min(values)}"),
        (f"Work out the standard deviation of {shown}", f"{statistics.pstdev(values):.2f}"),
    ]


def _dice(chance: random.Random) -> list[tuple[str, str]]:
    wanted = chance.randint(3, 11)
    ways = sum(first + second == wanted for first in range(1, 7) for second in range(1, 7))
    return [(f"Two dice are thrown. How likely is a sum of {wanted}?", f"{ways}/36")]


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
