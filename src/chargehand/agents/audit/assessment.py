"""What can be counted about an answer: what it covers, what its figures rest on, where results contradict each other.

No model is asked, no grade is given and nothing is worked out again.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from chargehand.agents.audit.claims import describe
from chargehand.agents.judge import describe_contradiction
from chargehand.engine.facts import AnswerAudit, SettledContradiction, Statement, Tracing
from chargehand.engine.failure import Gap
from chargehand.engine.plan import needs
from chargehand.engine.state import RunState, Status
from chargehand.engine.view import gaps, missing_gaps, results
from chargehand.text.names import listed

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
            origin = f" [{task}]" if task else ""
            lines.append(f"  not traced: {describe(statement)}{origin}; said in: {statement.sentence}")
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
