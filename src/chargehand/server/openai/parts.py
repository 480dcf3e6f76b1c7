"""The parts of a run that responses tell: each up to a question that a person must answer, or to the end of the run.

A response that is over never changes, so what comes after an answer is another response of the same run. Its id has the
number of the question that was answered. A response in the background tells the whole run and waits for its end.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.fold import replay
from chargehand.server.run_control import RecordedRun

RESPONSE_PREFIX = "resp_"
_SEPARATOR = "~"


class ResponseId(Struct, frozen=True):
    """Which part of which run a response tells."""

    run: str
    answered: int = 0
    """The question whose answer the part begins with; 0: it begins with the run."""

    @property
    def name(self) -> str:
        """Return what the ids of the response and of its items end with."""
        return f"{self.run}{_SEPARATOR}{self.answered}" if self.answered else self.run

    @property
    def text(self) -> str:
        """Return the id that clients know."""
        return RESPONSE_PREFIX + self.name


def parse_response_id(text: str) -> ResponseId | None:
    """Return the part of a run that an id names; None: it is no id of a response."""
    if not text.startswith(RESPONSE_PREFIX):
        return None
    run, separator, number = text.removeprefix(RESPONSE_PREFIX).rpartition(_SEPARATOR)
    if separator and number.isascii() and number.isdigit():
        return ResponseId(run, int(number[:9]))
    return ResponseId(text.removeprefix(RESPONSE_PREFIX))


class RunPart(Struct, frozen=True):
    """What one response tells of a run."""

    recorded: RecordedRun
    """The run up to the end of the part."""
    begins: int = 0
    """How many entries come before it."""
    before: Amount = NOTHING
    """What was spent before it."""
    question: ev.InputRequested | None = None
    """The question at its end; None: it ends with the run, or has not ended."""
    answered: int = 0
    """The question whose answer it begins with; 0: it begins with the run."""

    @property
    def response(self) -> ResponseId:
        """Return the id of the response that tells it."""
        return ResponseId(self.recorded.run, self.answered)

    @property
    def is_over(self) -> bool:
        """Return whether nothing will be added to it."""
        return self.question is not None or self.recorded.state.ended is not None


def read_part(recorded: RecordedRun, answered: int, *, background: bool = False) -> RunPart | None:
    """Return a part of a run.

    Args:
        recorded: the run as it stands.
        answered: the question whose answer the part begins with; 0: it begins with the run.
        background: the part goes on to the end of the run.

    Returns:
        The part; None if the run has no answer to that question.
    """
    entries = recorded.entries
    begins = _find_answer(entries, answered) if answered else 0
    if begins is None:
        return None
    before = replay(entries[:begins]).ledger.spent if begins else NOTHING
    end = None if background else _find_question(recorded, begins)
    if end is None:
        return RunPart(recorded, begins, before, answered=answered)
    question = entries[end].event
    assert isinstance(question, ev.InputRequested), "it was found by its type"
    told = entries[: end + 1]
    return RunPart(structs.replace(recorded, entries=told, state=replay(told)), begins, before, question, answered)


def ended_part(recorded: RecordedRun, answered: int) -> RunPart:
    """Return the part that begins with an answer, of a run that has stopped."""
    part = read_part(recorded, answered)
    return RunPart(recorded, answered=answered) if part is None else part


def part_before(recorded: RecordedRun, answered: int) -> int:
    """Return the question whose answer the part before begins with; 0: that part begins with the run."""
    events = (entry.event for entry in recorded.entries)
    answers = [event for event in events if isinstance(event, ev.InputAnswered) and not event.callback]
    return max((answer.number for answer in answers if answer.number < answered), default=0)


def _find_answer(entries: Sequence[ev.Entry], number: int) -> int | None:
    for place, entry in enumerate(entries):
        if isinstance(entry.event, ev.InputAnswered) and entry.event.number == number:
            return place
    return None


def _find_question(recorded: RecordedRun, begins: int) -> int | None:
    """Return where a part ends: at the first question that a person had to answer, or must answer now."""
    events = [entry.event for entry in recorded.entries]
    answered = {event.number: event for event in events if isinstance(event, ev.InputAnswered)}
    for place in range(begins, len(events)):
        question = events[place]
        if not isinstance(question, ev.InputRequested):
            continue
        answer = answered.get(question.number)
        if answer is None:
            # while a process drives the run, a function of the program may be asked
            is_open = recorded.state.ended is not None or not recorded.is_driven
            return place if is_open else None
        if not answer.callback:
            return place
    return None
