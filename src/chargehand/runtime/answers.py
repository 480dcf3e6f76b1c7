"""Read answers to what a run asks a person, in the words of a program, of the command line or of a client."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

from chargehand.engine import events as ev
from chargehand.engine.admit import answer_problem
from chargehand.engine.declared import Write
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid, NotJson, Refused

Answer: TypeAlias = Annotated[
    ev.Event | bool | str | Mapping[int, bool | str],
    Write('"approve", "reject: why", True or False; for several calls each by its number, as in {1: "approve"}'),
]
WORDS = {
    "plan": '"approve", "reject" or "reject: why"',
    "tool": '"approve", "reject" or "reject: why"',
    "effect": '"done: RESULT" (it happened and returned RESULT), "again" (it did not happen) or "fail"',
}
"""What may be said of a call, by the kind of the question."""
_VERDICT = re.compile(r"(\w+)([\s.,:;!]*)(.*)", re.DOTALL)
_NO_CONDITION = 'a yes takes no condition; say "reject: why", or the bare word "approve"'
"""Why words after `approve` are refused: the call would be made as it is, whatever they say."""


def read_answer(
    run: str,
    state: RunState | None,
    answer: Answer,
    reason: str = "",
    *,
    question: int | None = None,
    shown: int = 1,
) -> ev.Event:
    """Return an answer as an event.

    Args:
        run: The run that is answered.
        state: Its state; None: it has none yet.
        answer: A word, a verdict for each call by its number, or an event, which is returned as it is.
        reason: Why, beside a word.
        question: The number of the question that is meant; None: the one that was shown.
        shown: The number of the question that the caller was shown last; 1 where it was shown none.

    Raises:
        Refused: The run asks nothing, it asks another question than the one that is meant, or one word would decide
            several calls.
        Invalid: The words are no verdict on what is asked.
    """
    if not isinstance(answer, bool | str | Mapping):
        return answer
    pending = open_question(run, state)
    check_question(run, pending, question, shown=shown, advice=_advice(run, pending))
    if pending.what == "question":
        value = read_text(pending, answer) if isinstance(answer, str) else answer
        return ev.InputAnswered(pending.number, "answer", reason, result=value)
    if isinstance(answer, Mapping):
        verdicts = [read_verdict(pending.what, call, words, reason) for call, words in answer.items()]
    else:
        verdicts = [read_verdict(pending.what, first_call(pending), answer, reason)]
        check_single(run, pending, advice=f"Answer each: {_example(pending)}")
    _check_waiting(run, pending, [verdict.call for verdict in verdicts])
    return make_answer(pending, verdicts)


def open_question(run: str, state: RunState | None) -> ev.InputRequested:
    """Return the question that a run asks a person; Refused if it asks none, or another run asks it."""
    pending = None if state is None else state.input
    if state is None or pending is None:
        ended = "" if state is None or state.ended is None else f" It has ended ({state.ended.ending})."
        raise Refused(f"run {run!r} asks nothing, so there is nothing to answer.{ended}")
    if state.requested.parent is not None:
        raise Refused(f"run {run!r} works for run {state.requested.parent.run!r}; answer that one")
    return pending


def check_question(run: str, pending: ev.InputRequested, named: int | None, *, advice: str, shown: int = 1) -> None:
    """Raise Refused unless an answer means the open question.

    Args:
        run: The run that is answered.
        pending: The open question.
        named: The number that the answer names; None: it names none, and means the question that was shown.
        advice: How to answer the open question.
        shown: The number of the question that was shown last; 1 where none was shown.
    """
    if (shown if named is None else named) == pending.number:
        return
    if named is None:
        problem = "the answer does not name its question, and may be meant for an earlier one"
    elif named < pending.number:
        problem = f"question {named} has been answered already"
    else:
        problem = f"there is no question {named} yet"
    raise Refused(f"{problem}. Run {run!r} asks question {pending.number} now: {describe_calls(pending)}. {advice}")


def check_single(run: str, pending: ev.InputRequested, *, advice: str) -> None:
    """Raise Refused where one word would decide several calls."""
    if len(pending.calls) > 1:
        raise Refused(f"run {run!r} asks about {len(pending.calls)} calls ({describe_calls(pending)}). {advice}")


def describe_calls(pending: ev.InputRequested) -> str:
    """Return what is asked in one line: the calls, each with its number if there are several, or the text."""
    calls = pending.calls
    if len(calls) > 1:
        return "; ".join(f"{call.call}: {call.text}" for call in calls)
    return calls[0].text if calls else pending.text or "the plan"


def read_text(pending: ev.InputRequested, text: str) -> object:
    """Return the answer that a text gives to a question in words: JSON where only JSON fits its schema, else text."""
    question = pending.question
    if question is None or question.schema is None or not answer_problem(question, text):
        return text
    value = _json_or_text(text)
    return text if answer_problem(question, value) else value


def read_verdict(
    what: ev.Asked,
    call: int,
    words: bool | str | None,  # noqa: FBT001 - it is what a person answered
    reason: str = "",
    *,
    owner: str = "the answer",
) -> ev.CallVerdict:
    """Return what is said of a call; Invalid for anything else, so that nothing passes for an approval by accident."""
    written = ("approve" if words else "reject") if isinstance(words, bool) else words
    match = _VERDICT.fullmatch(written.strip()) if isinstance(written, str) else None
    word, mark, rest = (match[1].lower(), match[2], match[3]) if match else ("", "", "")
    if what == "effect":
        if word == "done" and not (rest and ":" in mark):
            raise Invalid(
                f'{owner} is {words!r} and does not say what call {call} returned; say "done: RESULT" with what it '
                'returned, as in "done: receipt 7", or "done: null" if it returned nothing'
            )
        if word == "done":
            return ev.CallVerdict(call, "done", reason, _json_or_text(rest))
        if word in ("again", "fail"):
            return ev.CallVerdict(call, word, reason or rest)
    elif word == "approve" and rest:
        raise Invalid(f"{owner} is {words!r}; {_NO_CONDITION}")
    elif word in ("approve", "reject"):
        return ev.CallVerdict(call, word, reason or rest)
    raise Invalid(f"{owner} is {words!r}; say {WORDS[what]}")


def make_answer(pending: ev.InputRequested, verdicts: Sequence[ev.CallVerdict]) -> ev.InputAnswered:
    """Return the answer to a question about calls, from a verdict for each. Calls without one are asked about next."""
    first = next(verdict for verdict in verdicts if verdict.call == first_call(pending))
    others = tuple(verdict for verdict in verdicts if verdict is not first)
    return ev.InputAnswered(pending.number, first.verdict, first.feedback, result=first.result, also=others)


class ShownQuestions:
    """Remember the question of each run that a caller was shown last."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def note(self, run: str, question: ev.InputRequested | None) -> None:
        """Note what a run asks, as its caller is told; None: nothing, and what was asked before is forgotten."""
        if question is None:
            self._numbers.pop(run, None)
        else:
            self._numbers[run] = question.number

    def last(self, run: str) -> int:
        """Return the number of the question that was shown last; 1 where none was shown."""
        return self._numbers.get(run, 1)


