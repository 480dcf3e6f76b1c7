"""The other roles of a model: routing, handing out tasks, splitting, rewriting, judging, reviewing, making workers."""

import re
from decimal import Decimal
from functools import singledispatch
from itertools import pairwise

import msgspec

from chargehand.models.demo.plan import make_plan
from chargehand.models.demo.request import without_returns
from chargehand.models.demo.results import read_product
from chargehand.models.demo.tools import tool_words, tools_of
from chargehand.models.demo.words import content_stems
from chargehand.models.request_facts import (
    Given,
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
_OFFERED_DAY = re.compile(r"(?:nearest|closest|did you mean)[^;?\n]{0,60}?(?P<day>\d{4}-\d\d-\d\d)", re.IGNORECASE)
_NEAREST_DAY = re.compile(r" The day [\d-]{10} is the nearest there is to (?P<asked>[\d-]{10}): say so\.")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_TASK_ID = re.compile(r"\bt\d+\b")
_NO_RESULT = re.compile(
    r"^\W*(?:(?:i am |i'm )?(?:sorry|afraid)\b|as an? (?:ai|language model)\b|i (?:cannot|can't|could not|am unable)\b|"
    r"(?:n/?a|tbd|todo|unknown|none|null|\{\{\s*\w[\w .-]{0,40}\}\})\W*$)",
    re.IGNORECASE,
)
_CUT_OFF = re.compile(r"[^#*|\s-].*[,;]\Z|[^#*|\s-](?:\S* ){7,}\S*[^\W\d_]\Z")
"""A last line that ends with a comma, or a long one that ends with a letter; lists and headings may."""


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
        reason = "no worker's tools or description fit the request"
        return _encode(reason=reason, primary=None, secondary=None, confidence=0.0)
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
    offered = _OFFERED_DAY.search(subject.failure[:4_000])
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


# --- judging


@reply.register
def judge(subject: Judging) -> str:
    """The result that most agree on, or that has most words of what was asked; a contradiction is left open."""
    if subject.manner == "contradiction" or not subject.results:
        return _encode(why="Which of the results holds cannot be told by rules.", ruling="open", winner=None)
    texts = {result.task: _result_text(result) for result in subject.results}
    votes = {task: [other for other in texts if texts[other] == texts[task]] for task in texts}
    if subject.manner == "vote":
        winner = max(votes, key=lambda task: len(votes[task]))
        why = f"{len(votes[winner])} of {len(texts)} say the same."
        return _encode(why=why, agree=votes[winner], winner=winner)
    wanted = content_stems(subject.goal)
    scores = {task: len(wanted & content_stems(text)) for task, text in texts.items()}
    winner = max(scores, key=lambda task: scores[task])
    return _encode(
        why=f"It speaks to {scores[winner]} of the {len(wanted)} words that were asked about.", winner=winner
    )


def _result_text(result: Given) -> str:
    text = read_product(result.value).text or msgspec.json.encode(result.value).decode()
    return " ".join(text[:_LONGEST_RESULT].casefold().split())


@reply.register
def review(subject: Reviewing) -> str:
    """Problems that can be seen: nothing there, a refusal, half a sentence, a figure from nowhere."""
    text = subject.text.strip()
    doubts = [doubt for doubt in subject.doubts if not _is_sum(doubt, text)]
    problems = [f"This stands in no input and in no result of a tool: {doubt}." for doubt in doubts]
    if not re.search(r"[^\W_]", text) or subject.result in (None, [], {}):
        problems = ["The result is empty."]
    elif _NO_RESULT.match(text) and len(text.split()) < 60:
        problems = ["It does not do the task but says that it cannot."]
    elif _CUT_OFF.match(text.splitlines()[-1]):
        problems.append("It ends in the middle of a sentence.")
    elif _is_off_topic(subject, text):
        problems.append("It does not speak of what was asked.")
    return _encode(problems=problems[:8], accepted=not problems)


def _is_sum(doubt: str, text: str) -> bool:
    """Whether a number is what all others of the result come to."""
    numbers = [Decimal(number.replace(",", "")) for number in _NUMBER.findall(text[:_LONGEST_RESULT])]
    is_number = _NUMBER.fullmatch(doubt) is not None and len(numbers) > 2
    return is_number and 2 * Decimal(doubt.replace(",", "")) == sum(numbers)


def _is_off_topic(subject: Reviewing, text: str) -> bool:
    words = content_stems(text[:_LONGEST_RESULT])
    topic = content_stems(subject.instruction)
    for result in subject.material:
        topic |= content_stems(msgspec.json.encode(result.value).decode()[:_LONGEST_RESULT])
    return len(words) >= 8 and len(topic) >= 2 and words.isdisjoint(topic)


# --- making a worker


@reply.register
def make_worker(subject: Making) -> str:
    """A persona, and the tools whose words are those of the task."""
    task = shorten(without_returns(subject.instruction), 400)
    words = content_stems(task)
    tools = tools_of(WorkerCard("", "", skills=subject.skills))
    scores = {tool.name: len(words & tool_words(tool)) for tool in tools}
    ranked = sorted((name for name in scores if scores[name]), key=lambda name: -scores[name])
    persona = (
        f"A specialist for one task: {task.rstrip('. ')}. It works only from what it is given and what its tools "
        "return, names where each figure comes from, and says plainly what is missing."
    )
    return _encode(persona=persona, tools=ranked[:_MOST_TOOLS])
