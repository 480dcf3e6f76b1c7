"""Plans: a task for each clause, given to the worker whose tools serve it, after the tasks it needs."""

import re

import msgspec
from msgspec import Struct, field

from chargehand.models.demo.arithmetic import read_arithmetic
from chargehand.models.demo.fitting import NEGATIVE, Fit, NoFit, card_score, fit_clause, is_order, serves_kind
from chargehand.models.demo.memory import asks_archive, read_keeping
from chargehand.models.demo.passages import asks_for_text
from chargehand.models.demo.products import chart_subject, text_form, writing_leftover
from chargehand.models.demo.request import LONGEST, Clause, parse_request
from chargehand.models.demo.tools import tools_of
from chargehand.models.demo.words import MENTIONS_MODEL, content_stems, has_negative_number, join_words, shorten
from chargehand.models.subject import Planned, Planning, WorkerCard

_MOST_OFFERED = 6
_NOBODY = "nobody on the team is meant for this"
_RETURNS = {
    "table": "Return the figures as a small table with the names they belong to.",
    "search": "Return the passages that say so, with their sources.",
    "memory": "Return the passages that say so, with their sources.",
    "draw": "Return the chart with a title that says what it shows.",
    "convert": "Return the converted amount and the rate that was used.",
    "write": "Return the text.",
}
_QUESTION = re.compile(r"(?:what|which|who|whom|whose|when|where|why|how)\b", re.IGNORECASE)
_CHARTS = frozenset({"bar", "line", "pie"})
_GROUP = re.compile(r"\s+(?:per|by|for each|for every|of each|in each|of every)\s+(?:the\s+)?\w+", re.IGNORECASE)
_LEADING_VERB = re.compile(
    r"\A(?:compare|show|list|report|give|tell|find(?: out)?|what (?:is|was|are|were)|how (?:much|many))\s+(?:me\s+)?",
    re.IGNORECASE,
)
_BLOCK = re.compile(r'from "block (?P<label>[\w-]+)|^\[(?P<trusted>[\w-]+): ', re.MULTILINE)


class Draft(Struct):
    """A task in the making."""

    id: str
    text: str
    worker: str
    clause: Clause
    kind: str
    after: list[str] = field(default_factory=list[str])
    keeps: list[str] = field(default_factory=list[str])

    def instruction(self) -> str:
        parts = [_sentence(self.text), *self.keeps, _RETURNS.get(self.kind, "Return what was found.")]
        return " ".join(parts)


class PlannedTask(Struct, omit_defaults=True):
    """A task as the plan's JSON has it."""

    instruction: str
    worker: str
    after: list[str] = field(default_factory=list[str])
    optional: list[str] = field(default_factory=list[str])
    replaces: str = ""


class PlanReply(Struct):
    """A plan as JSON."""

    goal: str
    tasks: dict[str, PlannedTask]
    combine: str = "merge"
    assumptions: list[str] = field(default_factory=list[str])
    unserved: list[str] = field(default_factory=list[str])


def make_plan(subject: Planning, blocks: frozenset[str] = frozenset()) -> PlanReply:
    """The plan for a request, or what else to do where a plan has failed in part."""
    if subject.tasks:
        return _replan(subject)
    goal = " ".join(subject.goal.split())
    parsed = parse_request(goal)
    reply = PlanReply(goal[:2_000], {})
    if parsed.is_too_long:
        reply.unserved.append(f"the request is longer than {LONGEST:,} characters. {MENTIONS_MODEL}")
        return reply
    planner = _Planner(subject.workers, parsed.clauses, blocks)
    for clause in parsed.clauses:
        planner.plan(clause)
    if not parsed.clauses:
        cards = [f"{card.name}: {shorten(card.description, 120)}" for card in planner.workers if card.description]
        offer = f" You can ask {'; '.join(cards[:_MOST_OFFERED]).rstrip('.')}." if cards else ""
        planner.unserved.append(f"the request does not say what is wanted.{offer} {MENTIONS_MODEL}")
    over = planner.drafts[subject.most_tasks :]
    for draft in over:
        planner.unserved.append(f"{draft.text}: more tasks than the {subject.most_tasks} that may be planned")
    kept = planner.drafts[: subject.most_tasks]
    reply.tasks = {draft.id: PlannedTask(draft.instruction(), draft.worker, draft.after) for draft in kept}
    reply.unserved = planner.unserved
    reply.combine = "forward" if len(reply.tasks) == 1 and not reply.unserved else "merge"
    return reply


