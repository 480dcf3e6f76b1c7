"""The other roles a model is asked for: router, next speaker, ledger, splitter, refiner, judge, reviewer, maker."""

import re
from decimal import Decimal

import msgspec

from chargehand.models.demo.dates import find_periods
from chargehand.models.demo.fitting import Fit, card_score, choose_fit
from chargehand.models.demo.plan import PlannedTask, PlanReply, make_plan, without_returns
from chargehand.models.demo.request import Clause, parse_request
from chargehand.models.demo.results import read_product
from chargehand.models.demo.tools import read_skill, tool_words, tools_of
from chargehand.models.demo.words import content_stems, shorten
from chargehand.models.exhibits import Figure, Passages, Table
from chargehand.models.subject import (
    Given,
    Judging,
    Ledger,
    Making,
    Planned,
    Planning,
    Refining,
    Reviewing,
    Routing,
    Speaking,
    Splitting,
    WorkerCard,
)

_MOST_TASKS = 50
_MOST_TOOLS = 4
_SENTENCE_WORDS = 8
_OFFERED = re.compile(
    r"(?:nearest|closest)[^:;.?\n]{0,60}?(?::| is\b)\s*(?P<near>[^;,\n]{1,60})|"
    r"did you mean\s+(?P<meant>[^?;\n]{1,60})\?",
    re.IGNORECASE,
)
_REFUSED_VALUE = re.compile(
    r"(?:no rate for|no such|unknown(?: \w+)?|there is no(?: \w+)?|not found:?)\s+"
    r"['\"`]?(?P<value>[\w .&-]{1,60}?)['\"`]?(?=[\s(;:,.]|\Z)",
    re.IGNORECASE,
)
_NEAREST_DAY = re.compile(r" The day [\d-]{10} is the nearest there is to (?P<asked>[\d-]{10}): say so\.")
_PLAIN_VALUE = re.compile(r"[\w][\w .&/+'-]{0,59}")
_TASK_ID = re.compile(r"\bt\d+\b")
_NO_RESULT = re.compile(
    r"^\W*(?:(?:i am |i'm )?(?:sorry|afraid)\b|as an? (?:ai|language model)\b|i (?:cannot|can't|could not|am unable)\b|"
    r"(?:n/?a|tbd|todo|unknown|none|null)\W*$)",
    re.IGNORECASE,
)
_UNFILLED = re.compile(
    r"\{\{\s*\w[\w .-]{0,40}\}\}|\[(?:insert|your|tbd|todo)\b[^\]\n]{0,60}\]|\blorem ipsum\b", re.IGNORECASE
)


def encode(**fields: object) -> str:
    """A reply in JSON."""
    return msgspec.json.encode(fields).decode()


# --- who does it


def _scores(goal: str, workers: tuple[WorkerCard, ...]) -> dict[str, float]:
    """How well each worker serves the clauses of a request."""
    parsed = parse_request(goal[:4_000])
    clauses = [clause for clause in parsed.clauses if clause.kind != "keep"]
    scores: dict[str, float] = {}
    for worker in workers:
        tools = tools_of(worker)
        total = 0.0
        for clause in clauses:
            fit = choose_fit(clause, [(worker, tools)])
            words = card_score(clause, worker)
            if isinstance(fit, Fit) and (words or (fit.is_certain and fit.tool.kind != "search")):
                total += fit.score + words
            elif words > 1:
                total += words / 2
        if total:
            scores[worker.name] = total
    return scores


def route(subject: Routing) -> str:
    """The worker whose tools and card fit best; nobody where none does."""
    scores = sorted(_scores(subject.goal, subject.workers).items(), key=lambda held: -held[1])
    if not scores:
        return encode(
            reason="nobody's tools or description fit the request", primary=None, secondary=None, confidence=0.0
        )
    first, best = scores[0]
    second = scores[1] if len(scores) > 1 else None
    margin = 1.0 if second is None else (best - second[1]) / best
    return encode(
        reason=f"the tools and the description of {first} fit best",
        primary=first,
        secondary=second[0] if second else None,
        confidence=round(0.5 + 0.5 * margin, 2),
    )


def choose_speaker(subject: Speaking) -> str:
    """Whoever fits the request and has not spoken."""
    spoken = {given.worker for given in subject.said} | {subject.last}
    scores = _scores(subject.goal, subject.workers)
    open_names = sorted((name for name in scores if name not in spoken), key=lambda name: -scores[name])
    if open_names:
        return encode(next=open_names[0], why="fits the request and has not spoken yet")
    why = "everybody who fits the request has spoken" if subject.said else "nobody fits the request"
    return encode(next=None, why=why)


# --- one task at a time, and splitting


