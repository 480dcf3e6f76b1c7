"""Questions of a run: shown whole, with the command that answers them, and put to the person at the terminal."""

import asyncio
import os
import sys
import termios
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from chargehand.cli.console import Console, clean, format_json
from chargehand.engine import events as ev
from chargehand.engine.admit import answer_problem
from chargehand.engine.failure import EarlierCall, PendingCall, Question
from chargehand.engine.plan import NO_TASK
from chargehand.errors import Refused
from chargehand.runtime.answers import WORDS, first_call, make_answer, read_text, read_verdict
from chargehand.runtime.runner import Runner

if TYPE_CHECKING:
    from chargehand.cli.live_view import LiveView

_INDENT = "  "
_BECAUSE = {
    "repeated": "asked because this attempt has made the same call already",
    "tainted": "asked because this worker has seen text from outside",
}


# --- what is asked


def format_question(request: ev.InputRequested) -> list[str]:
    """Return all there is to say about a question, in lines.

    Arguments and results are JSON, so that none can pass for a line of ours. A plan of this run itself is shown
    elsewhere.
    """
    question = request.question
    if question is None:
        return [format_json(request.text)] if request.text else []
    calls = request.calls
    if calls:
        return [line for call in calls for line in _format_call(request, question, call, numbered=len(calls) > 1)]
    lines = [_who(question, "the plan of a team" if request.what == "plan" else "a question")]
    lines += [f"{_INDENT}{clean(task)}" for task in question.plan]
    if request.what == "question":
        lines += [f"{_INDENT}{clean(request.text)}", *(f"{_INDENT}- {clean(option)}" for option in question.options)]
        if question.schema is not None:
            lines.append(f"{_INDENT}the answer must fit this JSON Schema:")
            lines += _indented(question.schema)
    return lines


def _format_call(
    request: ev.InputRequested, question: Question, call: PendingCall, *, numbered: bool = False
) -> list[str]:
    """Return a call with its arguments, who wants it, why it is asked about, and the key to look it up by."""
    task = call.task if call.task != request.task else NO_TASK
    if request.what == "effect" and task and not question.run:  # the worker of another task is not named
        question = structs.replace(question, workers=())
    heading = _who(question, clean(call.tool) or "a call", task=task)
    lines = [f"call {call.call}: {heading}" if numbered else heading]
    if call.earlier is not None:
        lines += _format_earlier(call, call.earlier)
    elif call.because in _BECAUSE:
        lines.append(f"{_INDENT}{_BECAUSE[call.because]}")
    if request.what == "effect" and call.key:
        lines.append(f"{_INDENT}its idempotency key: {clean(call.key)}")
    return [*lines, *(_indented(call.arguments) if call.arguments else ())]


def _format_earlier(call: PendingCall, earlier: EarlierCall) -> list[str]:
    """Return which call was made before, when, by which run, and with what result."""
    run = f"run {clean(earlier.run)}" if earlier.run else "this run"
    task = f", task {clean(earlier.task)}" if earlier.task else ""
    at = f", {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(earlier.at))}" if earlier.at else ""
    tool = f" {clean(earlier.tool)}" if earlier.tool != call.tool else ""
    lines = [f"asked because it repeats a call{tool} of {run}{task}{at}"]
    if earlier.arguments != call.arguments:
        lines += ["its arguments were:", *_indented(earlier.arguments)]
    if earlier.happened:
        lines += ["its result was:", *_indented(earlier.result)]
    else:
        lines.append("it is not known whether that call happened")
    return [f"{_INDENT}{line}" for line in lines]


def _indented(value: object) -> list[str]:
    return [f"{_INDENT}{line}" for line in format_json(value).splitlines()]


def _who(question: Question, what: str, task: str = "") -> str:
    wanted = f", wanted by {clean(' > '.join(question.workers))}" if question.workers else ""
    inside = f" in run {clean(question.run)}" if question.run else ""
    named = task or question.task
    return f"{what}{wanted}{inside}{f', task {clean(named)}' if named else ''}"


# --- how it is answered


class AnswerCommand(Struct, frozen=True):
    """How a question is answered on the command line."""

    words: tuple[str, ...]
    """The words after those that name the run."""
    others: str
    """What else may be said, and what a word in capitals stands for."""


def answer_command(pending: ev.InputRequested) -> AnswerCommand:
    """Return how to answer a question. It names the question, so that it answers no later one.

    Of an effect it is no complete command: copied without finding out what happened, it would act twice.
    """
    number = str(pending.number)
    named = ("--question", number)
    if len(pending.calls) > 1:
        word = "WHAT" if pending.what == "effect" else "approve"
        calls = [part for call in pending.calls for part in ("--call", f"{call.call}={word}")]
        others = f"WHAT: {WORDS['effect']}" if pending.what == "effect" else 'or "reject: WHY" for a call'
        return AnswerCommand((*named, *calls), others)
    match pending.what:
        case "tool":
            return AnswerCommand(("--approve", number), f"or --question {number} --reject TEXT")
        case "plan" if pending.task:
            return AnswerCommand(("--approve", number), f"or --question {number} --reject TEXT")
        case "plan":
            edits = f"or --question {number} with --reject TEXT or --plan FILE"
            return AnswerCommand(("--approve", number), edits)
        case "question":
            return AnswerCommand((*named, "--answer", "TEXT"), "or --reject TEXT")
        case "effect":
            others = "done --result JSON: it happened; again: it did not; fail: do without"
            return AnswerCommand((*named, "--effect", "WHAT"), others)