class _Planner:
    """Turns clauses into tasks, one after the other."""

    def __init__(self, workers: tuple[WorkerCard, ...], clauses: tuple[Clause, ...], blocks: frozenset[str]) -> None:
        self.workers = [worker for worker in workers if worker.name]
        self.tools = {worker.name: tools_of(worker) for worker in workers}
        self.clauses = clauses
        self.blocks = blocks
        self.drafts: list[Draft] = []
        self.unserved: list[str] = []
        self.last_failed = False

    def plan(self, clause: Clause) -> None:
        """Add the tasks for one clause, or say why there are none."""
        if self.last_failed and clause.points_back and clause.kind != "ask":
            problem = "what it speaks of is missing"
        elif has_negative_number(clause.text):
            problem = NEGATIVE
        elif clause.kind == "draw":
            problem = self._draw(clause)
        elif clause.kind == "convert":
            problem = self._convert(clause)
        elif clause.kind == "write":
            problem = self._write(clause)
        elif clause.kind == "keep":
            problem = self._keep(clause)
        else:
            problem = self._ask(clause)
        if problem:
            self.unserved.append(f"{clause.text.rstrip('?. ')}: {problem}. {MENTIONS_MODEL}")
        if clause.kind in {"ask", "convert"}:
            self.last_failed = bool(problem)

    def _add(self, text: str, worker: str, clause: Clause, kind: str, after: list[str]) -> Draft:
        draft = Draft(
            id=f"t{len(self.drafts) + 1}",
            text=text,
            worker=worker,
            clause=clause,
            kind=kind,
            after=list(dict.fromkeys(after)),
        )
        self.drafts.append(draft)
        return draft

    def _last_data(self) -> Draft | None:
        """The last task that brings something to work from."""
        data = [draft for draft in self.drafts if draft.kind not in {"draw", "write", "keep"}]
        return data[-1] if data else None

    # --- kinds of clauses

    def _ask(self, clause: Clause) -> str:
        if not clause.content:
            return "it does not say what is wanted"
        if clause.points_back:
            return self._ask_about_earlier(clause)
        choice = self._choose(clause)
        if isinstance(choice, str):
            return choice
        worker, kind = choice
        self._add(clause.text, worker, clause, kind, [])
        return ""

    def _ask_about_earlier(self, clause: Clause) -> str:
        """A question about an earlier result: only arithmetic can be done with one."""
        target = self._last_data()
        worker = next((name for name, tools in self.tools.items() if any(tool.kind == "compute" for tool in tools)), "")
        if target is None or not worker or read_arithmetic(clause) is None:
            choice = self._choose_alone(clause)
            if choice is None:
                return "what it points back to cannot be worked with"
            self._add(clause.text, choice[0], clause, choice[1], [])
            return ""
        same = next(
            (
                card.name
                for card in self.workers
                if card.name == target.worker and any(tool.kind == "compute" for tool in self.tools[card.name])
            ),
            "",
        )
        text = f"{clause.text.rstrip('?. ')} (the result of {target.id})"
        self._add(text, same or worker, clause, "compute", [target.id])
        return ""

    def _choose_alone(self, clause: Clause) -> tuple[str, str] | None:
        """A tool that takes the pointing words as its own ("the same day"), with nothing left over."""
        fits = [
            (fit.score, worker.name, fit.tool.kind)
            for worker in self.workers
            if isinstance(fit := fit_clause(clause, worker, self.tools[worker.name]), Fit) and fit.tool.kind == "call"
        ]
        return (max(fits)[1], max(fits)[2]) if fits else None

    def _choose(self, clause: Clause) -> tuple[str, str] | str:
        """The worker for a clause and the kind of tool it will use, or why there is none."""
        fits: list[tuple[float, float, WorkerCard, Fit]] = []
        failures: list[NoFit] = []
        for worker in self.workers:
            outcome = fit_clause(clause, worker, self.tools[worker.name])
            if isinstance(outcome, Fit):
                fits.append((outcome.score, card_score(clause, worker), worker, outcome))
            else:
                failures.append(outcome)
        if block := self._block(clause):
            return block
        if asks_for_text(clause) and not asks_archive(clause):
            texts = [held for held in fits if held[3].tool.kind == "search"]
            fits = texts or fits
        certain = [held for held in fits if held[3].is_certain]
        known = [failure for failure in failures if failure.is_known]
        if known and not certain:
            return known[0].reason
        if not fits:
            return self._without_tools(clause) or self._why_not(clause, failures)
        ranked = sorted(certain or fits, key=lambda held: (-held[0], -held[1]))
        best = ranked[0]
        equal = [held for held in ranked[1:] if held[:2] == best[:2] and held[3].tool.name != best[3].tool.name]
        if equal and certain and best[3].tool.kind != "search":
            return f"{best[2].name} or {equal[0][2].name} could be meant; say which"
        return best[2].name, best[3].tool.kind

    def _without_tools(self, clause: Clause) -> tuple[str, str] | None:
        """A worker that shows no tools, such as a team of its own, gets what its card speaks of."""
        bare = [worker for worker in self.workers if not worker.skills and not serves_kind(worker, [], "write")]
        scored = sorted(((card_score(clause, worker), worker.name) for worker in bare), reverse=True)
        if not scored or not scored[0][0] or (len(scored) > 1 and scored[0][0] == scored[1][0]):
            return None
        return scored[0][1], "call"

    def _block(self, clause: Clause) -> tuple[str, str] | None:
        """A question for a block of memory goes to a worker that sees it; all do."""
        words = {token.stem for token in clause.tokens}
        named = [label for label in self.blocks if set(content_stems(label)) <= words]
        readers = [
            worker.name
            for worker in self.workers
            if not any(tool.kind == "message" for tool in self.tools[worker.name])
        ]
        if not named or not readers or not asks_for_text(clause):
            return None
        return readers[0], "search"

    def _why_not(self, clause: Clause, failures: list[NoFit]) -> str:
        first = clause.tokens[0].text.lower() if clause.tokens else ""
        worded = [failure for failure in failures if failure.understood > 1]
        if worded and not is_order(first):
            best = max(worded, key=lambda failure: failure.understood)
            return f"{_NOBODY}: {best.reason}"
        return _NOBODY

    def _draw(self, clause: Clause) -> str:
        worker = self._worker_of("draw", clause)
        if not worker:
            return "nobody on the team draws"
        subject = chart_subject(clause)
        target = self._last_data()
        if subject and not clause.points_back:
            own = parse_request(subject).clauses
            data = _matching(self.drafts, subject)
            if data is None and len(own) == 1:
                problem = self._ask(own[0])
                if problem:
                    return problem
                data = self.drafts[-1]
            target = data
        if target is None:
            return "there is nothing to draw"
        what = subject if subject and not clause.points_back else _object_of(target.text)
        kind = next((f"{token.text.lower()} " for token in clause.tokens if token.text.lower() in _CHARTS), "")
        self._add(f"Draw a {kind}chart of the {what} (the result of {target.id})", worker, clause, "draw", [target.id])
        return ""

    def _convert(self, clause: Clause) -> str:
        worker = self._worker_of("convert", clause)
        if not worker:
            return "nobody on the team converts it"
        if not clause.points_back:
            self._add(clause.text, worker, clause, "convert", [])
            return ""
        target = self._last_data()
        if target is None:
            return "there is nothing to convert"
        if clause.wants_total and _GROUP.search(target.text):
            problem = self._ask(parse_request(f"Report the total {_without_group(target.text)}").clauses[0])
            if problem:
                return problem
            target = self.drafts[-1]
        text = re.sub(
            r"\b(?:it|them|that|this|these|the (?:total|sum|result|amount)s?)\b",
            f"the {_object_of(target.text)} (the result of {target.id})",
            clause.text,
            count=1,
            flags=re.IGNORECASE,
        )
        self._add(text, worker, clause, "convert", [target.id])
        return ""

    def _write(self, clause: Clause) -> str:
        worker = self._worker_of("write", clause)
        if not worker:
            return "nobody on the team writes"
        if not text_form(clause):
            return "only memos, letters, reports and other texts made of facts can be put together"
        card = next(held for held in self.workers if held.name == worker)
        known = {token.stem for other in self.clauses if other is not clause for token in other.tokens}
        known |= set(content_stems(f"{card.description} {' '.join(card.tags)}"))
        if leftover := writing_leftover(clause, known):
            return f"nothing in the request is about {join_words([repr(word) for word in leftover])}"
        sources = [draft.id for draft in self.drafts if draft.kind not in {"draw", "write"}]
        if not sources:
            return "there is nothing to write about"
        listed = join_words(sources)
        text = f"{clause.text.rstrip('?. ')} (the results of {listed})"
        self._add(text[:1].upper() + text[1:], worker, clause, "write", sources)
        return ""

    def _keep(self, clause: Clause) -> str:
        keeping = read_keeping(clause)
        if keeping is None:
            return "what is to be kept, or where, is not clear"
        able = [name for name, tools in self.tools.items() if any(tool.name == keeping.tool for tool in tools)]
        if not able:
            return f"nobody may add to {'the block ' + keeping.block if keeping.block else 'an archive'}"
        if keeping.text:
            self._add(clause.text, able[0], clause, "keep", [])
            return ""
        target = next((draft for draft in reversed(self.drafts) if draft.kind not in {"draw", "keep"}), None)
        if target is None:
            return "there is nothing to keep"
        if target.worker in able:
            target.keeps.append(keeping.sentence())
            return ""
        sentence = keeping.sentence().replace("what you find", f"what was found (the result of {target.id})")
        self._add(sentence, able[0], clause, "keep", [target.id])
        return ""

    def _worker_of(self, kind: str, clause: Clause) -> str:
        able = [worker for worker in self.workers if serves_kind(worker, self.tools[worker.name], kind)]
        return max(able, key=lambda worker: card_score(clause, worker)).name if able else ""


