"""The other roles of a model: routing, handing out tasks, splitting, rewriting, judging, reviewing, making workers."""

import re
from decimal import Decimal
from functools import singledispatch
from itertools import pairwise

import msgspec

from chargehand.models.demo.plan import make_plan
from chargehand.models.demo.request import OFFERED_DAY, without_returns
from chargehand.models.demo.tools import tool_words, tools_of
from chargehand.models.demo.words import content_stems
from chargehand.models.request_facts import (
    Judging,
    Making,
    Planning,
    ProgressLedger,
    Refining,
    Reviewing,
    Routing,
    Speaking,
    Splitting,
    WorkerCard,
)
from chargehand.text.dates import find_periods
from chargehand.text.words import shorten

_MOST_TASKS = 50
_MOST_TOOLS = 4
_LONGEST_RESULT = 20_000
_NEAREST_DAY = re.compile(r" The day [\d-]{10} is the nearest there is to (?P<asked>[\d-]{10}): say so\.")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_TASK_ID = re.compile(r"\bt\d+\b")


@singledispatch
def reply(subject: object) -> str:
    """The reply of each role: JSON, or the rewritten task."""
    raise TypeError(f"the demo model has no role for {type(subject).__name__}")


def _encode(**fields: object) -> str:
    return msgspec.json.encode(fields).decode()


# --- who does it


def _planned_workers(goal: str, workers: tuple[WorkerCard, ...]) -> list[str]:
    """The workers that the plan for a request gives tasks to, in order."""
    tasks = make_plan(Planning(goal, workers, _MOST_TASKS)).tasks
    return list(dict.fromkeys(task.worker for task in tasks))


@reply.register
def route(subject: Routing) -> str:
    """The worker that the plan begins with, or none."""
    names = _planned_workers(subject.goal, subject.workers)
    if not names:
        return _encode(reason="no worker's tools or description fit", primary=None, secondary=None, confidence=0.0)
    return _encode(
        reason=f"the tools and the description of {names[0]} fit best",
        primary=names[0],
        secondary=names[1] if len(names) > 1 else None,
        confidence=round(1 / len(names), 2),
    )


@reply.register
def choose_speaker(subject: Speaking) -> str:
    """The next worker of the plan that has not spoken."""
    spoken = {result.worker for result in subject.said} | {subject.last}
    for name in _planned_workers(subject.goal, subject.workers):
        if name not in spoken:
            return _encode(next=name, why="fits the request and has not spoken yet")
    return _encode(next=None, why="no other worker fits the request")


# --- one task at a time, and splitting


@reply.register
def keep_ledger(subject: ProgressLedger) -> str:
    """The plan for the request, handed out one task at a time."""
    wanted = make_plan(Planning(subject.goal, subject.workers, _MOST_TASKS))
    delivered = {result.task for result in subject.results if result.value is not None}
    handed_out = {task.instruction: task.id for task in subject.tasks}
    names: dict[str, str] = {}  # of the plan's tasks in the run
    for task in wanted.tasks:
        instruction = _TASK_ID.sub(lambda match: names.get(match[0], match[0]), task.instruction)
        if instruction in handed_out:
            names[task.id] = handed_out[instruction]
        elif all(names.get(needed) in delivered for needed in task.after):
            why = f"{len(delivered)} of {len(wanted.tasks)} tasks are done."
            return _encode(done=False, looping=False, progress=True, next=task.worker, instruction=instruction, why=why)
    why = "No other task can be done."
    return _encode(done=True, looping=False, progress=True, why=why, unserved=wanted.unserved)


