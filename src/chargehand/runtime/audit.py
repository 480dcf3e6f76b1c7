"""What went wrong among a crew, read off its journal by fixed rules: thirteen of the fourteen modes of MAST.

Pure, without a model, and linear in the journal. It decides nothing: what the engine can stop it has stopped by then.
The fourteenth, a check that is wrong, cannot be read off a journal; see `audit_mutants` and docs/failure-modes.md.
"""

from collections.abc import Callable, Iterator, Sequence

from chargehand.core.fold import replay
from chargehand.errors import Corrupt
from chargehand.runtime import audit_sense as sense
from chargehand.runtime import audit_work as work
from chargehand.runtime.audit_case import MODES, AuditFinding, Case, found
from chargehand.runtime.trace import trace
from chargehand.terms import events as ev
from chargehand.terms.plan import NO_TASK

__all__ = ["MODES", "AuditFinding", "audit"]

_DETECTORS: tuple[Callable[[Case], Iterator[AuditFinding]], ...] = (
    work.endings, work.planning, work.roles, work.histories, work.withheld, work.cut_short,
    sense.assumptions, sense.derailments, sense.ignored, sense.deeds, sense.promises, sense.unchecked,
)  # fmt: skip
_DIVERGED = "diverged from what was recorded"
_BROKEN = (Corrupt, LookupError, AssertionError, AttributeError, TypeError, ValueError)


def audit(run: str, entries: Sequence[ev.Entry]) -> tuple[AuditFinding, ...]:
    """Everything there is to say about these entries, by mode; of a run under way, what can be said by now.

    A journal with a hole, or one that cannot be folded, is itself the finding: then nothing else is guessed.
    """
    if broken := _broken(entries):
        return (broken,)
    try:
        case = Case(trace(run, entries), replay(entries))
    except _BROKEN as error:  # a journal that nobody should go on from: whatever does not fit stops the fold
        said = f"{type(error).__name__}: {error}"
        return (found("2.1", NO_TASK, "The entries do not follow from one another: nobody can go on from them.", said),)
    every = [*_started_over(entries), *(one for look in _DETECTORS for one in look(case))]
    once = dict.fromkeys(every)
    return tuple(sorted(once, key=lambda one: one.mode))


def _broken(entries: Sequence[ev.Entry]) -> AuditFinding | None:
    """2.1: entries that are not the whole of a run."""
    if not entries or not isinstance(entries[0].event, ev.RunRequested):
        return found("2.1", NO_TASK, "The run does not begin with its request: what was decided first is lost.")
    for number, entry in enumerate(entries, entries[0].seq):
        if entry.seq != number:
            words = "Entries are missing: what was decided there is lost, and nobody can go on from here."
            return found("2.1", NO_TASK, words, f"entry {entry.seq} stands where {number} belongs")
    if entries[0].seq != 1:
        return found("2.1", NO_TASK, "The first entries are missing.", f"the first is entry {entries[0].seq}")
    return None


def _started_over(entries: Sequence[ev.Entry]) -> Iterator[AuditFinding]:
    """2.1: work that was taken up again after a crash and did not go on where it was."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.Noted) and _DIVERGED in event.text:
            words = f"{event.task!r} was taken up again and did not go on as recorded."
            yield found("2.1", event.task, words, event.text)
