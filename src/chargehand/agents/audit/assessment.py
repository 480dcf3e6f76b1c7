"""What can be counted about an answer: what it covers, what its figures rest on, where results contradict each other.

No model is asked, no grade is given and nothing is worked out again.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from chargehand.agents.audit.claims import (
    MAX_MATERIAL,
    day_of,
    describe,
    is_claiming,
    read_off_loop,
    size_of,
    summarize,
    trace_answer,
)
from chargehand.agents.audit.contradictions import find_contradictions
from chargehand.agents.inputs import last_tasks
from chargehand.agents.judge import describe_contradiction, describe_contradictions, settle
from chargehand.agents.writer import WriterCalls
from chargehand.engine.events import AnswerSection
from chargehand.engine.facts import AnswerAudit, Citation, SettledContradiction, Statement, Tracing
from chargehand.engine.failure import Gap
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId, in_order, needs
from chargehand.engine.state import RunState, Status
from chargehand.engine.view import gaps, missing_gaps, results
from chargehand.models.request_facts import Given
from chargehand.text.citations import cite, cited_tasks
from chargehand.text.words import listed

_MAX_LISTED = 8


class Coverage(Struct, frozen=True):
    """Which parts of the plan there are results of, which are missing, and which results the answer does not cite."""

    covered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    unplanned: int = 0
    """How many of the missing parts no task stands for; they are told in words."""

    @property
    def parts(self) -> int:
        return len(self.covered) + len(self.missing)

    @property
    def share(self) -> float:
        return len(self.covered) / self.parts if self.parts else 1.0


class Traced(Struct, frozen=True):
    """How many figures of an answer (numbers, days, addresses, quotations) rest on what.

    `tools`: a tool returned it, or it follows from what tools returned. `given`: it stands in the request, in a task
    or in memory. `words`: only a worker without a tool for it says so. `nowhere`: no tool returned it, though there
    are tools, or it stands in no result.
    """

    tools: int = 0
    given: int = 0
    words: int = 0
    nowhere: int = 0

    @property
    def total(self) -> int:
        return self.tools + self.given + self.words + self.nowhere

    @property
    def is_mixed(self) -> bool:
        """Some figures are not like others: they rest on nothing, or only some of them on words alone."""
        return bool(self.nowhere or (self.words and self.tools))


class Assessment(Struct, frozen=True):
    """What was counted about an answer, and what is doubtful in it."""

    coverage: Coverage
    traced: Traced = Traced()
    untraced: tuple[tuple[str, Statement], ...] = ()
    """The figures that no tool returned and no input gave, with the task that says so (none: the answer itself)."""
    claims: tuple[Statement, ...] = ()
    """The figures of an answer that was worded anew, one by one."""
    contradictions: tuple[SettledContradiction, ...] = ()

    @property
    def worth_saying(self) -> bool:
        """Whether there is more to say than that all was done."""
        is_partial = bool(self.coverage.covered and self.coverage.missing)
        return bool(self.traced.total or self.contradictions or is_partial)

    @property
    def line(self) -> str:
        """All of it in a few words."""
        coverage = self.coverage
        parts: list[str] = []
        origins = {
            "to tools": self.traced.tools,
            "to what was given": self.traced.given,
            "only to a worker's words": self.traced.words,
            "to nothing": self.traced.nowhere,
        }
        figures = [(count, origin) for origin, count in origins.items() if count]
        if figures:
            count, origin = figures[0]
            others = "".join(f", {count} {origin}" for count, origin in figures[1:])
            parts.append(f"{_plural(count, 'figure')} traced {origin}{others}")
        undecided = sum(not contradiction.winner for contradiction in self.contradictions)
        for count, what in ((len(self.contradictions) - undecided, "ruled on"), (undecided, "open")):
            if count:
                parts.append(f"{_plural(count, 'contradiction')} {what}")
        if coverage.missing or not parts:
            parts.append(f"{len(coverage.covered)} of {coverage.parts} parts covered")
        if coverage.unused:
            parts.append(f"not used: {', '.join(coverage.unused)}")
        if planned := coverage.missing[: len(coverage.missing) - coverage.unplanned]:
            parts.append(f"not covered: {listed(planned, _MAX_LISTED)}")
        return "; ".join(parts)

    def lines(self) -> list[str]:
        """In full: what was not traced, and every contradiction with its ruling."""
        lines = [f"checked: {self.line}"]
        for task, statement in self.untraced:
            lines.append(f"  not traced: {_describe_untraced(task, statement)}; said in: {statement.sentence}")
        lines += [f"  - {describe_contradiction(contradiction)}" for contradiction in self.contradictions]
        return lines

    def document(self) -> dict[str, object]:
        """As plain data, for programs."""
        coverage = self.coverage
        return {
            "traced": self.traced,
            "untraced": [{"task": task, **msgspec.to_builtins(statement)} for task, statement in self.untraced],
            "coverage": {
                "covered": coverage.covered,
                "missing": coverage.missing,
                "unused": coverage.unused,
                "share": coverage.share,
            },
            "claims": self.claims,
            "contradictions": [
                {
                    "about": settled.contradiction.about,
                    "values": dict(settled.contradiction.values),
                    "ruling": settled.ruling,
                }
                for settled in self.contradictions
            ],
        }


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def assess(state: RunState) -> Assessment:
    """What was counted about the answer of a run, or what there is where none was written."""
    missing = state.ended.gaps if state.ended is not None else gaps(state)
    # parts that workers left, below no task; a run that has not ended does not list them
    missing += tuple(gap for gap in missing_gaps(state) if not gap.task and gap not in missing)
    tracings = answer_tracings(state)
    audit = state.answer_audit or AnswerAudit()
    covered = [result.task for result in results(state) if result.value is not None]
    return Assessment(
        coverage=measure_coverage(covered, missing, audit.unused),
        traced=count_traced(tracings.values()),
        untraced=tuple((task, item) for task, tracing in tracings.items() for item in tracing.untraced),
        claims=audit.statements,
        contradictions=audit.contradictions,
    )


def count_traced(tracings: Iterable[Tracing]) -> Traced:
    """How many figures of some results rest on what."""
    counted = list(tracings)
    untraced = [statement for tracing in counted for statement in tracing.untraced]
    words = sum(statement.origin == "words" for statement in untraced)
    return Traced(
        tools=sum(tracing.tools for tracing in counted),
        given=sum(len(tracing.given) for tracing in counted),
        words=words,
        nowhere=len(untraced) - words,
    )


def answer_tracings(state: RunState) -> dict[str, Tracing]:
    """What the figures of the answer rest on: of a worded answer by '', else by task those that no other reads."""
    if state.answer_tracing is not None:
        return {"": state.answer_tracing}
    done = {name: progress for name, progress in state.tasks.items() if progress.status is Status.DONE}
    last = last_tasks(list(done), [progress.task for progress in done.values()])
    return {name: tracing for name in last if (tracing := done[TaskId(name)].tracing) is not None}


def cited_by_task(state: RunState) -> dict[str, tuple[Citation, ...]]:
    """What the providers of models cite for the results of a run, by the tasks that have citations."""
    tracings = {name: progress.tracing for name, progress in state.tasks.items() if progress.tracing is not None}
    return {name: tracing.citations for name, tracing in tracings.items() if tracing.citations}


def measure_coverage(covered: Sequence[str], gaps: Sequence[Gap], unused: Sequence[str] = ()) -> Coverage:
    """Which parts of the plan there are results of, and which are missing. The answer itself is no part of the plan."""
    open_gaps = [gap for gap in gaps if gap.status not in ("untraced", "unwritten")]
    # a task may have several gaps, such as two refused calls: it is one part
    tasks = dict.fromkeys(str(gap.task) for gap in open_gaps if gap.task)
    unplanned = [gap.message for gap in open_gaps if not gap.task]
    return Coverage(
        covered=tuple(covered),
        missing=(*tasks, *unplanned),
        unused=tuple(unused),
        unplanned=len(unplanned),
    )


# --- the report


_FEW_PARTS = 2  # or fewer: the gap itself says how much is missing
UNTRACED = "Not traced to a tool:"


class AnswerReport(Struct, frozen=True):
    """What is to stand below an answer, and what its figures rest on."""

    sections: list[AnswerSection]
    tracing: Tracing
    audit: AnswerAudit


async def settle_contradictions(
    calls: WriterCalls, brief: Brief, results: Sequence[Given]
) -> Sequence[SettledContradiction]:
    """Where the results contradict each other, and what a judge says of it, as far as the budget covers asking one."""
    if len(results) < 2:
        return ()
    behind = tasks_behind(brief.tasks)
    contradictions = await read_off_loop(size_of(results), find_contradictions, results, behind)
    if not contradictions:
        return ()
    settled = await settle(calls, brief.goal, contradictions, results)
    calls.context.note(describe_contradictions(settled))
    return settled


async def report_answer(
    answer: str,
    brief: Brief,
    results: Sequence[Given],
    known: Sequence[str],
    settled: Sequence[SettledContradiction],
) -> AnswerReport:
    """What is to stand below an answer that a model wrote. `known` are texts besides the results it may rest on."""
    statements: Sequence[Statement] = ()
    size = size_of(results)
    if is_claiming(answer):
        statements = await read_off_loop(
            len(answer) + size + sum(map(len, known)),
            trace_answer,
            answer,
            results,
            known,
            tasks_behind(brief.tasks),
            tracings=_tracings(brief),
            today=day_of(brief.began),
        )
    tracing = structs.replace(summarize(statements), unread=is_claiming(answer) and size > MAX_MATERIAL)
    untraced = [("", statement) for statement in tracing.untraced if not statement.origin]
    unused = _unused_results(answer, results, brief.tasks)
    coverage = measure_coverage([result.task for result in results], brief.gaps, unused)
    traced = count_traced([tracing])
    sections = [AnswerSection("contradictions", describe_contradictions(settled))] if settled else []
    sections += untraced_sections(untraced)
    if settled or traced.is_mixed or (coverage.missing and coverage.parts > _FEW_PARTS):
        line = Assessment(coverage, traced, contradictions=tuple(settled)).line
        sections.append(AnswerSection("counted", f"Checked: {line}."))
    return AnswerReport(sections, tracing, AnswerAudit(tuple(statements), tuple(settled), tuple(unused)))


def report_results(brief: Brief, results: Sequence[Given]) -> list[AnswerSection]:
    """What is to stand below results that are handed through as they are."""
    covered = [result.task for result in results]
    tracings = {task: tracing for task, tracing in _tracings(brief).items() if task in covered}
    untraced = [(task, item) for task, tracing in tracings.items() for item in tracing.untraced if not item.origin]
    sections = untraced_sections(untraced)
    traced = count_traced(tracings.values())
    if traced.is_mixed:
        line = Assessment(measure_coverage(covered, brief.gaps), traced).line
        sections.append(AnswerSection("counted", f"Checked: {line}."))
    return sections


def untraced_sections(untraced: Sequence[tuple[str, Statement]]) -> list[AnswerSection]:
    """The section with what no tool returned, each with the task whose result says it; or none."""
    if not untraced:
        return []
    lines = [f"- {_describe_untraced(task, statement)}" for task, statement in untraced]
    if len(lines) > _MAX_LISTED:
        lines[_MAX_LISTED:] = [f"- and {len(lines) - _MAX_LISTED} more"]
    return [AnswerSection("untraced", "\n".join([UNTRACED, *lines]))]


def _describe_untraced(task: str, statement: Statement) -> str:
    return f"{describe(statement)} {cite(task)}" if task else describe(statement)


def tasks_behind(tasks: Sequence[Task]) -> Mapping[str, Sequence[str]]:
    """Everything each task was made from, near and far."""
    behind: dict[str, tuple[str, ...]] = {}
    for task in in_order(tasks)[0]:
        near = [name for name, _ in needs(task)]
        behind[task.id] = tuple(dict.fromkeys(far for name in near for far in (name, *behind.get(name, ()))))
    return behind


def _tracings(brief: Brief) -> dict[str, Tracing]:
    return {source.task: source.tracing for source in brief.inputs if source.tracing is not None}


def _unused_results(answer: str, results: Sequence[Given], tasks: Sequence[Task]) -> list[str]:
    """The results that an answer does not cite, and that no other task reads; none where it cites nothing."""
    names = [result.task for result in results]
    cited = cited_tasks(answer, names)
    if not cited:
        return []
    return [name for name in last_tasks(names, tasks) if name not in cited]
