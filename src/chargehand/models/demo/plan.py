"""Plans: a task for each clause, given to the worker whose tools serve it, after the tasks it needs."""

import re

import msgspec
from msgspec import Struct, field

from chargehand.models.demo.products import chart_subject, text_form, writing_leftover
from chargehand.models.demo.request import (
    LONGEST,
    MENTIONS_MODEL,
    ORDERS,
    Clause,
    RefusedError,
    content_stems,
    has_negative_number,
    join_words,
    parse_request,
    shorten,
)
from chargehand.models.demo.tools import (
    NEGATIVE,
    card_score,
    card_words,
    choose_fit,
    only_remembers,
    serves_kind,
    tools_of,
)
from chargehand.models.demo.work import read_keeping
from chargehand.models.request_facts import Planning, WorkerCard

_MOST_OFFERED = 6
_NO_WORKER = "no worker on the team is meant for this"
_RETURNS = {
    "table": "Return the figures as a small table with the names they belong to.",
    "search": "Return the passages that say so, with their sources.",
    "archive": "Return the passages that say so, with their sources.",
    "draw": "Return the chart with a title that says what it shows.",
    "convert": "Return the converted amount and the rate that was used.",
    "write": "Return the text.",
}
_QUESTION = re.compile(r"(?:what|which|who|whom|whose|when|where|why|how)\b", re.IGNORECASE)
_CHART_KIND = re.compile(r"\b(?:bar|line|pie) ", re.IGNORECASE)
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
    def brings_data(self) -> bool:
        return self.kind not in {"draw", "write", "keep"}

    @property
    def subject(self) -> str:
        """What it is about, without the verb."""
        plain = _LEADING_VERB.sub("", self.text.rstrip("?. "))
        return plain if plain[:2].isupper() else plain[:1].lower() + plain[1:]

    @property
    def instruction(self) -> str:
        plain = self.text.rstrip("?.! ")
        sentence = plain[:1].upper() + plain[1:] + ("?" if _QUESTION.match(plain) else ".")
        return " ".join([sentence, *self.keeps, _RETURNS.get(self.kind, "Return what was found.")])


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
    parsed = parse_request(" ".join(subject.goal.split()))
    plan = DemoPlan(subject.workers, parsed.clauses)
    if subject.tasks:
        return plan
    for clause in parsed.clauses:
        plan.add_clause(clause)
    if parsed.is_too_long:
        plan.unserved.append(f"the request is longer than {LONGEST:,} characters. {MENTIONS_MODEL}")
    elif not parsed.clauses:
        cards = [f"{card.name}: {shorten(card.description, 120)}" for card in subject.workers if card.description]
        offer = f" You can ask {'; '.join(cards[:_MOST_OFFERED]).rstrip('.')}." if cards else ""
        plan.unserved.append(f"the request does not say what is wanted.{offer} {MENTIONS_MODEL}")
    for task in plan.tasks[subject.max_tasks :]:
        plan.unserved.append(f"{task.text}: more tasks than the {subject.max_tasks} that may be planned")
    del plan.tasks[subject.max_tasks :]
    return plan


