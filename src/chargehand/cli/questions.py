"""Questions of a run: shown whole, and put to the person at the terminal."""

import asyncio
import json
import os
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import structs

from chargehand.cli.console import Console, clean, clean_json
from chargehand.cli.signals import Leave
from chargehand.errors import Refused
from chargehand.runtime.driver import Driver
from chargehand.runtime.nested_runs import doubtful_calls
from chargehand.terms import events as ev
from chargehand.terms.failure import Question
from chargehand.terms.value import encode_value

_INDENT = "  "
_NARROWEST = 40
_BECAUSE = {
    "repeated": "asked because this attempt has made the same call already",
    "tainted": "asked because this worker has seen text from outside",
}


def format_question(asked: ev.InputRequested, columns: int) -> list[str]:
    """All there is to say about a question, within a width. A plan of this run itself is shown elsewhere."""
    question = asked.question
    if question is None:
        return list(_wrapped(clean_json(json.dumps(asked.text, ensure_ascii=False)), columns, "")) if asked.text else []
    lines = list(_wrapped(_who(asked, question), columns, ""))
    for task in question.plan:
        lines += _wrapped(clean(task), columns, _INDENT)
    if question.because in _BECAUSE:
        lines += _wrapped(_BECAUSE[question.because], columns, _INDENT)
    for name, value in question.arguments.items():
        lines += _field(name, value, columns)
    return lines


def _who(asked: ev.InputRequested, question: Question) -> str:
    what = "the plan of a team" if asked.what == "plan" else clean(question.tool) or "a call"
    wanted = f", wanted by {clean(' > '.join(question.workers))}" if question.workers else ""
    inside = f" in run {clean(question.run)}" if question.run else ""
    task = f", task {clean(question.task)}" if question.task else ""
    return f"{what}{wanted}{inside}{task}"


def _field(name: str, value: object, columns: int) -> Iterator[str]:
    shown = clean_json(json.dumps(name, ensure_ascii=False))
    label = name if name.isidentifier() and name.isascii() else shown
    body = clean_json(json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None))
    first, *rest = body.split("\n")  # line breaks inside of texts are escaped
    yield from _wrapped(f"{label}: {first}", columns, _INDENT)
    for line in rest:
        inner = line.lstrip(" ")
        yield from _wrapped(inner, columns, _INDENT + line[: len(line) - len(inner)])


def _wrapped(line: str, columns: int, indent: str) -> Iterator[str]:
    """The whole line, cut where it is too wide; what follows is indented further."""
    room = max(_NARROWEST, columns - len(indent) - len(_INDENT))
    pieces = textwrap.wrap(
        line, room, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False, expand_tabs=False
    )
    for number, piece in enumerate(pieces or [""]):
        yield f"{indent}{piece}" if number == 0 else f"{indent}{_INDENT}{piece}"


_QUESTIONS = {"plan": "May this plan run?", "tool": "May this call be made?", "effect": "What became of it?"}
_HINTS = {"plan": "y yes, n no", "tool": "y yes, n no", "effect": "d, a or f"}
_MEANINGS = (
    "d (done): it happened. The task is done, and you say what came of it.",
    "a (again): it did not happen. It is done again.",
    "f (fail): leave it. The task counts as failed, and the answer does without it.",
)
_EFFECT: dict[str, Literal["done", "again", "fail"]] = {
    "d": "done",
    "done": "done",
    "a": "again",
    "again": "again",
    "f": "fail",
    "fail": "fail",
}


def may_ask(options: Namespace, console: Console) -> bool:
    """Whether somebody is there to answer."""
    return console.terminal and sys.stdin.isatty() and not vars(options).get("no_input", False)


