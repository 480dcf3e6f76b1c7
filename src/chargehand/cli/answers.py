"""Read the answer to a question from the options of a command."""

from argparse import ArgumentTypeError, Namespace

from msgspec import Struct, structs

from chargehand.cli.arguments import Options, positive
from chargehand.cli.teams import read_plan, read_value
from chargehand.engine import events as ev
from chargehand.engine.state import RunState
from chargehand.errors import Invalid
from chargehand.runtime.answers import (
    check_question,
    check_single,
    first_call,
    make_answer,
    read_answer,
    read_text,
    read_verdict,
)

_ANY_QUESTION = 0
"""What `--approve` without a number holds."""


def call_verdict(text: str) -> tuple[int, str]:
    """Read `1=approve`: the number of a call, and what is said of it."""
    number, is_verdict, words = text.partition("=")
    if not is_verdict or not number.isdecimal():
        raise ArgumentTypeError(f"{text!r} names no call; write it like 1=approve or 2='reject: too dear'")
    return int(number), words


ALTERNATIVES: Options = {
    "--approve": {
        "metavar": "N",
        "nargs": "?",
        "const": _ANY_QUESTION,
        "type": positive,
        "help": "the plan may run, the call may be made; N as for --question",
    },
    "--reject": {"metavar": "TEXT", "help": "it may not, and why; it is planned or tried again"},
    "--plan": {"metavar": "FILE", "help": "run this plan instead"},
    "--answer": {"metavar": "TEXT", "help": "the answer to a question"},
    "--effect": {
        "metavar": "WHAT",
        "help": "what became of it: done (with --result), again or fail",
    },
    "--call": {
        "metavar": "CALL=VERDICT",
        "action": "append",
        "type": call_verdict,
        "help": "of several calls: 1=approve, 2='reject: why', 1='done: RESULT', 2=again; once for each",
    },
}
"""The options that answer a question. One kind may be given."""
DETAILS: Options = {
    "--question": {"metavar": "N", "type": positive, "help": "the number of the question that is answered"},
    "--result": {"metavar": "JSON", "help": "with --effect done: what the call returned"},
}


class TypedAnswer(Struct, frozen=True):
    """An answer as it was typed, before the question is known."""

    question: int | None
    """The number of the question that it names; None: it names none."""
    verdict: ev.CallVerdict | None = None
    """What is said of the call or the plan that waits."""
    calls: tuple[tuple[int, str], ...] = ()
    """What is said of each of several calls, in words."""
    text: str | None = None
    """The answer to a question in words."""
    plan: ev.Plan | None = None
    """The plan that takes the place of the one that waits."""


def read_reply(options: Namespace) -> TypedAnswer | None:
    """Return the answer on the command line; None: there is none."""
    number: int | None = options.question or options.approve or None
    if options.approve and options.question not in (None, options.approve):
        raise Invalid(f"--approve {options.approve} and --question {options.question} differ; name one question")
    reply = TypedAnswer(number)
    if options.approve is not None:
        return structs.replace(reply, verdict=ev.CallVerdict(0, "approve"))
    if options.reject is not None:
        return structs.replace(reply, verdict=ev.CallVerdict(0, "reject", options.reject))
    if options.effect is not None:
        return structs.replace(reply, verdict=_read_effect(options.effect, options.result))
    if options.call is not None:
        return structs.replace(reply, calls=_each_once(options.call))
    if options.answer is not None:
        return structs.replace(reply, text=options.answer)
    if options.plan is not None:
        return structs.replace(reply, plan=read_plan(options.plan))
    if number is not None:
        raise Invalid(
            f"--question {number} has no answer; add --approve, --reject, --answer, --effect, --call or --plan"
        )
    return None


def _read_effect(words: str, result: str | None) -> ev.CallVerdict:
    if words != "done":
        return read_verdict("effect", 0, words, owner="--effect")
    if result is None:
        raise Invalid(
            "--effect done does not say what the call returned; add --result '\"receipt 7\"', or --result null"
        )
    return ev.CallVerdict(0, "done", result=read_value("--result", result.encode()))


def _each_once(calls: list[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    numbers = [number for number, _ in calls]
    if twice := next((number for number in numbers if numbers.count(number) > 1), None):
        raise Invalid(f"--call {twice}=... is given twice; say one thing of each call")
    return tuple(calls)


def make_event(run: str, state: RunState, pending: ev.InputRequested, reply: TypedAnswer, command: str) -> ev.Event:
    """Return the answer to an open question as an event.

    Args:
        run: The run that asks.
        state: Its state.
        pending: The open question.
        reply: What was typed.
        command: The command that answers the question.

    Raises:
        Refused: The reply names another question, or one word would decide several calls.
        Invalid: It says nothing about the calls that wait.
    """
    check_question(run, pending, reply.question, advice=f"To answer it: {command}")
    if reply.calls:
        return read_answer(run, state, dict(reply.calls), question=pending.number)
    if reply.plan is not None:
        return ev.InputAnswered(pending.number, "edit", plan=reply.plan)
    if reply.text is not None:
        return ev.InputAnswered(pending.number, "answer", result=read_text(pending, reply.text))
    assert reply.verdict is not None, "one of them is given"
    check_single(run, pending, advice=f"Answer each: {command}")
    return make_answer(pending, [structs.replace(reply.verdict, call=first_call(pending))])
