"""What can be counted about an answer, read off its run: what it covers, what it rests on, where results contradict.

No model is asked: what a judge ruled is read in the notes of the run, everything else is worked out again.
"""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.agents.audit.claims import day_of, describe, is_claiming, trace_answer
from chargehand.agents.audit.contradictions import Contradiction, find_contradictions
from chargehand.agents.audit.report import (
    COUNTED,
    Coverage,
    Traced,
    answer_tracings,
    count_traced,
    counted_line,
    measure_coverage,
    tasks_behind,
)
from chargehand.agents.judge import Ruling, Settled, describe_contradictions
from chargehand.agents.partial_results import inner_gaps
from chargehand.core.fold import replay
from chargehand.core.state import RunState
from chargehand.core.view import gaps, results
from chargehand.models.subject import Given
from chargehand.terms import events as ev
from chargehand.terms.plan import Task
from chargehand.terms.tracing import Statement
from chargehand.terms.value import decode_value

_ADDED = re.compile(
    r"\n\n(?:Not answered:\n- |Not all of the results were read: |The results contradict each other:\n- "
    r"|Not traced to a tool:\n- |Counted: )"
)
_BLOCK = re.compile(r"<data ([0-9a-f]+) from \"block [^\"\n]*\">\n(.*?)\n</data \1>", re.DOTALL)
_AS_IN = re.compile(r"\(as in entry (\d+)\)")
_RULED = re.compile(r"\. Ruled for .*? \[(?P<winner>[^\]]+)\](?:: (?P<why>.*?))?\.?$")
_OPEN = re.compile(r"\. This is open: (?P<why>.*?)\.?$")
_NO_RULING = "there is no ruling"


class Assessment(Struct, frozen=True):
    """What was counted about an answer, and what is doubtful in it.

    `traced` counts what its figures rest on; `untraced` are those that no tool returned and nobody gave, with the task
    that says so (none: the answer itself). `claims` are the figures of an answer that was worded anew, one by one.
    """

    coverage: Coverage
    traced: Traced = Traced()
    untraced: tuple[tuple[str, Statement], ...] = ()
    claims: tuple[Statement, ...] = ()
    contradictions: tuple[Settled, ...] = ()

    @property
    def worth_saying(self) -> bool:
        """Whether there is more to say than that all was done."""
        found = self.coverage
        return bool(self.traced.total or self.contradictions or (found.covered and found.missing))

    @property
    def line(self) -> str:
        """All of it in a few words."""
        line = counted_line(self.coverage, self.traced, self.contradictions)
        return line.removeprefix(COUNTED).removesuffix(".")

    def lines(self) -> list[str]:
        """In full: what was not traced, and every contradiction with its ruling."""
        wrong = [f"not traced: {describe(one)}{_where(task)}; said in: {one.sentence}" for task, one in self.untraced]
        opposed = describe_contradictions(self.contradictions).splitlines()[1:] if self.contradictions else []
        return [f"checked: {self.line}", *(f"  {one}" for one in (*wrong, *opposed))]

    def document(self) -> dict[str, object]:
        """As plain data, for programs."""
        found = self.coverage
        opposed = [
            {"about": one.contradiction.about, "values": dict(one.contradiction.values), "ruling": one.ruling}
            for one in self.contradictions
        ]
        whole = {"covered": found.covered, "missing": found.missing, "unused": found.unused, "share": found.share}
        untraced = [{"task": task, **msgspec.to_builtins(one)} for task, one in self.untraced]
        return {
            "traced": self.traced,
            "untraced": untraced,
            "coverage": whole,
            "claims": self.claims,
            "contradictions": opposed,
        }


def _where(task: str) -> str:
    return f" [{task}]" if task else ""