# --- at the terminal


class _Prompt(Struct, frozen=True):
    """How a verdict is asked for: what may be typed, and the verdict that each word means."""

    text: str
    """The question; `{call}` stands for the call."""
    hint: str
    """What may be typed."""
    verdicts: Mapping[str, str]
    """The verdict of each word."""


_YES_OR_NO = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}
_PROMPTS: dict[str, _Prompt] = {
    "plan": _Prompt("May this plan run?", "y yes, n no", _YES_OR_NO),
    "tool": _Prompt("May {call} be made?", "y yes, n no", _YES_OR_NO),
    "effect": _Prompt(
        "What became of {call}?",
        "d, a or f",
        {"d": "done", "done": "done", "a": "again", "again": "again", "f": "fail", "fail": "fail"},
    ),
}
_EFFECT_HELP = """This was begun, and it is not known whether it happened. Find out, then say:
  d (done): it happened. You say what it returned, and the task goes on with that.
  a (again): it did not happen. It is done again, with the same idempotency key.
  f (fail): leave it. The task counts as failed, and the answer does without it."""


def may_ask(options: Namespace, console: Console) -> bool:
    """Check whether a question can be answered at this terminal."""
    return console.terminal and sys.stdin.isatty() and not vars(options).get("no_input", False)


class QuestionPrompt:
    """Put the questions of a run to the person at the terminal, without the live view.

    Args:
        console: where questions and prompts are written.
        live: the live view, which is taken away while a question is open; None: there is none.
        show: writes all there is to say about a question to that console.
    """

    def __init__(self, console: Console, live: "LiveView | None", show: Callable[[ev.InputRequested], None]) -> None:
        self._console = console
        self._live = live
        self._show = show
        self._open: asyncio.Queue[ev.InputRequested] = asyncio.Queue()

    def put(self, request: ev.InputRequested) -> None:
        self._open.put_nowait(request)

    async def answer(self, runner: Runner, run: str, leave: Callable[[], object]) -> None:
        """Answer every question as it comes; an empty reply leaves the run where it stands."""
        live = self._live
        while True:
            request = await self._open.get()
            if live is not None:
                live.stop()
            reply = await self._ask(request)
            if reply is None:
                leave()
                return
            if live is not None:
                live.start()
            try:
                await runner.ask(run, reply)
            except Refused as error:
                self._console.line(str(error), "warn")
                state = runner.under_way.get(run)
                if state is not None and state.input == request:  # it is still open
                    self.put(request)

    async def _ask(self, request: ev.InputRequested) -> ev.InputAnswered | None:
        """Show the question whole, then read its answer; None: it is to be decided later."""
        self._show(request)
        for line in _EFFECT_HELP.splitlines() if request.what == "effect" else ():
            self._console.line(line)
        _drop_typed_keys()
        if request.what == "question":
            return await self._ask_in_words(request)
        verdicts: list[ev.CallVerdict] = []
        for call in request.calls or (None,):
            verdict = await self._ask_verdict(request, call)
            if verdict is None:
                break  # the calls without a verdict are asked about next
            verdicts.append(verdict)
        return make_answer(request, verdicts) if verdicts else None

    async def _ask_in_words(self, request: ev.InputRequested) -> ev.InputAnswered | None:
        while words := await self._read("Your answer?  [Enter: decide later] "):
            value = read_text(request, words)
            problem = answer_problem(request.question, value) if request.question is not None else ""
            if not problem:
                return ev.InputAnswered(request.number, "answer", result=value)
            self._console.line(problem, "warn")
        return None

    async def _ask_verdict(self, request: ev.InputRequested, call: PendingCall | None) -> ev.CallVerdict | None:
        """Read until the reply is one of those that are meant: "did not" is no d."""
        prompt = _PROMPTS[request.what]
        number = first_call(request) if call is None else call.call
        this = _THIS[request.what] if call is None or len(request.calls) == 1 else f"call {number} ({clean(call.tool)})"
        text = prompt.text.format(call=this)
        while reply := await self._read(f"{text}  [{prompt.hint}, Enter: decide later] "):
            word = prompt.verdicts.get(reply.lower())
            if word == "reject":
                return ev.CallVerdict(number, "reject", await self._read("Why not? ") or "")
            if word == "done":
                result = await self._read("What did it return?  [text or JSON; null: nothing; Enter: decide later] ")
                return read_verdict("effect", number, f"done: {result}") if result else None
            if word is not None:
                return read_verdict(request.what, number, word)
            self._console.line(f"say one of: {prompt.hint}", "warn")
        return None

    async def _read(self, prompt: str) -> str | None:
        """Read one line from the terminal; None when it ends. Unlike a thread that reads, this can be cancelled.

        Lines that are written meanwhile come after the reply.
        """
        self._console.write(self._console.paint(prompt, "bold"))
        loop = asyncio.get_running_loop()
        source = sys.stdin.fileno()
        line: asyncio.Future[bytes] = loop.create_future()

        def take() -> None:
            if not line.done():
                line.set_result(os.read(source, 65536))

        loop.add_reader(source, take)
        try:
            with self._console.held():
                typed = await line
        finally:
            loop.remove_reader(source)
        return typed.decode(errors="replace").strip() if typed else None


_THIS = {"plan": "", "tool": "this call", "effect": "it"}
"""What the only call of a question is called in its prompt."""


def _drop_typed_keys() -> None:
    """Forget what was typed before the question was on the screen: it answers nothing."""
    with suppress(OSError, ValueError, termios.error):  # standard input is no keyboard
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