def _json_or_text(text: str) -> object:
    try:
        return decode_value(text.encode())
    except (NotJson, UnicodeError):
        return text


def first_call(pending: ev.InputRequested) -> int:
    """Return the number of the call that an answer must decide."""
    return 1 if pending.question is None else pending.question.call or 1


def _check_waiting(run: str, pending: ev.InputRequested, calls: Sequence[int]) -> None:
    """Raise Refused for a call that is not asked about, and where the first one has no verdict."""
    first = first_call(pending)
    waiting = [call.call for call in pending.calls] or [first]
    for call in calls:
        if call not in waiting:
            raise Refused(f"run {run!r} does not ask about call {call}; it asks about {', '.join(map(str, waiting))}")
    if first not in calls:
        raise Refused(f"run {run!r} asks about call {first} first; answer that one too")


def _advice(run: str, pending: ev.InputRequested) -> str:
    """Return how a program answers the open question."""
    word = {"effect": '"done: RESULT"', "question": '"TEXT"'}.get(pending.what, '"approve"')
    answer = _example(pending) if len(pending.calls) > 1 else word
    return f"To answer it: resume({run!r}, {answer}, question={pending.number})"


def _example(pending: ev.InputRequested) -> str:
    word = "done: RESULT" if pending.what == "effect" else "approve"
    verdicts = ", ".join(f'{call.call}: "{word}"' for call in pending.calls)
    return f"{{{verdicts}}}"
