"""A trace as a page to read, in Markdown: what was planned, asked, called, refined and answered, and what it cost.

What comes from models and tools is fenced or escaped, so that it stays text wherever the page is rendered.
"""

import re

from chargehand.agents.inputs import without_pictures
from chargehand.cli.console import clean, clean_lines, format_json
from chargehand.cli.diagrams import timeline_lines
from chargehand.cli.format import describe_gaps, money, seconds
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
    page.add_run(trace)
    return "\n".join(page.lines)


def _escape(text: str) -> str:
    return re.sub(r"([\\`*\[<|])", r"\\\1", clean(text))


class _Page:
    """Lines of Markdown. `depth` is how many levels down the headings are."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        """A paragraph or a list."""
        self.lines += [*lines, ""]

    def heading(self, level: int, text: str) -> None:
        self.add(f"{'#' * min(_DEEPEST_HEADING, level + self.depth)} {text}")

    def fence(self, value: object) -> None:
        """A text as it is, whatever it holds, or anything else as JSON; pictures are left out. Nothing for None."""
        if value is None:
            return
        body = clean_lines(value) if isinstance(value, str) else format_json(without_pictures(value))
        if len(body) > _MAX_CHARS:
            body = f"{body[:_MAX_CHARS]}\n… {len(body) - _MAX_CHARS:,} more characters"
        longest = max(map(len, re.findall(r"`+", body)), default=0)
        fence = "`" * max(3, longest + 1)
        self.add(fence, *body.splitlines(), fence)

    def failure(self, failure: Failure | None) -> None:
        if failure is None:
            return
        self.add(f"Failed: {failure.kind}: {_escape(failure.message)}")
        if failure.code_error is not None:
            self.fence(traceback_text(failure.code_error))

    def prompts(self, prompts: list[Prompt]) -> None:
        for prompt in prompts:
            self.add(f"Prompt to {_escape(prompt.model)}, tools: {_escape(', '.join(prompt.tools)) or 'none'}")
            self.fence(prompt.messages)

    # --- the parts of a run

    def add_run(self, trace: Trace) -> None:
        self.heading(1, f"Run {_escape(trace.run)}")
        self.add(f"> {_escape(trace.goal)}")
        facts = [
            f"ending: {trace.ending or 'not yet'} {trace.reason}".rstrip(),
            f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it",
            f"cost: {money(trace.used)}",
            f"critical path: {' → '.join(map(_escape, trace.critical_path))}",
            *(f"gap: {_escape(line)}" for line in describe_gaps(trace.gaps)),
            *(f"{note.at:.2f} s: {_escape(f'{note.task} {note.text}'.strip())}" for note in trace.notes),
        ]
        self.add(*(f"- {fact}" for fact in facts))
        self.heading(2, "Timeline")
        self.fence("\n".join(timeline_lines(trace, _COLUMNS)))
        for duty in trace.supervision:
            self.add_duty(duty)
        for task in (*trace.tasks, *trace.dropped):
            self.add_task(task)
        for question in trace.questions:
            self.add_question(question)
        self.heading(2, "Answer")
        if isinstance(trace.answer, str) and not self.depth:
            self.lines.append(clean_lines(trace.answer))
        else:  # inside a page prose could open a fence that is never closed
            self.fence("There is none." if trace.answer is None else trace.answer)

    def add_duty(self, duty: DutyTrace) -> None:
        title = f"{duty.duty.capitalize()} {_escape(duty.task)}".strip()
        self.heading(2, f"{title}, number {duty.number}: {duty.ending}, {money(duty.used)}")
        self.prompts(duty.prompts)
        for finding in duty.findings:
            self.add(f"- {_escape(finding.place)}: {_escape(finding.message)} ({finding.code})")
        self.failure(duty.failure)

    def add_task(self, task: TaskTrace) -> None:
        self.heading(2, f"Task {_escape(task.id)}: {task.status}")
        needs = f", needs {_escape(', '.join(task.after))}" if task.after else ""
        self.add(f"Worker {_escape(task.worker or 'not chosen yet')}{needs}, {money(task.used)}.")
        if task.reused is not None:
            self.add(f"Its result was taken over from {_escape(task.reused.task)} of run {_escape(task.reused.run)}.")
        for attempt in task.attempts:
            self.add_attempt(attempt)
        if not task.attempts:
            self.fence(task.instruction)
        self.fence(task.result)

    def add_attempt(self, attempt: AttemptTrace) -> None:
        took = "" if attempt.seconds is None else f" after {seconds(attempt.seconds)}"
        self.heading(3, f"Attempt {attempt.attempt} by {_escape(attempt.worker)}: {attempt.ending}{took}")
        self.fence(attempt.instruction)
        self.prompts(attempt.prompts)
        for step in attempt.steps:
            self.add_step(step)
        self.depth += _NESTED
        for run in attempt.runs:
            self.add_run(run)
        self.depth -= _NESTED
        self.failure(attempt.failure)

    def add_step(self, step: StepTrace) -> None:
        took = "never came back" if step.seconds is None else f"{step.seconds:.3f} s"
        self.add(f"Step {step.step}: **{_escape(step.name)}** ({step.effect}), {took}, {money(step.used)}")
        self.fence(step.arguments)
        self.fence(step.result)

    def add_question(self, request: QuestionTrace) -> None:
        verdict = f"{request.verdict or 'not answered yet'} {_escape(request.feedback)}".rstrip()
        self.heading(2, f"Question {request.number} ({request.what}) {_escape(request.task)}: {verdict}")
        self.fence(request.question)
