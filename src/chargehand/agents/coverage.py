"""What was counted about an answer: which parts it covers, and what its figures rest on. Pure.

Whether the results themselves are right is not known here, and no grade is given: only what can be counted is.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from chargehand.agents.claims import Claim
from chargehand.agents.claims import told as claim_text
from chargehand.agents.judging import Settled
from chargehand.core.state import RunState, Status
from chargehand.models.subject import Given
from chargehand.terms.failure import Gap
from chargehand.terms.plan import Task, needs
from chargehand.terms.tracing import Tracing, Untraced
from chargehand.text.words import WORD

_FEW = 2  # parts or fewer: the gap itself says how much is missing
_SHOWN = 8
UNTRACED = "Not traced to a tool:"
COUNTED = "Counted: "


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

    def parts(self) -> list[str]:
        """In words, what there is of each."""
        counts = (
            (self.tools, "to tools"),
            (self.given, "to what was given"),
            (self.words, "only to a worker's words"),
            (self.nowhere, "to nothing"),
        )
        said = [(count, what) for count, what in counts if count]
        if not said:
            return []
        first, where = said[0]
        figures = "figure" if first == 1 else "figures"
        return [", ".join([f"{first} {figures} traced {where}", *(f"{count} {what}" for count, what in said[1:])])]


def count_traced(tracings: Iterable[Tracing | None]) -> Traced:
    """What some results rest on, counted."""
    known = [one for one in tracings if one is not None]
    untraced = [item for one in known for item in one.untraced]
    words = sum(item.origin == "words" for item in untraced)
    return Traced(
        tools=sum(one.tools for one in known),
        given=sum(one.given for one in known),
        words=words,
        nowhere=len(untraced) - words,
    )


def answer_tracings(state: RunState) -> dict[str, Tracing]:
    """What the figures of the answer rest on, by task: those that nobody else works from; of a worded answer, by ''."""
    if state.answer_tracing is not None:
        return {"": state.answer_tracing}
    done = [one for one in state.tasks.values() if one.status is Status.DONE]
    read = {name for one in done for name, _ in needs(one.task)}
    last = [one for one in done if one.task.id not in read] or done
    return {one.task.id: one.tracing for one in last if one.tracing is not None}


def coverage(answer: str, results: Sequence[Given], tasks: Sequence[Task], gaps: Sequence[Gap]) -> Coverage:
    """How an answer stands to the plan it is made from."""
    covered = tuple(one.task for one in results if one.value is not None)
    open_gaps = [gap for gap in gaps if gap.status != "untraced"]
    missing = tuple(gap.task or gap.message for gap in sorted(open_gaps, key=lambda gap: not gap.task))
    unplanned = sum(not gap.task for gap in open_gaps)
    done = set(covered)
    said = set(WORD.findall(answer))
    cited = {one for one in covered if one in said or (not one.isalnum() and _cited(one, answer))}
    read = {name for task in tasks if task.id in done for name, _ in needs(task)} if cited else done
    unused = tuple(one for one in covered if one not in read and one not in cited)
    return Coverage(covered=covered, missing=missing, unused=unused, unplanned=unplanned)


def trace_claims(claims: Sequence[Claim], results: Sequence[Tracing | None]) -> Tracing:
    """What the figures of a worded answer rest on. What a worker with tools made up is nowhere, whoever repeats it."""
    invented = {item.text for one in results if one is not None for item in one.untraced if not item.origin}
    untraced = [
        Untraced(
            kind=one.kind,
            text=one.text[:160],
            origin="words" if one.origin == "words" and one.text not in invented else "",
            conflict=one.conflict,
            sentence=one.sentence[:160],
        )
        for one in claims
        if not one.supported
    ]
    tools = sum(one.origin == "tool" for one in claims)
    return Tracing(tools, sum(one.origin == "input" for one in claims), tuple(dict.fromkeys(untraced)))


def counted_line(found: Coverage, traced: Traced, settled: Sequence[Settled] = ()) -> str:
    """All that was counted, in a line to be read below the answer."""
    said = traced.parts()
    undecided = sum(one.ruling is None or not one.ruling.winner for one in settled)
    if ruled := len(settled) - undecided:
        said.append(f"{ruled} contradiction{'s'[: ruled != 1]} ruled on")
    if undecided:
        said.append(f"{undecided} contradiction{'s'[: undecided != 1]} open")
    if found.missing or not said:
        said.append(f"{len(found.covered)} of {found.parts} parts covered")
    if found.unused:
        said.append(f"not used: {', '.join(found.unused)}")
    if named := found.missing[: min(_SHOWN, len(found.missing) - found.unplanned)]:
        said.append(f"not covered: {', '.join(named)}")
    return f"{COUNTED}{'; '.join(said)}."


def worth_counting(found: Coverage, traced: Traced) -> bool:
    """Whether what was counted belongs below the answer: something is missing, or some figures are not like others."""
    mixed = bool(traced.words and traced.tools)
    return bool(traced.nowhere) or mixed or (bool(found.missing) and found.parts > _FEW)


def untraced_section(claims: Sequence[Claim], untraced: Sequence[tuple[str, Untraced]] = ()) -> str:
    """What no tool returned, to be read below the answer; what a result says is told with its task."""
    lines = [f"- {claim_text(one)}" for one in claims]
    for task, one in untraced:
        lines.append(f"- {claim_text(Claim(one.kind, one.text, '', conflict=one.conflict))} [{task}]")
    more = [f"- and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([UNTRACED, *lines[:_SHOWN], *more])


def _cited(task: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(task)}(?!\w)", answer) is not None