def keep_ledger(subject: Ledger) -> str:
    """The plan for the request, handed out one task at a time."""
    wanted = make_plan(Planning(subject.goal, subject.workers, _MOST_TASKS))
    names = _names_in_run(wanted.tasks, subject.tasks)
    delivered = {given.task for given in subject.results if given.value is not None}
    for name, task in wanted.tasks.items():
        if name not in names and all(names.get(needed) in delivered for needed in task.after):
            instruction = _TASK_ID.sub(lambda match: names.get(match[0], match[0]), task.instruction)
            why = f"{len(delivered)} of {len(wanted.tasks)} tasks are done."
            return encode(done=False, looping=False, progress=True, next=task.worker, instruction=instruction, why=why)
    left = len(wanted.tasks) - sum(name in delivered for name in names.values())
    why = "All tasks are done." if not left else f"{left} of {len(wanted.tasks)} tasks cannot be done."
    return encode(done=True, looping=False, progress=True, why=why, unserved=wanted.unserved)


def _names_in_run(tasks: dict[str, PlannedTask], held: tuple[Planned, ...]) -> dict[str, str]:
    """What the tasks of a plan are called in the run."""
    names: dict[str, str] = {}
    for name, task in tasks.items():
        text = _TASK_ID.sub(lambda match: names.get(match[0], match[0]), task.instruction)
        match = next((other.id for other in held if other.id not in names.values() and other.instruction == text), None)
        if match is not None:
            names[name] = match
    return names


def split(subject: Splitting) -> str:
    """Simple, or the tasks of its plan as parts; more clauses than there may be parts go in groups."""
    if without_returns(subject.instruction) != subject.instruction.strip():
        return encode(simple=True, why="It is one task of a plan.")
    whole = make_plan(Planning(subject.instruction, subject.workers, _MOST_TASKS))
    why = f"The plan for it has {len(whole.tasks)} tasks."
    if len(whole.tasks) < 2:
        worker = next((task.worker for task in whole.tasks.values()), None)
        fields: dict[str, object] = {"why": why, "simple": True, "unserved": whole.unserved}
        return encode(**fields, worker=worker) if worker else encode(**fields)
    if len(whole.tasks) > subject.most > 1:
        return _split_in_groups(subject, whole, why)
    places = {name: number for number, name in enumerate(whole.tasks, 1)}
    subtasks = [
        {"instruction": task.instruction, "worker": task.worker, "after": [places[name] for name in task.after]}
        for task in whole.tasks.values()
    ]
    return encode(why=why, simple=False, unserved=whole.unserved, subtasks=subtasks)


def _split_in_groups(subject: Splitting, whole: PlanReply, why: str) -> str:
    groups: list[list[Clause]] = []
    for clause in parse_request(subject.instruction).clauses:
        if groups and (clause.points_back or clause.kind != "ask"):
            groups[-1].append(clause)
        else:
            groups.append([clause])
    while len(groups) > subject.most:
        at = min(range(len(groups) - 1), key=lambda place: len(groups[place]) + len(groups[place + 1]))
        groups[at : at + 2] = [[*groups[at], *groups[at + 1]]]
    parts: list[dict[str, object]] = []
    for group in groups:
        text = " ".join(f"{clause.text.rstrip('?. ')}." for clause in group)
        text = " ".join(sentence[:1].upper() + sentence[1:] for sentence in re.split(r"(?<=\.) ", text))
        tasks = list(make_plan(Planning(text, subject.workers, _MOST_TASKS)).tasks.values())
        if tasks:
            alone = tasks[0].instruction if len(tasks) == 1 else text
            parts.append({"instruction": alone, "worker": tasks[0].worker, "after": []})
    return encode(
        why=f"{why} What belongs together is one part.", simple=False, unserved=whole.unserved, subtasks=parts
    )


# --- rewriting what failed


def refine(subject: Refining) -> str:
    """The task with the day or name that the error offers; only short values are taken from an error."""
    failure = subject.failure[:4_000]
    offered = _OFFERED.search(failure)
    value = (offered["near"] or offered["meant"] or "").strip(" '\"`.") if offered else ""
    if not value or not _PLAIN_VALUE.fullmatch(value):
        return subject.instruction
    days = [period for period in find_periods(value) if period.is_day]
    if days:
        return _with_day(subject.instruction, days[0].first.isoformat())
    refused = _REFUSED_VALUE.search(failure)
    wrong = refused["value"].strip() if refused else ""
    if wrong and len(value.split()) <= 4 and re.search(rf"(?<!\w){re.escape(wrong)}(?!\w)", subject.instruction):
        return re.sub(rf"(?<!\w){re.escape(wrong)}(?!\w)", lambda _: value, subject.instruction, count=1)
    return subject.instruction


def _with_day(instruction: str, day: str) -> str:
    plain = without_returns(instruction)
    returns = instruction[len(plain) :].strip()
    earlier = _NEAREST_DAY.search(plain)
    plain = _NEAREST_DAY.sub("", plain)
    own = [period for period in find_periods(plain) if period.is_day and period.year]
    if len(own) != 1 or own[0].first.isoformat() == day:
        return instruction
    old = own[0]
    text = plain[: old.start] + day + plain[old.end :]
    asked = earlier["asked"] if earlier else old.first.isoformat()
    remark = f"The day {day} is the nearest there is to {asked}: say so."
    return " ".join(part for part in (text, remark, returns) if part)


# --- judging


