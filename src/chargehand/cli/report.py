"""A trace as a page to read, in Markdown: what was planned, asked, called, refined and answered, and what it cost.

What comes from models and tools is fenced or escaped, so that it stays text wherever the page is rendered.
"""

import re
from typing import cast

import msgspec

from chargehand.cli.console import clean, clean_lines
from chargehand.cli.diagrams import timeline_lines
from chargehand.cli.format import describe_gaps, dollars, money, seconds
from chargehand.engine.events import Failure
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.trace import AttemptTrace, DutyTrace, Prompt, QuestionTrace, StepTrace, TaskTrace, Trace

_MAX_CHARS = 1500  # of a prompt or a result
_COLUMNS = 100
_DEEPEST_HEADING = 6
_NESTED = 3  # levels that the page of a run inside another goes down


def report(trace: Trace) -> str:
    """The page."""
    page = _Page()
    _add_run(page, trace)
    return "\n".join(page.lines)


class _Page:
    """Lines of Markdown. `depth` is how many levels down the headings are."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        """A paragraph, a list or a table."""
        self.lines += [*lines, ""]

    def heading(self, level: int, text: str) -> None:
        self.add(f"{'#' * min(_DEEPEST_HEADING, level + self.depth)} {text}")

    def fence(self, value: object) -> None:
        """A text as it is, whatever it holds, or anything else as JSON; pictures are left out."""
        text = value
        if not isinstance(text, str):
            text = msgspec.json.format(msgspec.json.encode(_without_pictures(value)), indent=2).decode()
        body = clean_lines(text)
        if len(body) > _MAX_CHARS:
            body = f"{body[:_MAX_CHARS]}\n… {len(body) - _MAX_CHARS:,} more characters"
        longest = max(map(len, re.findall(r"`+", body)), default=0)
        fence = "`" * max(3, longest + 1)
        self.add(fence, *body.splitlines(), fence)

    def failure(self, failure: Failure | None, lead: str = "Failed") -> None:
        if failure is None:
            return
        self.add(f"{lead}: {failure.kind}: {_escape(failure.message)}")
        if failure.code_error is not None:
            self.fence(traceback_text(failure.code_error))

    def prompts(self, prompts: list[Prompt]) -> None:
        for prompt in prompts:
            self.add(f"Prompt to {_escape(prompt.model)}, tools: {_escape(', '.join(prompt.tools)) or 'none'}")
            self.fence(prompt.messages)


def _escape(text: str) -> str:
    return re.sub(r"([\\`*\[<|])", r"\\\1", clean(text))


def _without_pictures(value: object) -> object:
    if isinstance(value, list):
        return [_without_pictures(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    return {name: "(a picture)" if name == "svg" else _without_pictures(item) for name, item in fields.items()}


def _add_run(page: _Page, trace: Trace) -> None:
    page.heading(1, f"Run {_escape(trace.run)}")
    page.add(f"> {_escape(trace.goal)}")
    reason = f" ({trace.reason})" if trace.reason and trace.reason != "done" else ""
    facts = [
        f"ending: {trace.ending or 'not yet'}{reason}",
        f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it",
        f"cost: {money(trace.used)}",
        f"critical path: {' → '.join(map(_escape, trace.critical_path))}",
        *(f"gap: {_escape(line)}" for line in describe_gaps(trace.gaps)),
    ]
    page.add(*(f"- {fact}" for fact in facts))
    _add_plan(page, trace)
    page.heading(2, "Timeline")
    page.fence("\n".join(timeline_lines(trace, _COLUMNS)))
    for task in trace.tasks:
        _add_task(page, task)
    page.heading(2, "Supervisor")
    for duty in trace.supervision:
        _add_duty(page, duty)
    for question in trace.questions:
        _add_question(page, question)
    for note in trace.notes:
        page.add(f"- {note.at:.2f} s  {_escape(f'{note.task} {note.text}'.strip())}")
    page.heading(2, "Answer")
    if trace.answer is None:
        page.add("There is none.")
    elif isinstance(trace.answer, str) and not page.depth:
        page.lines.append(clean_lines(trace.answer))
    else:  # inside a page prose could open a fence that is never closed
        page.fence(trace.answer)


def _add_plan(page: _Page, trace: Trace) -> None:
    page.heading(2, "Plan")
    rows = ["| task | worker | needs | status | tries | time | cost | what |", "|---|---|---|---|---|---|---|---|"]
    for task in trace.tasks:
        worked = task.seconds_worked
        cells = (
            task.id,
            task.worker,
            ", ".join(task.after),
            task.status,
            str(task.attempt_count),
            "" if worked is None else seconds(worked),
            dollars(task.used.micros) if task.used.micros else "",
            task.instruction,
        )
        rows.append(f"| {' | '.join(map(_escape, cells))} |")
    page.add(*rows)
    if trace.dropped:
        page.add(f"Rejected before it ran: {', '.join(_escape(task.id) for task in trace.dropped)}.")


def _add_task(page: _Page, task: TaskTrace) -> None:
    page.heading(2, f"Task {_escape(task.id)}")
    page.add(f"Worker {_escape(task.worker or 'not chosen yet')}, {task.status}, {money(task.used)}.")
    if task.reused is not None:
        page.add(f"Its result was taken over from {_escape(task.reused.task)} of run {_escape(task.reused.run)}.")
    page.fence(task.instruction)
    instruction = task.instruction
    for attempt in task.attempts:
        _add_attempt(page, attempt, is_refined=attempt.instruction != instruction)
        instruction = attempt.instruction
    if task.status != "done":
        page.failure(task.failure, "Given up")
    if task.result is not None:
        page.add("Result:")
        page.fence(task.result)


def _add_attempt(page: _Page, attempt: AttemptTrace, *, is_refined: bool) -> None:
    took = "" if attempt.seconds is None else f" after {seconds(attempt.seconds)}"
    page.heading(3, f"Attempt {attempt.attempt} by {_escape(attempt.worker)}: {attempt.ending}{took}")
    if is_refined:
        page.add("The instruction was refined:")
        page.fence(attempt.instruction)
    page.prompts(attempt.prompts)
    for step in attempt.steps:
        _add_step(page, step)
    page.depth += _NESTED
    for run in attempt.runs:
        _add_run(page, run)
    page.depth -= _NESTED
    page.failure(attempt.failure)


def _add_step(page: _Page, step: StepTrace) -> None:
    took = "never came back" if step.seconds is None else f"{step.seconds:.3f} s"
    page.add(f"Step {step.step}: **{_escape(step.name)}** ({step.effect}), {took}, {money(step.used)}")
    if step.arguments is not None:
        page.fence(step.arguments)
    if step.result is not None:
        page.fence(step.result)


def _add_duty(page: _Page, duty: DutyTrace) -> None:
    took = "" if duty.seconds is None else f", {seconds(duty.seconds)}"
    title = f"{duty.duty.capitalize()} {_escape(duty.task)}".strip()
    page.heading(3, f"{title}, number {duty.number}: {duty.ending}{took}, {money(duty.used)}")
    page.prompts(duty.prompts)
    for finding in duty.findings:
        page.add(f"- {_escape(finding.place)}: {_escape(finding.message)} ({finding.code})")
    page.failure(duty.failure)


def _add_question(page: _Page, request: QuestionTrace) -> None:
    about = f" about {_escape(request.task)}" if request.task else ""
    feedback = f": {_escape(request.feedback)}" if request.feedback else ""
    page.add(f"Question {request.number} ({request.what}){about}: {request.verdict or 'not answered yet'}{feedback}")
    if request.question is not None:
        page.fence(request.question)
    for verdict in request.also:
        page.add(f"Call {verdict.call}: {verdict.verdict}: {_escape(verdict.feedback)}")