class DemoPlan:
    """The tasks for a request, made clause by clause, and what no worker can serve of it."""

    def __init__(self, workers: tuple[WorkerCard, ...], clauses: tuple[Clause, ...]) -> None:
        self.staff = [(worker, tools_of(worker)) for worker in workers if worker.name]
        self.clauses = clauses
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
        if has_negative_number(clause.text):
            raise RefusedError(NEGATIVE)
        if self.last_failed and clause.points_back and clause.kind != "ask":
            raise RefusedError("what it speaks of is missing")
        plans = {"draw": self._draw, "convert": self._convert, "write": self._write, "keep": self._keep}
        plans.get(clause.kind, self._ask)(clause)

    def _add(self, text: str, worker: str, kind: str, after: list[str]) -> PlannedTask:
        task = PlannedTask(f"t{len(self.tasks) + 1}", text, worker, kind, after)
        self.tasks.append(task)
        return task

    def _last_data(self, purpose: str) -> PlannedTask:
        """The last task that brings something to work from."""
        for task in reversed(self.tasks):
            if task.brings_data:
                return task
        raise RefusedError(f"there is nothing to {purpose}")

    def _worker_of(self, kind: str, clause: Clause) -> WorkerCard:
        able = [worker for worker, tools in self.staff if serves_kind(worker, tools, kind)]
        if not able:
            raise RefusedError(f"no worker on the team can {kind}")
        return max(able, key=lambda worker: card_score(clause, worker))

    # --- kinds of clauses

    def _ask(self, clause: Clause) -> PlannedTask:
        if not clause.content:
            raise RefusedError("it does not say what is wanted")
        try:
            fit = choose_fit(clause, self.staff)
        except RefusedError as refusal:
            if clause.points_back:
                reason = "it speaks of an earlier result, which can only be drawn, converted, written up or kept"
                raise RefusedError(reason) from refusal
            return self._add(clause.text, self._choose_by_card(clause, refusal), "call", [])
        return self._add(clause.text, fit.worker.name, fit.tool.kind, [])

    def _choose_by_card(self, clause: Clause, refusal: RefusedError) -> str:
        """A worker without tools of its own, such as a team or one that asks others, gets what its card speaks of."""
        if refusal.is_known:
            raise refusal
        bare = [
            worker for worker, tools in self.staff if only_remembers(tools) and not serves_kind(worker, [], "write")
        ]
        scores = {worker.name: card_score(clause, worker) for worker in bare}
        best = [name for name in scores if scores[name] == max(scores.values()) > 0]
        if len(best) == 1:
            return best[0]
        if refusal.understood > 1 and clause.opening not in ORDERS:
            raise RefusedError(f"{_NO_WORKER}: {refusal.reason}")
        raise RefusedError(_NO_WORKER)

    def _draw(self, clause: Clause) -> PlannedTask:
        worker = self._worker_of("draw", clause)
        subject = "" if clause.points_back else chart_subject(clause)
        target = self._data_about(subject) if subject else self._last_data("draw")
        kind = _CHART_KIND.search(clause.text)
        text = f"Draw a {kind[0].lower() if kind else ''}chart of the {subject or target.subject}"
        return self._add(f"{text} (the result of {target.id})", worker.name, "draw", [target.id])

    def _data_about(self, subject: str) -> PlannedTask:
        """The task that brings what a chart is of; it is added where there is none."""
        words = content_stems(subject)
        for task in reversed(self.tasks):
            if task.brings_data and words <= content_stems(task.text):
                return task
        clauses = parse_request(subject).clauses
        if len(clauses) != 1:
            raise RefusedError("what is to be drawn is not clear")
        return self._ask(clauses[0])

    def _convert(self, clause: Clause) -> PlannedTask:
        worker = self._worker_of("convert", clause)
        if not clause.points_back:
            return self._add(clause.text, worker.name, "convert", [])
        target = self._last_data("convert")
        if clause.wants_total and _GROUP.search(target.text):
            what = _GROUP.sub("", target.subject, count=1).removeprefix("total ")
            target = self._ask(parse_request(f"Report the total {what}").clauses[0])
        text = _POINTER.sub(f"the {target.subject} (the result of {target.id})", clause.text, count=1)
        return self._add(text, worker.name, "convert", [target.id])

    def _write(self, clause: Clause) -> PlannedTask:
        worker = self._worker_of("write", clause)
        if not text_form(clause):
            raise RefusedError("only memos, letters, reports and other texts made of facts can be put together")
        accounted = {token.stem for other in self.clauses if other is not clause for token in other.tokens}
        if leftover := writing_leftover(clause, accounted | card_words(worker)):
            raise RefusedError(f"nothing in the request is about {join_words([repr(word) for word in leftover])}")
        sources = [task.id for task in self.tasks if task.kind not in {"draw", "write"}]
        if not sources:
            raise RefusedError("there is nothing to write about")
        text = f"{clause.text.rstrip('?. ')} (the results of {join_words(sources)})"
        return self._add(text, worker.name, "write", sources)

    def _keep(self, clause: Clause) -> PlannedTask:
        """The worker that finds it keeps it, if it may, else another."""
        keeping = read_keeping(clause)
        able = [worker.name for worker, tools in self.staff if any(tool.name == keeping.tool for tool in tools)]
        if not able:
            raise RefusedError(f"no worker may add to {keeping.place}")
        target = next((task for task in reversed(self.tasks) if task.kind not in {"draw", "keep"}), None)
        if target is None:
            raise RefusedError("there is nothing to keep")
        if target.worker in able:
            target.keeps.append(keeping.sentence())
            return target
        text = keeping.sentence(f"what was found (the result of {target.id})")
        return self._add(text, able[0], "keep", [target.id])