def judge(subject: Judging) -> str:
    """The result with more behind it, or that says more of what was asked; open where that is equal."""
    if not subject.results:
        return encode(why="There is nothing to judge.", winner=None)
    if subject.manner == "contradiction":
        return _judge_evidence(subject.results)
    wanted = set(content_stems(subject.goal))
    scored = [(len(wanted & set(content_stems(_text(given)))), given) for given in subject.results]
    best = max(score for score, _ in scored)
    winner = next(given for score, given in scored if score == best)
    why = f"It speaks to {best} of the {len(wanted)} words that were asked about."
    if subject.manner == "select":
        return encode(why=why, winner=winner.task)
    groups: dict[str, list[Given]] = {}
    for given in subject.results:
        groups.setdefault(" ".join(_text(given).casefold().split()), []).append(given)
    largest = max(groups.values(), key=len)
    return encode(
        why=f"{len(largest)} of {len(scored)} say the same.",
        agree=[given.task for given in largest],
        winner=largest[0].task,
    )


def _text(given: Given) -> str:
    product = read_product(given.value)
    return (product.text or msgspec.json.encode(given.value).decode())[:20_000]


def _judge_evidence(results: tuple[Given, ...]) -> str:
    weights = [(_weight(given), given) for given in results]
    best = max(weight for weight, _ in weights)
    leaders = [given for weight, given in weights if weight == best]
    if len(leaders) > 1:
        why = "The results have the same behind them, so which of them holds cannot be told."
        return encode(why=why, ruling="open", winner=None)
    shown = {3: "how it was worked out", 2: "the table it was read from"}.get(best, "the source it comes from")
    return encode(why=f"It shows {shown}.", ruling=f"[{leaders[0].task}] holds", winner=leaders[0].task)


def _weight(given: Given) -> int:
    product = read_product(given.value)
    weight = int(bool(product.sources))
    for exhibit in product.exhibits:
        if isinstance(exhibit, Figure) and exhibit.expression:
            weight = max(weight, 3)
        elif isinstance(exhibit, Table):
            weight = max(weight, 2)
        elif isinstance(exhibit, Passages | Figure):
            weight = max(weight, 1)
    return weight


def review(subject: Reviewing) -> str:
    """Problems that can be seen: nothing there, a refusal, half a sentence, an open slot, a figure from nowhere."""
    text = subject.text.strip()
    if not re.search(r"[^\W_]", text) or subject.result in (None, [], {}):
        return encode(problems=["The result is empty."], accepted=False)
    if _NO_RESULT.match(text) and len(text.split()) < 60:
        return encode(problems=["It does not do the task but says that it cannot."], accepted=False)
    problems = [
        f"This stands in no input and in no result of a tool: {doubt}."
        for doubt in subject.doubts
        if not _is_sum(doubt, text)
    ]
    if _is_cut_off(text):
        problems.append("It ends in the middle of a sentence.")
    if unfilled := _UNFILLED.search(text):
        problems.append(f"A slot was left unfilled: {unfilled[0]}.")
    if _is_elsewhere(subject, text):
        problems.append("It does not speak of what was asked.")
    return encode(problems=problems[:8], accepted=not problems)


def _is_cut_off(text: str) -> bool:
    """Whether the last line ends with a comma, or is a long one that ends with a letter; lists and headings may."""
    line = text.splitlines()[-1]
    if line.startswith(("#", "-", "*", "|", " ", "\t")):
        return False
    return line.endswith((",", ";")) or (line[-1].isalpha() and len(line.split()) >= _SENTENCE_WORDS)


def _is_sum(doubt: str, text: str) -> bool:
    """Whether a number is what all others of the result come to."""
    numbers = [Decimal(held.replace(",", "")) for held in re.findall(r"\d[\d,]*(?:\.\d+)?", text[:20_000])]
    if not re.fullmatch(r"\d[\d,]*(?:\.\d+)?", doubt) or len(numbers) < 3:
        return False
    return 2 * Decimal(doubt.replace(",", "")) == sum(numbers, Decimal(0))


def _is_elsewhere(subject: Reviewing, text: str) -> bool:
    words = set(content_stems(text[:20_000]))
    asked = set(content_stems(subject.instruction))
    if len(words) < 8 or len(asked) < 2:
        return False
    known = asked.union(
        *(content_stems(msgspec.json.encode(given.value).decode()[:20_000]) for given in subject.material)
    )
    return words.isdisjoint(known)


# --- making a worker


def make_worker(subject: Making) -> str:
    """A persona, and the tools whose words are those of the task."""
    task = shorten(without_returns(subject.instruction), 400)
    words = set(content_stems(task))
    scored = [(len(words & tool_words(read_skill(skill))), skill.name) for skill in subject.skills]
    best = max((score for score, _ in scored), default=0)
    tools = [name for score, name in sorted(scored, key=lambda held: -held[0]) if best and score * 2 > best][
        :_MOST_TOOLS
    ]
    has = f"Its tools are {', '.join(tools)}" if tools else "It has no tools"
    persona = (
        f"A specialist for one task: {task.rstrip('. ')}. {has}. It works only from what it is given and what its "
        "tools return, names where each figure comes from, and says plainly what is missing."
    )
    return encode(persona=persona, tools=tools)
