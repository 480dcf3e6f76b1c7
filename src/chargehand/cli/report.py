"""A trace as a page to read, in Markdown: what was planned, asked, called, refined and answered, and what it cost.

What comes from models and tools is fenced or escaped, so that it stays text wherever the page is rendered.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import ndiff
from typing import cast

import msgspec

from chargehand.cli.console import clean, clean_lines
from chargehand.cli.event_text import QUIET, step_came_to
from chargehand.cli.format import counted, describe_gap, dollars, money, seconds
from chargehand.cli.plan_view import plan_tree
from chargehand.runtime.run_log import traceback_text
from chargehand.runtime.trace import (
    AttemptTrace,
    DutyTrace,
    Prompt,
    QuestionTrace,
    StepTrace,
    TaskTrace,
    Trace,
    calls_in,
)
from chargehand.terms.plan import Plan, Task

_MOST = 1500  # characters of a prompt or a result
_BAR = 40


def report(found: Trace, *, inside: bool = False) -> str:
    """The page; that of a run `inside` another goes into its page."""
    lines = [*_head(found), *_plan(found), *_timeline(found)]
    for task in found.tasks:
        lines += _task(task)
    lines += _supervision(found)
    return "\n".join([*lines, *_end(found, fenced=inside)])


def _text(words: str) -> str:
    return re.sub(r"([\\`*\[<|])", r"\\\1", clean(words))


def _fenced(text: str, kind: str = "") -> list[str]:
    said = clean_lines(text)
    if len(said) > _MOST:
        said = f"{said[:_MOST]}\n… {len(said) - _MOST:,} more characters"
    longest = max(map(len, re.findall(r"`+", said)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *said.splitlines(), fence]


def _json(value: object) -> list[str]:
    if isinstance(value, str):
        return _fenced(value)
    return _fenced(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), "json")


# --- the whole


def _head(found: Trace) -> Iterator[str]:
    yield f"# Run {_text(found.run)}"
    yield ""
    yield f"> {_text(found.goal)}"
    yield ""
    reason = f" ({found.reason})" if found.reason and found.reason != "done" else ""
    yield f"- ending: {found.ending or 'not yet'}{reason}"
    yield f"- time: {seconds(found.seconds)}, with {seconds(found.serial)} of work in it"
    yield f"- cost: {money(found.used)}"
    if found.critical_path:
        yield f"- critical path: {' → '.join(map(_text, found.critical_path))}"
    yield from (f"- gap: {_text(describe_gap(one))}" for one in found.gaps)
    yield ""


def _plan(found: Trace) -> Iterator[str]:
    yield "## Plan"
    yield ""
    tasks = [Task(one.id, one.instruction, one.worker, after=one.after) for one in found.tasks if one.id[-1] != "]"]
    yield from _fenced("\n".join(plan_tree(Plan(tuple(tasks)), 100)))
    yield ""
    yield "| task | worker | needs | status | tries | time | cost | what |"
    yield "|---|---|---|---|---|---|---|---|"
    for task in found.tasks:
        took = "" if task.began is None or task.ended is None else seconds(task.ended - task.began)
        cost = dollars(task.used.micros) if task.used.micros else ""
        needs = ", ".join(map(_text, task.after))
        what = _text(task.instruction)
        cells = (_text(task.id), _text(task.worker), needs, task.status, str(len(task.attempts)), took, cost, what)
        yield f"| {' | '.join(cells)} |"
    if found.dropped:
        yield ""
        yield f"Rejected before it ran: {', '.join(_text(task.id) for task in found.dropped)}."
    yield ""


def _timeline(found: Trace) -> list[str]:
    rows = [(task.id, [(one.began, one.seconds) for one in task.attempts]) for task in found.tasks if task.attempts]
    if not rows or not found.seconds:
        return []
    wide = min(24, max(len(name) for name, _ in rows))
    lines = [f"{clean(name)[:wide]:{wide}} |{_bar(spans, found.seconds)}|" for name, spans in rows]
    return ["## Timeline", "", *_fenced("\n".join(lines)), ""]


def _bar(spans: Sequence[tuple[float, float | None]], whole: float) -> str:
    cells = [" "] * _BAR
    for began, took in spans:
        first = min(_BAR - 1, int(began / whole * _BAR))
        last = _BAR if took is None else max(first + 1, round((began + took) / whole * _BAR))
        cells[first:last] = "=" * (min(last, _BAR) - first)
    return "".join(cells[:_BAR])


# --- one task


def _task(task: TaskTrace) -> Iterator[str]:
    yield f"## Task {_text(task.id)}"
    yield ""
    yield f"Worker {_text(task.worker or 'nobody yet')}, {task.status}, {money(task.used)}."
    if task.reused:
        yield f"Its result was taken over from {_text(task.reused)}."
    yield ""
    yield from _fenced(task.instruction)
    yield ""
    before = task.instruction
    for attempt in task.attempts:
        yield from _attempt(attempt, before)
        before = attempt.instruction
    if task.failure is not None and task.status != "done":
        yield f"Given up: {task.failure.kind}: {_text(task.failure.message)}"
        yield ""
    if task.result is not None:
        yield "Result:"
        yield ""
        yield from _json(_readable(task.result))
        yield ""


def _readable(result: object) -> object:
    """A result that is prose with exhibits: its prose, and what the exhibits are."""
    if not isinstance(result, dict):
        return result
    fields = cast("dict[str, object]", result)
    charts = fields.get("exhibits")
    if not isinstance(charts, list):
        return fields
    return {**fields, "exhibits": [_without_picture(one) for one in cast("list[object]", charts)]}


def _without_picture(exhibit: object) -> object:
    if not isinstance(exhibit, dict):
        return exhibit
    fields = cast("dict[str, object]", exhibit)
    return {**fields, "svg": f"{len(str(fields['svg'])):,} characters"} if "svg" in fields else fields


def _attempt(attempt: AttemptTrace, before: str) -> Iterator[str]:
    took = "" if attempt.seconds is None else f" after {seconds(attempt.seconds)}"
    yield f"### Attempt {attempt.attempt} by {_text(attempt.worker)}: {attempt.ending}{took}"
    yield ""
    if attempt.instruction != before:
        yield "The instruction was refined:"
        yield ""
        yield from _fenced("\n".join(line.rstrip("\n") for line in _difference(before, attempt.instruction)), "diff")
        yield ""
    for prompt in attempt.prompts:
        yield from _prompt(prompt)
    for step in attempt.steps:
        yield from _step(step)
    for inner in attempt.runs:
        yield from below(report(inner, inside=True))
    if attempt.failure is not None:
        yield f"Failed: {attempt.failure.kind}: {_text(attempt.failure.message)}"
        yield ""
        if attempt.failure.code_error is not None:
            yield from _fenced(traceback_text(attempt.failure.code_error))
            yield ""


def _difference(before: str, after: str) -> Iterator[str]:
    yield from (
        line for line in ndiff(clean_lines(before).splitlines(), clean_lines(after).splitlines()) if line[0] != "?"
    )


def _prompt(prompt: Prompt) -> Iterator[str]:
    tools = f", with {', '.join(map(_text, prompt.tools))}" if prompt.tools else ""
    yield f"Prompt to {_text(prompt.model)}{tools}:"
    yield ""
    messages = cast("list[object]", prompt.messages) if isinstance(prompt.messages, list) else [prompt.messages]
    for message in messages:
        fields = cast("dict[str, object]", message) if isinstance(message, dict) else {"text": message}
        yield from _fenced(f"[{fields.get('role', 'text')}]\n{fields.get('text', '')}")
        yield ""


def _step(step: StepTrace) -> Iterator[str]:
    took = "never came back" if step.seconds is None else f"{step.seconds:.3f} s"
    cost = f", {money(step.used)}" if step.used.calls or step.used.tokens or step.used.micros else ""
    yield f"Step {step.step}: **{_text(step.name)}** ({step.effect}), {took}{cost}"
    yield ""
    if step.name in QUIET:
        yield _text(f"It {step_came_to(step.name, step.result)}.") if step.name == "memory" else ""
        yield ""
        return
    if step.arguments is not None:
        yield from _json(step.arguments)
        yield ""
    if calls := calls_in(step.result):
        yield f"It asks to call: {', '.join(_text(name) for name, _ in calls)}."
        yield ""
    elif step.result is not None:
        yield from _json(_said(step))
        yield ""


def _said(step: StepTrace) -> object:
    """Of what a model replied, the text, and of what a tool returned, the value; the rest stands in the trace."""
    if not isinstance(step.result, dict):
        return step.result
    fields = cast("dict[str, object]", step.result)
    return fields.get("text", fields) if step.name == "model" else _readable(fields.get("value", fields))


# --- the supervisor, and the end


def _supervision(found: Trace) -> Iterator[str]:
    yield from ["## Supervisor", ""] if found.supervision or found.questions else []
    for duty in found.supervision:
        yield from _duty(duty)
    for one in found.questions:
        about = f" about {_text(one.task)}" if one.task else ""
        feedback = f": {_text(one.feedback)}" if one.feedback else ""
        yield f"A person was asked ({one.what}){about} and said: {one.verdict or 'nothing yet'}{feedback}"
        yield ""
        if one.question is not None and one.question.tool:
            yield f"The call was {_text(one.question.tool)}, wanted by {_text(' > '.join(one.question.workers))}, with:"
            yield from _json(one.question.arguments)
            yield ""
        yield from _other_calls(one)


def _other_calls(asked: QuestionTrace) -> Iterator[str]:
    """The verdicts on calls that were asked about along with the first."""
    texts = {} if asked.question is None else {call.call: call.text for call in asked.question.also}
    for verdict in asked.also:
        feedback = f": {_text(verdict.feedback)}" if verdict.feedback else ""
        yield f"And of {_text(texts[verdict.call])}: {verdict.verdict}{feedback}"
        yield ""


def _duty(duty: DutyTrace) -> Iterator[str]:
    about = f" {_text(duty.task)}" if duty.task else ""
    took = "" if duty.seconds is None else f", {seconds(duty.seconds)}"
    added = f", {counted(len(duty.tasks), 'task')}" if duty.tasks else ""
    yield f"### {duty.duty.capitalize()}{about}, number {duty.number}: {duty.ending}{took}{added}, {money(duty.used)}"
    yield ""
    for prompt in duty.prompts:
        yield from _prompt(prompt)
    yield from (f"- {_text(one.place)}: {_text(one.message)} ({one.code})" for one in duty.findings)
    if duty.failure is not None:
        yield f"Failed: {duty.failure.kind}: {_text(duty.failure.message)}"
    yield ""


def _end(found: Trace, *, fenced: bool) -> Iterator[str]:
    if found.notes:
        yield from ["## Notes", "", *(f"- {_text(note)}" for note in found.notes), ""]
    yield from ["## Answer", ""]
    if found.answer is None:
        yield "There is none."
    else:  # inside a page prose could open a fence that nobody closes
        yield from _json(found.answer) if fenced else _prose(found.answer)
    yield from [""] if fenced else []


def _prose(answer: object) -> list[str]:
    return [clean_lines(answer)] if isinstance(answer, str) else _json(answer)


_BY = 3
_DEEPEST = 6


def below(page: str) -> Iterator[str]:
    """The lines of a page as part of one whose headings go down to the third level."""
    fence = ""
    for line in page.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if line == fence else fence
        elif len(ticks) >= 3:
            fence = ticks
        elif line.startswith("#"):
            yield _deeper(line)
            continue
        yield line


def _deeper(line: str) -> str:
    signs = len(line) - len(line.lstrip("#"))
    return f"{'#' * min(_DEEPEST, signs + _BY)}{line[signs:]}"