@reply.register
def split(subject: Splitting) -> str:
    """Simple, or the tasks of its plan as parts; more tasks than there may be parts go in groups, in their order."""
    if without_returns(subject.instruction) != subject.instruction.strip():
        return _encode(simple=True, why="It is one task of a plan.")
    plan = make_plan(Planning(subject.instruction, subject.workers, _MOST_TASKS))
    tasks = plan.tasks
    why = f"The plan for it has {len(tasks)} tasks."
    if len(tasks) < 2:
        worker = tasks[0].worker if tasks else None
        return _encode(why=why, simple=True, unserved=plan.unserved, worker=worker)
    count = min(len(tasks), max(2, subject.most))
    bounds = [number * len(tasks) // count for number in range(count + 1)]
    groups = [tasks[start:end] for start, end in pairwise(bounds)]
    places = {task.id: number for number, group in enumerate(groups, 1) for task in group}
    subtasks: list[dict[str, object]] = []
    for number, group in enumerate(groups, 1):
        instruction = " ".join(task.sentence for task in group) if len(group) > 1 else group[0].instruction
        after = {places[name] for task in group for name in task.after} - {number}
        subtasks.append({"instruction": instruction, "worker": group[0].worker, "after": sorted(after)})
    return _encode(why=why, simple=False, unserved=plan.unserved, subtasks=subtasks)


# --- rewriting what failed


@reply.register
def refine(subject: Refining) -> str:
    """The task with the day that the error offers, and a remark which was asked for; any other task as it is."""
    offered = OFFERED_DAY.search(subject.failure[:4_000])
    plain = without_returns(subject.instruction)
    returns = subject.instruction[len(plain) :].strip()
    earlier = _NEAREST_DAY.search(plain)
    plain = _NEAREST_DAY.sub("", plain)
    days = [period for period in find_periods(plain) if period.day and period.year]
    if offered is None or len(days) != 1 or days[0].first_day.isoformat() == offered["day"]:
        return subject.instruction
    wanted_day = earlier["asked"] if earlier else days[0].first_day.isoformat()
    remark = f"The day {offered['day']} is the nearest there is to {wanted_day}: say so."
    return f"{plain[: days[0].start]}{offered['day']}{plain[days[0].end :]} {remark} {returns}".strip()


# --- judging by what can be counted


@reply.register
def judge(subject: Judging) -> str:
    """The result with most words of what was asked; a contradiction is left open."""
    if subject.manner == "contradiction" or not subject.results:
        return _encode(why="Which of the results holds cannot be told by rules.", ruling="open", winner=None)
    wanted = content_stems(subject.goal)
    scores: dict[str, int] = {}
    for result in subject.results:
        words = content_stems(msgspec.json.encode(result.value).decode()[:_LONGEST_RESULT])
        scores[result.task] = len(wanted & words)
    winner = max(scores, key=lambda task: scores[task])
    why = f"It speaks to {scores[winner]} of the {len(wanted)} words that were asked about."
    return _encode(why=why, agree=[winner], winner=winner)


@reply.register
def review(subject: Reviewing) -> str:
    """Accepted, unless it is empty or says something that stands nowhere in the material; content is not judged."""
    doubts = [doubt for doubt in subject.doubts if not _is_sum(doubt, subject.text)]
    problems = [f"This stands in no input and in no result of a tool: {doubt}." for doubt in doubts]
    if not re.search(r"[^\W_]", subject.text) or subject.result in (None, [], {}):
        problems = ["The result is empty."]
    return _encode(problems=problems[:8], accepted=not problems)


def _is_sum(doubt: str, text: str) -> bool:
    """Whether a number is what all others of the result come to."""
    numbers = [Decimal(number.replace(",", "")) for number in _NUMBER.findall(text[:_LONGEST_RESULT])]
    is_number = _NUMBER.fullmatch(doubt) is not None and len(numbers) > 2
    return is_number and 2 * Decimal(doubt.replace(",", "")) == sum(numbers)


# --- making a worker


@reply.register
def make_worker(subject: Making) -> str:
    """A persona, and the tools whose words are those of the task."""
    task = shorten(without_returns(subject.instruction), 400)
    words = content_stems(task)
    tools = tools_of(WorkerCard("", "", skills=subject.skills))
    scores = {tool.name: len(words & tool_words(tool)) for tool in tools}
    ranked = sorted((name for name in scores if scores[name]), key=lambda name: -scores[name])
    persona = f"A specialist for one task: {task.rstrip('. ')}. It works only from what its inputs and tools say."
    return _encode(persona=persona, tools=ranked[:_MOST_TOOLS])
