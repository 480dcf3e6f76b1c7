"""The sections below an answer: contradictions with their rulings, figures that no tool returned, what was counted.

Nothing is taken out of an answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from chargehand.agents.audit.assessment import Assessment, count_traced, measure_coverage
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
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, in_order, needs
from chargehand.models.request_facts import Given

_MAX_LISTED = 8
_MAX_NOTED = 5
_FEW_PARTS = 2  # or fewer: the gap itself says how much is missing
_NAME = re.compile(r"\w(?:[\w./:-]*\w)?")
UNTRACED = "Not traced to a tool:"


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
    note: Callable[[str], None],
) -> Report:
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
    for _, statement in untraced[:_MAX_NOTED]:
        note(f"not traced to a tool: {describe(statement)}; it is said in: {statement.sentence}")
    unused = _unused_results(answer, results, brief.tasks)
    if unused:
        note(f"the answer does not cite {', '.join(unused)}")
    coverage = measure_coverage([result.task for result in results], brief.gaps, unused)
    traced = count_traced([tracing])
    sections = [AnswerSection("contradictions", describe_contradictions(settled))] if settled else []
    sections += untraced_sections(untraced)
    if settled or traced.is_mixed or (coverage.missing and coverage.parts > _FEW_PARTS):
        line = Assessment(coverage, traced, contradictions=tuple(settled)).line
        sections.append(AnswerSection("counted", f"Counted: {line}."))
        note(sections[-1].text)
    return Report(sections, tracing, AnswerAudit(tuple(statements), tuple(settled), tuple(unused)))


def report_results(brief: Brief, results: Sequence[Given]) -> list[AnswerSection]:
    """What is to stand below results that are handed through as they are."""
    covered = [result.task for result in results]
    tracings = {task: tracing for task, tracing in _tracings(brief).items() if task in covered}
    untraced = [(task, item) for task, tracing in tracings.items() for item in tracing.untraced if not item.origin]
    sections = untraced_sections(untraced)
    traced = count_traced(tracings.values())
    if traced.is_mixed:
        line = Assessment(measure_coverage(covered, brief.gaps), traced).line
        sections.append(AnswerSection("counted", f"Counted: {line}."))
    return sections


def untraced_sections(untraced: Sequence[tuple[str, Statement]]) -> list[AnswerSection]:
    """The section with what no tool returned, each with the task whose result says it; or none."""
    if not untraced:
        return []
    lines = [f"- {describe(statement)}{f' [{task}]' if task else ''}" for task, statement in untraced]
    if len(lines) > _MAX_LISTED:
        lines[_MAX_LISTED:] = [f"- and {len(lines) - _MAX_LISTED} more"]
    return [AnswerSection("untraced", "\n".join([UNTRACED, *lines]))]


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
    cited = set(_NAME.findall(answer)).intersection(names)
    if not cited:
        return []
    read = {name for task in tasks if task.id in names for name, _ in needs(task)}
    return [name for name in names if name not in cited and name not in read]
