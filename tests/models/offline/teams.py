"""Teams of several trades, as a planner sees them. Nothing in the package knows any of them."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec
from msgspec import Raw

from chargehand.models.offline.planning import plan
from chargehand.models.subject import Given, Planned, Planning, Skill, WorkerCard
from chargehand.terms.events import Gap
from chargehand.terms.lint import Linted, lint
from chargehand.terms.plan import Edge, Task, TaskId
from chargehand.terms.policy import Limits
from chargehand.terms.roster import Agent, Roster

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
NUMBERS = {"type": "array", "items": {"type": "number"}}
TEXTS = {"type": "array", "items": {"type": "string"}}


def skill(name: str, description: str, required: Mapping[str, object], **optional: object) -> Skill:
    schema = {"type": "object", "properties": {**required, **optional}, "required": list(required)}
    return Skill(name, description, Raw(msgspec.json.encode(schema)))


CHART = skill(
    "draw_chart", "Draw a bar or line chart as SVG.", {"title": TEXT, "labels": TEXTS, "values": NUMBERS}, style=TEXT
)
CALCULATE = skill("calculate", "Work out an arithmetic expression exactly.", {"expression": TEXT})
CONVERT = skill(
    "convert_currency",
    "Convert an amount of money from one currency into another at the rate of a day.",
    {"amount": NUMBER, "source": TEXT, "target": TEXT},
    day={"type": "string", "description": "an ISO day"},
)


def sql(tables: str) -> Skill:
    return skill(
        "query_database", f"Run one SQL query over a read-only SQLite database. Tables: {tables}", {"sql": TEXT}
    )


def search(of: str) -> Skill:
    return skill("search_documents", f"Search {of} and return the passages that fit best.", {"query": TEXT})


RETAIL = (
    WorkerCard(
        "analyst",
        "answers questions about sales, customers and stock from the shop's database",
        ("data", "sql"),
        (
            sql(
                "orders(id, day, customer_id, product_id, quantity, revenue, delivered), products(id, name, category, "
                "price), customers(id, name, country; e.g. 'Germany', 'France')"
            ),
        ),
    ),
    WorkerCard(
        "librarian", "finds what the company handbook and the notes say", ("documents",), (search("the handbook"),)
    ),
    WorkerCard("painter", "draws charts", ("charts",), (CHART,)),
    WorkerCard("banker", "converts amounts of money between currencies", ("currency",), (CONVERT,)),
    WorkerCard("reckoner", "does arithmetic exactly", ("math",), (CALCULATE,)),
    WorkerCard("editor", "writes short memos and recommendations from results", ("writing",)),
)
CLINIC = (
    WorkerCard(
        "registrar",
        "counts appointments, patients and waiting times in the clinic's records",
        ("records",),
        (
            sql(
                "appointments(id, day, doctor, department, waited_minutes, attended), patients(id, born, town), "
                "doctors(name; e.g. 'Okafor', 'Lindqvist', speciality)"
            ),
        ),
    ),
    WorkerCard("guide", "looks things up in the clinic's leaflets and procedures", (), (search("leaflets"),)),
    WorkerCard("painter", "draws charts of numbers", (), (CHART,)),
)
LIBRARY = (
    WorkerCard(
        "clerk",
        "knows the loans, members and branches of the public library",
        (),
        (sql("loans(id, member_id, book_id, lent, due, returned), members(id, name), books(title, author)"),),
    ),
    WorkerCard("steward", "finds passages in the library's rules and policy notes", (), (search("the rules"),)),
    WorkerCard("writer", "drafts letters and summaries"),
)
GARDEN = (
    WorkerCard("botanist", "knows which plants suit which soil, shade and season, and how far apart they stand"),
    WorkerCard(
        "forecaster",
        "gives the weather forecast and the last frost date of a place",
        (),
        (skill("forecast", "The weather forecast for a place: rain, temperature and frost.", {"place": TEXT}),),
    ),
    WorkerCard(
        "surveyor",
        "works out areas, volumes of soil and numbers of seedlings",
        (),
        (CALCULATE,),
    ),
)
TEAMS = {"retail": RETAIL, "clinic": CLINIC, "library": LIBRARY, "garden": GARDEN}


class Planned1(TypedDict):
    instruction: str
    worker: str
    after: list[str]
    optional: list[str]


class Plan(TypedDict):
    goal: str
    tasks: dict[str, Planned1]
    combine: str
    assumptions: list[str]
    unserved: list[str]


def planned(
    goal: str,
    team: Sequence[WorkerCard],
    *,
    most: int = 20,
    findings: tuple[str, ...] = (),
    tasks: tuple[Planned, ...] = (),
    results: tuple[Given, ...] = (),
    gaps: tuple[Gap, ...] = (),
) -> Plan:
    text = plan(
        Planning(
            goal=goal, workers=tuple(team), most_tasks=most, findings=findings, tasks=tasks, results=results, gaps=gaps
        )
    )
    return msgspec.json.decode(text, type=Plan)


def linted(proposed: Plan, team: Sequence[WorkerCard]) -> Linted:
    tasks = [
        Task(
            TaskId(name),
            task["instruction"],
            task["worker"],
            after=tuple(
                Edge(TaskId(one), "optional") if one in task["optional"] else TaskId(one) for one in task["after"]
            ),
        )
        for name, task in proposed["tasks"].items()
    ]
    return lint(tasks, Roster(tuple(Agent(card.name) for card in team)), Limits())


def shown(proposed: Plan) -> str:
    lines = [
        f"{name} {task['worker']} {task['after']} {task['optional'] or ''}: {task['instruction']}"
        for name, task in proposed["tasks"].items()
    ]
    lines += [f"unserved: {proposed['unserved']}"] if proposed["unserved"] else []
    lines += [f"assumed: {proposed['assumptions']}"] if proposed["assumptions"] else []
    return "\n".join([f"[{proposed['combine']}] {proposed['goal']}", *lines])