def _matching(drafts: list[Draft], subject: str) -> Draft | None:
    """The task that brings what a chart is of."""
    words = set(content_stems(subject))
    for draft in reversed(drafts):
        if draft.kind not in {"draw", "write", "keep"} and words <= set(content_stems(draft.text)):
            return draft
    return None


def _sentence(text: str) -> str:
    plain = text.strip().rstrip("?.! ")
    mark = "?" if _QUESTION.match(plain) else "."
    return plain[:1].upper() + plain[1:] + mark if plain else ""


def _object_of(text: str) -> str:
    plain = _LEADING_VERB.sub("", text.strip().rstrip("?. "))
    plain = re.sub(r"\A(?:the|a|an)\s+", "", plain, flags=re.IGNORECASE)
    return plain[:1].lower() + plain[1:] if not plain[:2].isupper() else plain


def _without_group(text: str) -> str:
    return re.sub(r"\Atotal\s+", "", _GROUP.sub("", _object_of(text), count=1))


# --- when a plan has failed in part


def _replan(subject: Planning) -> PlanReply:
    """Only another worker that serves a failed task as certainly; nobody is asked the same twice."""
    reply = PlanReply(" ".join(subject.goal.split())[:2_000], {})
    lost = {str(gap.task) for gap in subject.gaps}
    number = len(subject.tasks)
    for task in subject.tasks:
        if task.id not in lost:
            continue
        worker = _another_worker(task, subject)
        if worker and len(subject.tasks) + len(reply.tasks) < subject.most_tasks:
            number += 1
            after = [name for name in task.after if name not in lost]
            reply.tasks[f"t{number}"] = PlannedTask(task.instruction, worker, after, replaces=task.id)
    return reply


def _another_worker(task: Planned, subject: Planning) -> str:
    tried = {
        other.worker
        for other in subject.tasks
        if without_returns(other.instruction) == without_returns(task.instruction)
    }
    clauses = [clause for clause in parse_request(task.instruction).clauses if clause.kind == "ask"]
    if len(clauses) != 1 or clauses[0].points_back:
        return ""
    for worker in subject.workers:
        if worker.name in tried:
            continue
        fit = fit_clause(clauses[0], worker, tools_of(worker))
        if isinstance(fit, Fit) and (fit.is_certain or fit.tool.kind == "search"):
            return worker.name
    return ""


def without_returns(instruction: str) -> str:
    """A task without the sentence that says what to return."""
    text = instruction.strip()
    at = text.rfind("Return ")
    is_last = at > 0 and text.endswith(".") and "." not in text[at:-1]
    return text[:at].rstrip() if is_last else text


def plan_json(reply: PlanReply) -> str:
    return msgspec.json.encode(reply).decode()


def block_labels(text: str) -> frozenset[str]:
    """Labels of the blocks of memory that a prompt shows."""
    labels = (match["label"] or match["trusted"] for match in _BLOCK.finditer(text))
    return frozenset(label for label in labels if content_stems(label))
