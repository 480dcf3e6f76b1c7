"""A trace as a page to read, in Markdown: what was planned, asked, called, refined and answered, and what it cost.

What comes from models and tools is fenced or escaped, so that it stays text wherever the page is rendered.
"""

import re
from difflib import ndiff
from typing import cast

import msgspec

from chargehand.cli.console import clean, clean_lines
from chargehand.cli.event_text import MEMORY_STEPS, describe_memory
from chargehand.cli.format import counted, describe_gaps, dollars, money, seconds
from chargehand.cli.plan_view import plan_tree
from chargehand.cli.timeline import timeline_lines
from chargehand.engine.budget import NOTHING
from chargehand.engine.events import Failure
from chargehand.engine.plan import Plan, Task
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.trace import (
    AttemptTrace,
    DutyTrace,
    NoteTrace,
    Prompt,
    QuestionTrace,
    StepTrace,
    TaskTrace,
    Trace,
    calls_in,
)

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

    def fence(self, text: str, kind: str = "") -> None:
        """Text that stays as it is, whatever it holds."""
        body = clean_lines(text)
        if len(body) > _MAX_CHARS:
            body = f"{body[:_MAX_CHARS]}\n… {len(body) - _MAX_CHARS:,} more characters"
        longest = max(map(len, re.findall(r"`+", body)), default=0)
        fence = "`" * max(3, longest + 1)
        self.add(f"{fence}{kind}", *body.splitlines(), fence)

    def value(self, value: object) -> None:
        """A text, or anything else as JSON; pictures are left out."""
        if isinstance(value, str):
            self.fence(value)
        else:
            self.fence(msgspec.json.format(msgspec.json.encode(_without_pictures(value)), indent=2).decode(), "json")

    def failure(self, failure: Failure | None, lead: str = "Failed") -> None:
        if failure is None:
            return
        self.add(f"{lead}: {failure.kind}: {_escape(failure.message)}")
        if failure.code_error is not None:
            self.fence(traceback_text(failure.code_error))


def _escape(words: str) -> str:
    return re.sub(r"([\\`*\[<|])", r"\\\1", clean(words))


