"""Failures of a crew that a journal shows without doubt: refused calls, circles, missing inputs, empty results.

Most of them the engine has stopped already; here they are given their names. Nothing here guesses at a meaning.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from chargehand.agents.answering import with_gaps
from chargehand.agents.equip import OURS
from chargehand.core.state import Status, line_of
from chargehand.core.view import Input, results
from chargehand.runtime.audit_case import (
    ENGINE,
    AuditFinding,
    Case,
    enclosed,
    found,
    origin_of,
    prompt_text,
    replies,
)
from chargehand.runtime.audit_words import said
from chargehand.runtime.traced import AttemptTrace, DutyTrace, TaskTrace, calls_in
from chargehand.terms.events import Finding
from chargehand.terms.plan import NO_TASK, TaskId

_USELESS = "the model did not send a usable result: "
# how the failures begin that an attempt ends with, and the modes they mean
_ENDINGS = (
    (f"{_USELESS}the reply ", "1.1", "never sent a result of the wanted shape"),
    (f"{_USELESS}it was empty", "2.4", "sent nothing, again and again"),
    (f"{_USELESS}you cannot finish", "3.1", "would end before a call that is required"),
    ("no progress: ", "1.3", "made the same call with the same result again and again"),
    ("there was no result after ", "1.5", "came to no end within its steps"),
    ("there is no worker ", "1.2", "was given to a worker who is not there"),
)
_PLANS = {
    "not_a_plan": ("1.1", "The planner sent what is no plan"),
    "wrong_shape": ("1.1", "The planner sent what is no plan"),
    "unknown_worker": ("1.2", "The planner gave a task to somebody who is not in the team"),
    "unchanged": ("1.3", "The planner proposed what had been planned before"),
    "repeated": ("1.3", "The supervisor wanted the same done again"),
    "stalled": ("1.3", "The supervisor went on in a way that had brought nothing"),
    "nothing_done": ("3.1", "The supervisor called it done before anything was delivered"),
    "too_many_tasks": ("1.5", "The planner wanted more tasks than are allowed"),
    "overlapping_tasks": ("1.3", "The plan asks for the same twice"),
    "vague_instruction": ("2.2", "A task was given out that does not say what is wanted"),
}
_CLOSED = {
    "the plan was never finished": ("1.5", "The planner did not finish its plan; it was closed for it."),
    "This stalled after ": ("1.3", "The supervisor made no progress and was stopped."),
}


def endings(case: Case) -> Iterator[AuditFinding]:
    """1.1, 1.2, 1.3, 1.5, 2.4, 3.1: attempts that were stopped, by what was wrong with them."""
    for task, attempt in case.attempts():
        message = "" if attempt.failure is None else attempt.failure.message
        for start, mode, words in _ENDINGS:
            if message.startswith(start):
                said_so = f"Attempt {attempt.attempt} of {task.id!r} ({attempt.worker}) {words}, and was failed."
                yield found(mode, task.id, said_so, message, prevented=True)
        if not message.startswith(_USELESS):  # else it has been said what was wrong with its replies
            yield from _sent_back(task, attempt)


def _sent_back(task: TaskTrace, attempt: AttemptTrace) -> Iterator[AuditFinding]:
    """Replies that were to be results and were not taken: what came next tells what they lacked."""
    turns = replies(attempt)
    for (text, called, finish), (_, calls_next, _) in pairwise(turns):
        if called or finish != "stop":
            continue
        mode = "2.4" if not text.strip() else "3.1" if calls_next else "1.1"
        words = {"2.4": "empty", "3.1": "sent too early", "1.1": "not what was asked for"}[mode]
        yield found(
            mode, task.id, f"A reply of {attempt.worker} to {task.id!r} was {words}, and was sent back.", text,
            prevented=True,
        )  # fmt: skip


def planning(case: Case) -> Iterator[AuditFinding]:
    """1.1, 1.2, 1.3, 1.5, 2.2: what the checks of plans had to say."""
    warnings = case.state.requested.warnings
    for duty in case.trace.supervision:
        for one in _named(duty.findings):
            mode, words = _PLANS[one.code]
            refused = duty.ending == "failed"
            yield found(mode, NO_TASK, f"{words}{', and it was sent back' if refused else ''}.", one.message,
                        prevented=refused)  # fmt: skip
    for one in _named(warnings):
        yield found(_PLANS[one.code][0], NO_TASK, f"{_PLANS[one.code][1]}.", one.message)
    for gap in case.trace.gaps:
        for start, (mode, words) in _CLOSED.items():
            if gap.status == "unserved" and gap.message.startswith(start):
                yield found(mode, NO_TASK, words, gap.message, prevented=True)


def _named(findings: Sequence[Finding]) -> Iterator[Finding]:
    return (one for one in findings if one.code in _PLANS)


def roles(case: Case) -> Iterator[AuditFinding]:
    """1.2: calls of tools that a worker does not have, and work done by somebody whom the plan does not name."""
    for task, attempt in case.attempts():
        progress, agent = case.state.tasks[task.id], case.state.agents.get(attempt.worker)
        if attempt.worker not in line_of(case.state, progress.task):
            yield found("1.2", task.id, f"{attempt.worker!r} worked on {task.id!r}, but the plan names others.",
                        attempt.instruction)  # fmt: skip
        held = {name for prompt in attempt.prompts for name in prompt.tools} or set(agent.tools if agent else ())
        made = {step.name for step in attempt.steps} - ENGINE
        asked = [name for step in attempt.steps if step.name == "model" for name, _ in calls_in(step.result)]
        for name in dict.fromkeys(asked):
            if name not in held and name not in OURS:
                has = ", ".join(sorted(held)) or "none"
                words = f"{attempt.worker} called {name!r} for {task.id!r}, which it does not have"
                yield found("1.2", task.id, f"{words}{'' if name in made else '; the call was not made'}.",
                            f"its tools: {has}", prevented=name not in made)  # fmt: skip


def histories(case: Case) -> Iterator[AuditFinding]:
    """1.4: inputs that are not in the prompt of those who were to work from them."""
    for task, attempt in case.attempts():
        for given in _unseen(case, attempt, task.id, case.inputs_of(task.id)):
            yield found("1.4", task.id, f"{task.id!r} was to work from {given.task!r}, which is not in its prompt.",
                        case.opening_of(task.id, given))  # fmt: skip
    # who chooses among results is not shown those that others worked from; who reduces them, what is left of them
    short = case.trace.combine != "merge" or any("they are reduced first" in note for note in case.trace.notes)
    for duty in case.trace.supervision if not short else ():
        if duty.duty == "answer" and duty.ending == "succeeded":
            given = tuple(one for one in results(case.state) if one.value is not None)
            for one in _unseen(case, duty, NO_TASK, given):
                yield found("1.4", one.task, f"The answer was written without {one.task!r} in its prompt.",
                            case.opening_of(NO_TASK, one))  # fmt: skip


def _unseen(case: Case, work: AttemptTrace | DutyTrace, reader: TaskId, given: Sequence[Input]) -> Iterator[Input]:
    if not work.prompts or not given:
        return
    text = prompt_text(work)
    starts = enclosed(text)
    for one in given:
        begins = case.opening_of(reader, one)
        if not any(start.startswith(begins) for start in starts.get(origin_of(one.task), ())) and begins not in text:
            yield one


def withheld(case: Case) -> Iterator[AuditFinding]:
    """2.4: results without content, and gaps that an answer does not name."""
    for task, _ in case.done():
        if task.result is None or (not isinstance(task.result, list | bool) and not said(task.result).strip()):
            yield found("2.4", task.id, f"The result of {task.id!r} is empty.", repr(task.result))
    answer = case.trace.answer
    if case.over and answer is not None:
        text = answer if isinstance(answer, str) else said(answer)
        if with_gaps(text, case.trace.gaps) != text:
            missing = with_gaps("", case.trace.gaps).strip()
            yield found("2.4", NO_TASK, "The answer does not name everything that is missing.", missing)


def cut_short(case: Case) -> Iterator[AuditFinding]:
    """3.1: a run that passes for complete although something it needs is not done."""
    ended = case.state.ended
    if ended is None or ended.ending != "complete":
        return
    replaced = {one.task.replaces for one in case.state.tasks.values() if one.status is Status.DONE}
    for name, progress in case.state.tasks.items():
        if progress.status is not Status.DONE and name not in replaced:
            yield found("3.1", name, f"The run counts as complete, and {name!r} is not done.", progress.status.value)