def assess(entries: Sequence[ev.Entry]) -> Assessment:
    """How the answer of a run stands to its results, or what there is where none was written."""
    state = replay(entries)
    tasks = [one.task for one in state.tasks.values() if one.mother is None]
    given = _given(state)
    ended = state.ended.gaps if state.ended is not None else gaps(state)
    missing = tuple(gap for gap in ended if not gap.run)
    # parts that workers left, below no task; a run that has not ended does not list them
    missing += tuple(gap for gap in inner_gaps(state) if not gap.task and gap not in missing)
    tracings = answer_tracings(state)
    traced = count_traced(tracings.values())
    untraced = tuple((task, item) for task, one in tracings.items() for item in one.untraced)
    answer = decode_value(state.answer) if state.answer is not None else None
    if not isinstance(answer, str) or state.combine not in ("merge", "reduce"):
        # handed through, chosen, or made by a function: nothing in it was worded anew
        return Assessment(measure_coverage("", given, tasks, missing), traced, untraced)
    written = _ADDED.split(answer, maxsplit=1)[0]
    links = tasks_behind(tasks)
    known = [state.requested.goal, *(gap.message for gap in missing if gap.status != "untraced"), *_known(entries)]
    words = {one.task: one.tracing.untraced for one in results(state) if one.tracing is not None}
    today = day_of(entries[-1].at)
    claims = (
        trace_answer(answer=written, results=given, known=known, behind=links, words=words, today=today)
        if is_claiming(written)
        else ()
    )
    opposed = find_contradictions(given, links) if len(given) > 1 else ()
    settled = _settled(opposed, entries)
    return Assessment(
        coverage=measure_coverage(written, given, tasks, missing),
        traced=traced,
        untraced=untraced,
        claims=claims,
        contradictions=settled,
    )


def _given(state: RunState) -> list[Given]:
    tasks: dict[str, Task] = {one.task.id: one.task for one in state.tasks.values() if one.mother is None}
    found: list[Given] = []
    for one in results(state):
        if one.value is not None:
            task = tasks.get(one.task)
            said, worker = (task.instruction, task.worker) if task is not None else ("", "")
            found.append(Given(task=one.task, instruction=said, worker=worker, value=decode_value(one.value)))
    return found


def _known(entries: Sequence[ev.Entry]) -> list[str]:
    """What else whoever wrote the answer was told: the team's instructions, and what it shares."""
    for entry in reversed(entries):
        if isinstance(entry.event, ev.PromptSent) and entry.event.duty == "answer":
            system, *texts = _texts(entry.event)
            if earlier := _AS_IN.fullmatch(system):
                system = next((_texts(one.event)[0] for one in entries if one.seq == int(earlier[1])), "")
            return [system, *(match[2] for text in texts for match in _BLOCK.finditer(text))]
    return []


def _texts(event: ev.Event) -> list[str]:
    found = decode_value(event.messages) if isinstance(event, ev.PromptSent) else None
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [str(cast("dict[str, object]", one).get("text", "")) for one in listed if isinstance(one, dict)] or [""]


def _settled(found: Sequence[Contradiction], entries: Sequence[ev.Entry]) -> tuple[Settled, ...]:
    """Every contradiction with the ruling that the run noted on it, if there is one."""
    if not found:
        return ()
    noted = [one.event.text for one in entries if isinstance(one.event, ev.Noted)]
    lines = [line for text in noted if text.startswith("The results contradict") for line in text.splitlines()]
    return tuple(Settled(one, _ruling(one, lines)) for one in found)


def _ruling(found: Contradiction, lines: Sequence[str]) -> Ruling | None:
    head = describe_contradictions([Settled(found, None)]).splitlines()[1].partition(". This is open: ")[0]
    line = next((one for one in reversed(lines) if one.startswith(head)), "")
    if ruled := _RULED.match(line[len(head) :]):
        return Ruling(ruled["winner"], ruled["why"] or "")
    held = _OPEN.match(line[len(head) :])
    return Ruling("", held["why"]) if held is not None and held["why"] != _NO_RULING else None
