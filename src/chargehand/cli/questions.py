"""Questions of a run: shown whole, and put to the person at the terminal."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.cli.console import Console, clean, format_json
from chargehand.engine import events as ev
from chargehand.engine.failure import Question
from chargehand.errors import Refused
from chargehand.runtime.nested import doubtful_calls
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import TaskTrace

if TYPE_CHECKING:
    from chargehand.cli.live_view import LiveView

Verdict: TypeAlias = Literal["approve", "edit", "reject", "done", "again", "fail", "answer"]
_INDENT = "  "
_BECAUSE = {
    "repeated": "asked because this attempt has made the same call already",
    "tainted": "asked because this worker has seen text from outside",
}


def name_calls(request: ev.InputRequested, task: TaskTrace | None) -> list[ev.InputRequested]:
    """The question, once for each call it is about: of effects in doubt, those that never came back.

    Where none was recorded it has what the attempt said itself.
    """
    if request.what != "effect" or request.question is not None or task is None:
        return [request]
    if calls := doubtful_calls(task):
        return [structs.replace(request, question=call) for call in calls]
    failures = [attempt.failure.message for attempt in task.attempts if attempt.failure is not None]
    return [structs.replace(request, text=failures[-1])] if failures else [request]


def format_question(request: ev.InputRequested) -> list[str]:
    """All there is to say about a question; arguments as JSON, so that none can pass for a line of ours.

    A plan of this run itself is shown elsewhere.
    """
    question = request.question
    if question is None:
        return [format_json(request.text)] if request.text else []
    lines = [_who(request, question), *(f"{_INDENT}{clean(task)}" for task in question.plan)]
    if request.what == "question":
        lines += [f"{_INDENT}{clean(request.text)}", *(f"{_INDENT}- {clean(option)}" for option in question.options)]
    if question.because in _BECAUSE:
        lines.append(f"{_INDENT}{_BECAUSE[question.because]}")
    arguments = format_json(question.arguments).splitlines() if question.arguments else []
    return [*lines, *(f"{_INDENT}{line}" for line in arguments)]


def _who(request: ev.InputRequested, question: Question) -> str:
    what = "the plan of a team" if request.what == "plan" else clean(question.tool) or "a call"
    wanted = f", wanted by {clean(' > '.join(question.workers))}" if question.workers else ""
    inside = f" in run {clean(question.run)}" if question.run else ""
    task = f", task {clean(question.task)}" if question.task else ""
    return f"{what}{wanted}{inside}{task}"


class _Prompt(Struct, frozen=True):
    """How a question is put: what may be replied, and the verdict of each reply."""

    text: str
    hint: str
    verdicts: dict[str, Verdict]


_YES_OR_NO: dict[str, Verdict] = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}
_PROMPTS: dict[str, _Prompt] = {
    "plan": _Prompt("May this plan run?", "y yes, n no", _YES_OR_NO),
    "tool": _Prompt("May this call be made?", "y yes, n no", _YES_OR_NO),
    "effect": _Prompt(
        "What became of it?",
        "d, a or f",
        {"d": "done", "done": "done", "a": "again", "again": "again", "f": "fail", "fail": "fail"},
    ),
}
_EFFECT_HELP = """This was begun, and it is not known whether it happened. Find out, then say:
  d (done): it happened. The task is done, and you say what came of it.
  a (again): it did not happen. It is done again.
  f (fail): leave it. The task counts as failed, and the answer does without it."""


def may_ask(options: Namespace, console: Console) -> bool:
    """Whether a question can be answered at this terminal."""
    return console.terminal and sys.stdin.isatty() and not vars(options).get("no_input", False)


class QuestionPrompt:
    """Puts the questions of a run to the person at the terminal. The live view is taken away meanwhile."""

    def __init__(
        self,
        console: Console,
        live: "LiveView | None",
        question_lines: Callable[[ev.InputRequested], list[str]],
    ) -> None:
        self._console = console
        self._live = live
        self._question_lines = question_lines
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

    async def _ask(self, request: ev.InputRequested) -> ev.InputAnswered | None:
        """Show the question whole, then read until the reply is one of those that are meant: "did not" is no d."""
        console = self._console
        if request.task:
            console.line(f"{request.task}:", "bold")
        for line in self._question_lines(request):
            console.line(line)
        for line in _EFFECT_HELP.splitlines() if request.what == "effect" else ():
            console.line(line)
        if request.what == "question":
            words = await self._read("Your answer?  [Enter: decide later] ")
            return ev.InputAnswered(request.number, "answer", result=words) if words else None
        prompt = _PROMPTS[request.what]
        while True:
            reply = await self._read(f"{prompt.text}  [{prompt.hint}, Enter: decide later] ")
            if not reply:
                return None
            verdict = prompt.verdicts.get(reply.lower())
            if verdict is None:
                console.line(f"say one of: {prompt.hint}", "warn")
                continue
            if verdict == "reject":
                return ev.InputAnswered(request.number, verdict, await self._read("Why not? ") or "")
            if verdict == "done":
                result = await self._read("What came of it, for the answer? ") or "It was done, says a person."
                return ev.InputAnswered(request.number, verdict, result=result)
            return ev.InputAnswered(request.number, verdict)

    async def _read(self, prompt: str) -> str | None:
        """One line from the terminal; None when it ends. Unlike a thread that reads, this can be given up."""
        self._console.write(self._console.paint(prompt, "bold"))
        loop = asyncio.get_running_loop()
        source = sys.stdin.fileno()
        line: asyncio.Future[bytes] = loop.create_future()

        def take() -> None:
            if not line.done():
                line.set_result(os.read(source, 65536))

        loop.add_reader(source, take)
        try:
            typed = await line
        finally:
            loop.remove_reader(source)
        return typed.decode(errors="replace").strip() if typed else None
