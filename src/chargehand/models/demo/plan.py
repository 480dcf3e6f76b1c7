"""Plans: a task for each clause, given to the worker whose tools serve it, after the tasks it needs."""

import re

import msgspec
from msgspec import Struct, field

from chargehand.models.demo.products import check_words
from chargehand.models.demo.request import MENTIONS_MODEL, ORDERS, QUESTION_WORDS, Clause, RefusedError, parse_request
from chargehand.models.demo.tools import card_score, choose_fit, only_remembers, rate_tool, tools_of
from chargehand.models.demo.work import read_keeping
from chargehand.models.request_facts import Planning, WorkerCard

_NO_WORKER = "no worker on the team is meant for this"
_RETURNS = {
    "table": "Return the figures as a small table with the names they belong to.",
    "search": "Return the passages that say so, with their sources.",
    "archive": "Return the passages that say so, with their sources.",
    "draw": "Return the chart with a title that says what it shows.",
    "convert": "Return the converted amount and the rate that was used.",
}
_POINTER = re.compile(r"\b(?:it|them|that|this|these|the (?:total|sum|result|amount)s?)\b", re.IGNORECASE)
_GROUP = re.compile(r"\s+(?:per|by|for each|for every|of each|in each|of every)\s+(?:the\s+)?\w+", re.IGNORECASE)
_LEADING_VERB = re.compile(
    r"\A(?:(?:compare|show|list|report|give|tell|find(?: out)?|what (?:is|was|are|were)|how (?:much|many))\s+)?"
    r"(?:me\s+)?(?:(?:the|a|an)\s+)?",
    re.IGNORECASE,
)


class PlannedTask(Struct):
    """A task of a plan: `kind` is what it does, or the kind of the tool that will serve it."""

    id: str
    text: str
    worker: str
    kind: str
    after: list[str]
    keeps: list[str] = field(default_factory=list[str])

    @property
    def subject(self) -> str:
        """What it is about, without the verb."""
        plain = _LEADING_VERB.sub("", self.text.rstrip("?. "))
        return plain if plain[:2].isupper() else plain[:1].lower() + plain[1:]

    @property
    def sentence(self) -> str:
        plain = self.text.rstrip("?.! ")
        sentence = plain[:1].upper() + plain[1:] + ("?" if plain.split()[0].lower() in QUESTION_WORDS else ".")
        return " ".join([sentence, *self.keeps])

    @property
    def instruction(self) -> str:
        return f"{self.sentence} {_RETURNS.get(self.kind, 'Return what was found.')}"


def write_plan(subject: Planning) -> str:
    """The plan in JSON."""
    plan = make_plan(subject)
    tasks = {
        task.id: {"instruction": task.instruction, "worker": task.worker, "after": task.after} for task in plan.tasks
    }
    combine = "forward" if len(tasks) == 1 and not plan.unserved else "merge"
    reply = {"goal": subject.goal[:2_000], "tasks": tasks, "combine": combine, "unserved": plan.unserved}
    return msgspec.json.encode(reply).decode()


def make_plan(subject: Planning) -> "DemoPlan":
    """The plan for a request. Where one has failed in part there is nothing else to try."""
    plan = DemoPlan(subject.workers)
    if subject.tasks:
        return plan
    try:
        clauses = parse_request(" ".join(subject.goal.split())).clauses
    except RefusedError as refusal:
        plan.unserved.append(f"{refusal.reason}. {MENTIONS_MODEL}")
        return plan
    if not clauses:
        offers = "; ".join(f"{worker.name}: {worker.description.rstrip('.')}" for worker in subject.workers)
        plan.unserved.append(f"the request does not say what is wanted. You can ask {offers}. {MENTIONS_MODEL}")
    for clause in clauses:
        plan.add_clause(clause)
    for task in plan.tasks[subject.max_tasks :]:
        plan.unserved.append(f"{task.text}: more tasks than the {subject.max_tasks} that may be planned")
    del plan.tasks[subject.max_tasks :]
    return plan