def _without_pictures(value: object) -> object:
    if isinstance(value, list):
        return [_without_pictures(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    kept = {name: _without_pictures(item) for name, item in fields.items()}
    return {**kept, "svg": f"{len(str(fields['svg'])):,} characters"} if "svg" in fields else kept


# --- the run


def _add_run(page: _Page, trace: Trace) -> None:
    page.heading(1, f"Run {_escape(trace.run)}")
    page.add(f"> {_escape(trace.goal)}")
    reason = f" ({trace.reason})" if trace.reason and trace.reason != "done" else ""
    facts = [f"ending: {trace.ending or 'not yet'}{reason}"]
    facts.append(f"time: {seconds(trace.seconds)}, with {seconds(trace.serial)} of work in it")
    facts.append(f"cost: {money(trace.used)}")
    if trace.critical_path:
        facts.append(f"critical path: {' → '.join(map(_escape, trace.critical_path))}")
    facts += [f"gap: {_escape(line)}" for line in describe_gaps(trace.gaps)]
    page.add(*(f"- {fact}" for fact in facts))
    _add_plan(page, trace)
    page.heading(2, "Timeline")
    page.fence("\n".join(timeline_lines(trace, _COLUMNS)))
    for task in trace.tasks:
        _add_task(page, task)
    if trace.supervision or trace.questions:
        page.heading(2, "Supervisor")
    for duty in trace.supervision:
        _add_duty(page, duty)
    for question in trace.questions:
        _add_question(page, question)
    if trace.notes:
        page.heading(2, "Notes")
        page.add(*map(_format_note, trace.notes))
    _add_answer(page, trace.answer)


def _format_note(note: NoteTrace) -> str:
    about = f"{note.task}: " if note.task else ""
    return f"- {note.at:.2f} s  {_escape(f'{about}{note.text}')}"


def _add_plan(page: _Page, trace: Trace) -> None:
    page.heading(2, "Plan")
    tasks = [
        Task(task.id, task.instruction, task.worker, after=task.after) for task in trace.tasks if task.id[-1] != "]"
    ]
    page.fence("\n".join(plan_tree(Plan(tuple(tasks)), _COLUMNS)))
    rows = ["| task | worker | needs | status | tries | time | cost | what |", "|---|---|---|---|---|---|---|---|"]
    for task in trace.tasks:
        worked = task.seconds_worked
        cells = (
            _escape(task.id),
            _escape(task.worker),
            ", ".join(map(_escape, task.after)),
            task.status,
            str(task.attempt_count),
            "" if worked is None else seconds(worked),
            dollars(task.used.micros) if task.used.micros else "",
            _escape(task.instruction),
        )
        rows.append(f"| {' | '.join(cells)} |")
    page.add(*rows)
    if trace.dropped:
        page.add(f"Rejected before it ran: {', '.join(_escape(task.id) for task in trace.dropped)}.")


def _add_answer(page: _Page, answer: object) -> None:
    page.heading(2, "Answer")
    if answer is None:
        page.add("There is none.")
    elif isinstance(answer, str) and not page.depth:
        page.lines.append(clean_lines(answer))
    else:  # inside a page prose could open a fence that nobody closes
        page.value(answer)


# --- one task


def _add_task(page: _Page, task: TaskTrace) -> None:
    page.heading(2, f"Task {_escape(task.id)}")
    page.add(f"Worker {_escape(task.worker or 'nobody yet')}, {task.status}, {money(task.used)}.")
    if task.reused is not None:
        page.add(f"Its result was taken over from {_escape(task.reused.task)} of run {_escape(task.reused.run)}.")
    page.fence(task.instruction)
    before = task.instruction
    for attempt in task.attempts:
        _add_attempt(page, attempt, before)
        before = attempt.instruction
    if task.status != "done":
        page.failure(task.failure, "Given up")
    if task.result is not None:
        page.add("Result:")
        page.value(task.result)


def _add_attempt(page: _Page, attempt: AttemptTrace, before: str) -> None:
    took = "" if attempt.seconds is None else f" after {seconds(attempt.seconds)}"
    page.heading(3, f"Attempt {attempt.attempt} by {_escape(attempt.worker)}: {attempt.ending}{took}")
    if attempt.instruction != before:
        page.add("The instruction was refined:")
        lines = ndiff(clean_lines(before).splitlines(), clean_lines(attempt.instruction).splitlines())
        page.fence("\n".join(line.rstrip("\n") for line in lines if line[0] != "?"), "diff")
    for prompt in attempt.prompts:
        _add_prompt(page, prompt)
    for step in attempt.steps:
        _add_step(page, step)
    page.depth += _NESTED
    for run in attempt.runs:
        _add_run(page, run)
    page.depth -= _NESTED
    page.failure(attempt.failure)


def _add_prompt(page: _Page, prompt: Prompt) -> None:
    tools = f", with {', '.join(map(_escape, prompt.tools))}" if prompt.tools else ""
    page.add(f"Prompt to {_escape(prompt.model)}{tools}:")
    if prompt.first_in:
        page.add(f"The first message is that of entry {prompt.first_in}.")
    messages = cast("list[object]", prompt.messages) if isinstance(prompt.messages, list) else [prompt.messages]
    for message in messages:
        fields = cast("dict[str, object]", message) if isinstance(message, dict) else {"text": message}
        page.fence(f"[{fields.get('role', 'text')}]\n{fields.get('text', '')}")


def _add_step(page: _Page, step: StepTrace) -> None:
    took = "never came back" if step.seconds is None else f"{step.seconds:.3f} s"
    cost = f", {money(step.used)}" if step.used != NOTHING else ""
    page.add(f"Step {step.step}: **{_escape(step.name)}** ({step.effect}), {took}{cost}")
    if step.kind in MEMORY_STEPS:
        if step.kind == "memory" and step.result is not None:
            page.add(_escape(f"It {describe_memory(step.result)}."))
        return
    if step.arguments is not None:
        page.value(step.arguments)
    if calls := calls_in(step.result):
        page.add(f"It asks to call: {', '.join(_escape(name) for name, _ in calls)}.")
    elif isinstance(step.result, dict):  # of a model's reply the text, of a tool's the value: the trace has the rest
        fields = cast("dict[str, object]", step.result)
        page.value(fields.get("text" if step.kind == "model" else "value", fields))
    elif step.result is not None:
        page.value(step.result)


# --- the supervisor and the person


def _add_duty(page: _Page, duty: DutyTrace) -> None:
    about = f" {_escape(duty.task)}" if duty.task else ""
    took = "" if duty.seconds is None else f", {seconds(duty.seconds)}"
    added = f", {counted(len(duty.tasks), 'task')}" if duty.tasks else ""
    title = f"{duty.duty.capitalize()}{about}, number {duty.number}"
    page.heading(3, f"{title}: {duty.ending}{took}{added}, {money(duty.used)}")
    for prompt in duty.prompts:
        _add_prompt(page, prompt)
    if duty.findings:
        page.add(
            *(f"- {_escape(finding.place)}: {_escape(finding.message)} ({finding.code})" for finding in duty.findings)
        )
    page.failure(duty.failure)


def _add_question(page: _Page, request: QuestionTrace) -> None:
    about = f" about {_escape(request.task)}" if request.task else ""
    feedback = f": {_escape(request.feedback)}" if request.feedback else ""
    page.add(f"A person was asked ({request.what}){about} and said: {request.verdict or 'nothing yet'}{feedback}")
    question = request.question
    if question is None:
        return
    if question.tool:
        page.add(f"The call was {_escape(question.tool)}, wanted by {_escape(' > '.join(question.workers))}, with:")
        page.value(question.arguments)
    texts = {call.call: call.text for call in question.also}
    for verdict in request.also:
        feedback = f": {_escape(verdict.feedback)}" if verdict.feedback else ""
        page.add(f"And of {_escape(texts[verdict.call])}: {verdict.verdict}{feedback}")
