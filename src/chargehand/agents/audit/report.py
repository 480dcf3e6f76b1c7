"""What is said below an answer: contradictions with their rulings, figures that no tool returned, and what was counted.

Only what can be counted is said; no grade is given, and nothing is taken out of an answer.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from chargehand.agents.judge import describe_contradictions, settle
from chargehand.agents.writer import WriterCalls
from chargehand.engine.events import AnswerSection
from chargehand.engine.facts import AnswerAudit, SettledContradiction, Statement, Tracing
from chargehand.engine.failure import Gap
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, in_order, needs
from chargehand.engine.state import RunState, Status
from chargehand.models.request_facts import Given
from chargehand.text.names import listed
from chargehand.text.words import WORD

_MAX_SHOWN = 8
_MAX_NOTED = 5
_FEW_PARTS = 2  # or fewer: the gap itself says how much is missing
UNTRACED = "Not traced to a tool:"


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
    done = [progress for progress in state.tasks.values() if progress.status is Status.DONE]
    read = {name for progress in done for name, _ in needs(progress.task)}
    last = [progress for progress in done if progress.task.id not in read] or done
    return {progress.task.id: progress.tracing for progress in last if progress.tracing is not None}


def measure_coverage(covered: Sequence[str], gaps: Sequence[Gap], unused: Sequence[str] = ()) -> Coverage:
    """Which parts of the plan there are results of, and which are missing. The answer itself is no part of the plan."""
    parts = (gap for gap in gaps if gap.status not in ("untraced", "unwritten"))
    open_gaps = sorted(parts, key=lambda gap: not gap.task)
    return Coverage(
        covered=tuple(covered),
        missing=tuple(gap.task or gap.message for gap in open_gaps),
        unused=tuple(unused),
        unplanned=sum(not gap.task for gap in open_gaps),
    )


def _unused_results(answer: str, results: Sequence[Given], tasks: Sequence[Task]) -> list[str]:
    """The results that an answer does not cite, and that no other task reads; none where it cites nothing."""
    names = [result.task for result in results]
    words = set(WORD.findall(answer))
    cited = {name for name in names if name in words or (not name.isalnum() and _is_named(name, answer))}
    if not cited:
        return []
    read = {name for task in tasks if task.id in names for name, _ in needs(task)}
    return [name for name in names if name not in cited and name not in read]


def _is_named(task: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(task)}(?!\w)", answer) is not None


def counted_section(coverage: Coverage, traced: Traced, settled: Sequence[SettledContradiction] = ()) -> AnswerSection:
    """All that was counted, in a line to be read below the answer."""
    return AnswerSection("counted", f"Counted: {describe_counts(coverage, traced, settled)}.")


def describe_counts(coverage: Coverage, traced: Traced, settled: Sequence[SettledContradiction]) -> str:
    """All that was counted about an answer, in a few words."""
    origins = (
        (traced.tools, "to tools"),
        (traced.given, "to what was given"),
        (traced.words, "only to a worker's words"),
        (traced.nowhere, "to nothing"),
    )
    figures = [f"{count} {origin}" for count, origin in origins if count]
    parts: list[str] = []
    if figures:
        count, origin = figures[0].split(" ", 1)
        parts.append(", ".join([f"{count} figure{'s'[: count != '1']} traced {origin}", *figures[1:]]))
    undecided = sum(not contradiction.winner for contradiction in settled)
    for count, what in ((len(settled) - undecided, "ruled on"), (undecided, "open")):
        if count:
            parts.append(f"{count} contradiction{'s'[: count != 1]} {what}")
    if coverage.missing or not parts:
        parts.append(f"{len(coverage.covered)} of {coverage.parts} parts covered")
    if coverage.unused:
        parts.append(f"not used: {', '.join(coverage.unused)}")
    if planned := coverage.missing[: len(coverage.missing) - coverage.unplanned]:
        parts.append(f"not covered: {listed(planned, _MAX_SHOWN)}")
    return "; ".join(parts)


def untraced_section(untraced: Sequence[tuple[str, Statement]]) -> str:
    """What no tool returned, to be read below the answer; what a result says, with its task."""
    lines = [f"- {describe(statement)}{f' [{task}]' if task else ''}" for task, statement in untraced]
    more = [f"- and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    return "\n".join([UNTRACED, *lines[:_MAX_SHOWN], *more])


class Report(Struct, frozen=True):
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
    size = size_of(results)
    found = await read_off_loop(size, find_contradictions, results)
    if found:  # most results contradict nobody, so what they were made from need not be known
        found = await read_off_loop(size, find_contradictions, results, tasks_behind(brief.tasks))
    if not found:
        return ()
    settled = await settle(calls, brief.goal, found, results)
    calls.context.note(describe_contradictions(settled))
    return settled


async def report_answer(
    answer: str,
    brief: Brief,
    results: Sequence[Given],
    known: Sequence[str],
    settled: Sequence[SettledContradiction],
    note: Callable[[str], None],
) -> Report:
    """What is to stand below an answer that a model wrote. `known` are texts besides the results it may rest on."""
    tracings = {given.task: given.tracing for given in brief.inputs if given.tracing is not None}
    statements: Sequence[Statement] = ()
    is_unread = False
    if is_claiming(answer):
        is_unread = size_of(results) > MAX_MATERIAL
        statements = await read_off_loop(
            len(answer) + size_of(results) + sum(map(len, known)),
            trace_answer,
            answer,
            results,
            known,
            tasks_behind(brief.tasks),
            tracings=tracings,
            today=day_of(brief.began),
        )
    tracing = structs.replace(summarize(statements), unread=is_unread)
    untraced = [statement for statement in tracing.untraced if not statement.origin]
    for statement in untraced[:_MAX_NOTED]:
        note(f"not traced to a tool: {describe(statement)}; it is said in: {statement.sentence}")
    unused = _unused_results(answer, results, brief.tasks)
    coverage = measure_coverage([result.task for result in results], brief.gaps, unused)
    if unused:
        note(f"the answer does not cite {', '.join(unused)}")
    sections: list[AnswerSection] = []
    if settled:
        sections.append(AnswerSection("contradictions", describe_contradictions(settled)))
    if untraced:
        sections.append(AnswerSection("untraced", untraced_section([("", statement) for statement in untraced])))
    traced = count_traced([tracing])
    if settled or traced.is_mixed or (coverage.missing and coverage.parts > _FEW_PARTS):
        sections.append(counted_section(coverage, traced, settled))
        note(sections[-1].text)
    audit = AnswerAudit(tuple(statements), tuple(settled), tuple(unused))
    return Report(sections, tracing, audit)


def report_results(brief: Brief, results: Sequence[Given]) -> list[AnswerSection]:
    """What is to stand below results that are handed through as they are."""
    shown = {result.task for result in results}
    tracings = {
        given.task: given.tracing for given in brief.inputs if given.tracing is not None and given.task in shown
    }
    untraced = [(task, item) for task, tracing in tracings.items() for item in tracing.untraced if not item.origin]
    sections = [AnswerSection("untraced", untraced_section(untraced))] if untraced else []
    traced = count_traced(tracings.values())
    if traced.is_mixed:
        covered = [result.task for result in results]
        sections.append(counted_section(measure_coverage(covered, brief.gaps), traced))
    return sections


def tasks_behind(tasks: Sequence[Task]) -> Mapping[str, Sequence[str]]:
    """Everything each task was made from, near and far."""
    behind: dict[str, tuple[str, ...]] = {}
    for task in in_order(tasks)[0]:
        near = [name for name, _ in needs(task)]
        behind[task.id] = tuple(dict.fromkeys(far for name in near for far in (name, *behind.get(name, ()))))
    return behind