class DemoPlan:
    """The tasks for a request, made clause by clause, and what no worker can serve of it."""

    def __init__(self, workers: tuple[WorkerCard, ...]) -> None:
        self.staff = [(worker, tools_of(worker)) for worker in workers if worker.name]
        self.tasks: list[PlannedTask] = []
        self.unserved: list[str] = []
        self.last_failed = False

    def add_clause(self, clause: Clause) -> None:
        """Add the tasks for one clause, or say why there are none."""
        failed = False
        try:
            self._plan_kind(clause)
        except RefusedError as refusal:
            failed = True
            self.unserved.append(f"{clause.text.rstrip('?. ')}: {refusal.reason}. {MENTIONS_MODEL}")
        if clause.kind in {"ask", "convert"}:
            self.last_failed = failed

    def _plan_kind(self, clause: Clause) -> None:
        if self.last_failed and clause.points_back and clause.kind != "ask":
            raise RefusedError("what it speaks of is missing")
        plans = {"draw": self._draw, "convert": self._convert, "keep": self._keep}
        plans.get(clause.kind, self._ask)(clause)

    def _add(self, text: str, worker: str, kind: str, after: list[str]) -> PlannedTask:
        task = PlannedTask(f"t{len(self.tasks) + 1}", text, worker, kind, after)
        self.tasks.append(task)
        return task

    def _last_data(self, purpose: str) -> PlannedTask:
        """The last task that brings something to work from."""
        for task in reversed(self.tasks):
            if task.kind not in {"draw", "keep"}:
                return task
        raise RefusedError(f"there is nothing to {purpose}")

    def _worker_of(self, clause: Clause) -> str:
        """The worker that draws or converts."""
        able = [worker for worker, tools in self.staff if rate_tool(tools) is not None]
        if clause.kind == "draw":
            able = [worker for worker, tools in self.staff if any(tool.kind == "chart" for tool in tools)]
        if not able:
            raise RefusedError(f"no worker on the team can {clause.kind}")
        return max(able, key=lambda worker: card_score(clause, worker)).name

    # --- kinds of clauses

    def _ask(self, clause: Clause) -> PlannedTask:
        if not clause.content:
            raise RefusedError("it does not say what is wanted")
        try:
            fit = choose_fit(clause, self.staff)
        except RefusedError as refusal:
            if clause.points_back:
                reason = "it speaks of an earlier result, which can only be drawn, converted or kept"
                raise RefusedError(reason) from refusal
            return self._add(clause.text, self._choose_by_card(clause, refusal), "call", [])
        return self._add(clause.text, fit.worker.name, fit.tool.kind, [])

    def _choose_by_card(self, clause: Clause, refusal: RefusedError) -> str:
        """A worker without tools of its own, such as a team or one that asks others, gets what its card speaks of."""
        scores = {worker.name: card_score(clause, worker) for worker, tools in self.staff if only_remembers(tools)}
        best = [name for name in scores if scores[name] == max(scores.values()) > 0]
        if len(best) == 1 and refusal.understood < len(clause.content):
            return best[0]
        is_known = refusal.understood > 1 or refusal.understood >= len(clause.content)
        if is_known and clause.opening not in ORDERS:
            raise RefusedError(refusal.reason)
        raise RefusedError(_NO_WORKER)

    def _draw(self, clause: Clause) -> PlannedTask:
        worker = self._worker_of(clause)
        target = self._last_data("draw")
        check_words(clause, target.text)
        return self._add(_point_to(target, clause.text.rstrip("?. ")), worker, "draw", [target.id])

    def _convert(self, clause: Clause) -> PlannedTask:
        worker = self._worker_of(clause)
        target = self._last_data("convert")
        if clause.wants_total and _GROUP.search(target.text):
            what = _GROUP.sub("", target.subject, count=1).removeprefix("total ")
            target = self._ask(parse_request(f"Report the total {what}").clauses[0])
        check_words(clause, target.text)
        return self._add(_point_to(target, clause.text), worker, "convert", [target.id])

    def _keep(self, clause: Clause) -> PlannedTask:
        """The worker that finds it keeps it, if it may, else another."""
        keeping = read_keeping(clause)
        able = [worker.name for worker, tools in self.staff if any(tool.name == keeping.tool for tool in tools)]
        if not able:
            raise RefusedError(f"no worker may add to {keeping.place}")
        target = self._last_data("keep")
        text = _POINTER.sub("what you find", clause.text.rstrip(". "), count=1)
        sentence = text[:1].upper() + text[1:]
        if target.worker in able:
            target.keeps.append(f"{sentence}.")
            return target
        return self._add(f"{sentence} (the result of {target.id})", able[0], "keep", [target.id])


def _point_to(target: PlannedTask, text: str) -> str:
    """The text with what it points to in the place of "it" or "the total"."""
    result = f"(the result of {target.id})"
    if not _POINTER.search(text):
        return f"{text} {result}"
    return _POINTER.sub(lambda _: f"the {target.subject} {result}", text, count=1)