class QuestionPrompt:
    """`quiet` is done before a question and `go_on` after it, so that nothing moves while somebody types."""

    def __init__(self, console: Console, run: str, quiet: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._console = console
        self._run = run
        self._quiet = quiet
        self._go_on = go_on
        self._open: asyncio.Queue[ev.InputRequested] = asyncio.Queue()

    def hear(self, entry: ev.Entry) -> None:
        if isinstance(entry.event, ev.InputRequested):
            self.put(entry.event)

    def put(self, asked: ev.InputRequested) -> None:
        self._open.put_nowait(asked)

    async def answer(self, driver: Driver, leave: Leave) -> None:
        """Answer every question as it comes; an empty reply leaves the run where it stands."""
        while True:
            asked = await self._open.get()
            self._quiet()
            found = await (self._ask_effect(asked, driver) if asked.what == "effect" else self._ask(asked))
            if found is None:
                leave()
                return
            self._go_on()
            try:
                await driver.ask(self._run, found)
            except Refused as error:
                self._console.line(clean(str(error)), "warn")

    async def _ask(self, asked: ev.InputRequested) -> ev.InputAnswered | None:
        if asked.task:
            self._console.line(f"{clean(asked.task)}:", "bold")
        for line in format_question(asked, self._console.columns):
            self._console.line(line)
        while True:
            said = await self._read(f"{_QUESTIONS[asked.what]}  [{_HINTS[asked.what]}, Enter: decide later] ")
            if not said:
                return None
            if said[:1].lower() == "n":
                why = await self._read("Why not? ")
                return ev.InputAnswered(asked.number, "reject", why or "")
            if said[:1].lower() == "y":
                return ev.InputAnswered(asked.number, "approve")
            self._console.line(f"say one of: {_HINTS[asked.what]}", "warn")

    async def _ask_effect(self, asked: ev.InputRequested, driver: Driver) -> ev.InputAnswered | None:
        """Which call it is, what each answer means, and then the answer: by a whole word, since "did not" is no d."""
        self._console.line(f"{clean(asked.task)}:", "bold")
        for line in await self._doubtful(asked, driver):
            self._console.line(line)
        self._console.line("This was begun, and nobody knows whether it happened. Find out, then say:", "warn")
        for meaning in _MEANINGS:
            self._console.line(f"  {meaning}")
        while True:
            said = await self._read(f"{_QUESTIONS['effect']}  [{_HINTS['effect']}, Enter: decide later] ")
            if not said:
                return None
            verdict = _EFFECT.get(said.lower())
            if verdict == "done":
                came = await self._read("What came of it, for the answer? ") or "It was done, says a person."
                return ev.InputAnswered(
                    asked.number, "done", result=encode_value(came or "It was done, says a person.")
                )
            if verdict is not None:
                return ev.InputAnswered(asked.number, verdict)
            self._console.line(f"say one of: {_HINTS['effect']}", "warn")

    async def _doubtful(self, asked: ev.InputRequested, driver: Driver) -> list[str]:
        """The calls that never came back; where none was recorded, what the attempt said itself."""
        columns = self._console.columns
        if asked.question is not None:
            return format_question(asked, columns)
        entries = await driver.journal.read(self._run)
        found = [structs.replace(asked, question=call) for call in doubtful_calls(self._run, entries, asked.task)]
        if found:
            return [line for one in found for line in format_question(one, columns)]
        failed = [one.event for one in entries if isinstance(one.event, ev.AttemptFailed)]
        said = [one.failure.message for one in failed if one.task == asked.task]
        return format_question(structs.replace(asked, text=said[-1]), columns) if said else []

    async def _read(self, prompt: str) -> str | None:
        """One line from the terminal; None when it ends. Unlike a thread that reads, this can be given up."""
        self._console.write(self._console.paint(prompt, "bold"))
        loop = asyncio.get_running_loop()
        source = sys.stdin.fileno()
        heard: asyncio.Future[bytes] = loop.create_future()

        def take() -> None:
            if not heard.done():
                heard.set_result(os.read(source, 65536))

        loop.add_reader(source, take)
        try:
            found = await heard
        finally:
            loop.remove_reader(source)
        return found.decode(errors="replace").strip() if found else None
