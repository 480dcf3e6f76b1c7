"""Failures of a crew that only its words betray: unasked assumptions, derailment, ignored inputs, deeds never done.

Each looks for the plain case and lets everything else pass: what it reports is to be looked at, not proven. Whether a
check that was made is right nobody can read off a journal (`audit_mutants` measures those who check).
"""

import re
from collections.abc import Iterable, Iterator

from chargehand.runtime.audit_case import ENGINE, AuditFinding, Case, acted, found, went_well
from chargehand.runtime.audit_words import (
    assumed,
    checks,
    claims,
    matter,
    missing_from,
    other_language,
    own_words,
    promised,
    said,
)
from chargehand.runtime.traced import StepTrace, TaskTrace
from chargehand.terms.plan import NO_TASK, TaskId, needs

_ASKED, _SAID, _GOAL = 3, 8, 4  # words of substance below which nothing is concluded
_GIVEN = 4
_SHORT = 60  # words
_ACCEPTED = re.compile(r"^[\d.]+ s  (\S+): accepted by ")
_LOOKS = re.compile(r": (\S+) looks for it\.\Z")
_NOTE = re.compile(r"^[\d.]+ s  (?:\S+: )?assumed: ")


def assumptions(case: Case) -> Iterator[AuditFinding]:
    """2.2: what was assumed where somebody could have been asked."""
    for note in case.trace.notes:
        if (start := _NOTE.match(note)) and not _found_there(case, note):
            yield found("2.2", NO_TASK, "The planner assumed something and asked nobody.", note[start.end() :])
    for task, _ in case.done():
        if words := assumed(own_words(task.result)):
            yield found("2.2", task.id, f"{task.worker} assumed something for {task.id!r} and asked nobody.", words)
    open_part = missing_from(case.trace.goal)
    if open_part and case.trace.tasks and not any(one.what == "plan" for one in case.trace.questions):
        words = "The request leaves something open, and work began without asking."
        yield found("2.2", NO_TASK, words, open_part)


def _found_there(case: Case, note: str) -> bool:
    """Whether it was only assumed who would find something, and whoever that is found all it was asked for."""
    who = _LOOKS.search(note)
    own = [] if who is None else [task.id for task in case.trace.tasks if task.worker == who[1]]
    delivered = {task.id for task, _ in case.done()}
    return bool(own) and delivered.issuperset(own)


def derailments(case: Case) -> Iterator[AuditFinding]:
    """2.3: work that has no word in common with what was asked for."""
    for task, progress in case.done():
        wanted, told = matter(progress.task.instruction), matter(said(task.result))
        if len(wanted) < _ASKED or len(told) < _SAID or other_language(progress.task.instruction):
            continue
        if told.isdisjoint(wanted) and told.isdisjoint(_seen(case, task)):
            words = f"The result of {task.id!r} has no word of its task: {task.worker} may have left it."
            yield found("2.3", task.id, words, own_words(task.result))
    for task in case.trace.tasks:
        wanted = matter(case.state.tasks[task.id].task.instruction)
        for better in task.refinements:
            told = matter(better)
            if len(wanted) >= _ASKED and len(told) >= _GOAL and told.isdisjoint(wanted):
                yield found("2.3", task.id, f"{task.id!r} was put anew without a word of what was asked first.", better)
    yield from _plan_derailed(case)


def _plan_derailed(case: Case) -> Iterator[AuditFinding]:
    goal = matter(case.trace.goal)
    planned = [one.task.instruction for one in case.state.tasks.values() if one.mother is None]
    told = frozenset[str]().union(*map(matter, planned))
    enough = len(goal) >= _GOAL and len(told) >= _GOAL and case.state.requested.plan is None
    if enough and goal.isdisjoint(told) and not other_language(case.trace.goal):
        yield found("2.3", NO_TASK, "The plan has no word of the request: it may be for another.", planned[0])


def _seen(case: Case, task: TaskTrace) -> frozenset[str]:
    """What a worker had before it besides its task: inputs, and what its tools returned."""
    before = [case.matter_of(task.id, one) for one in case.inputs_of(task.id)]
    before += [matter(said(step.result)) for step in _tools(task) if went_well(step)]
    return frozenset[str]().union(*before)


def ignored(case: Case) -> Iterator[AuditFinding]:
    """2.5: required inputs of which neither a word nor a number is in the result, or in what was asked of tools."""
    for task, progress in case.done():
        told = matter(said(task.result))
        if len(told) < _SAID or other_language(progress.task.instruction):
            continue
        told |= matter("\n".join(said(step.arguments) for step in _tools(task)))
        required = {name for name, need in needs(progress.task) if need == "required"}
        for given in case.inputs_of(task.id):
            inside = case.matter_of(task.id, given) - matter(progress.task.instruction)
            if given.task in required and len(inside) >= _GIVEN and inside.isdisjoint(told):
                words = f"{task.worker} may have ignored {given.task!r}: nothing of it is in {task.id!r}."
                yield found("2.5", task.id, words, case.opening_of(task.id, given))
    yield from _left_out(case)


def _left_out(case: Case) -> Iterator[AuditFinding]:
    """Results that nobody works from and that the answer has nothing of."""
    answer = case.trace.answer
    if not isinstance(answer, str) or case.trace.combine not in ("merge", "reduce"):
        return
    told = matter(answer)
    if len(told) < _SAID or other_language(case.trace.goal):
        return
    read = {name for one in case.state.tasks.values() for name, _ in needs(one.task)}
    for task, progress in case.done():
        inside = matter(said(task.result)) - matter(case.trace.goal)
        alone = task.id not in read and progress.mother is None and f"[{task.id}]" not in answer
        if alone and len(inside) >= _GIVEN and inside.isdisjoint(told):
            words = f"The answer may have ignored {task.id!r}: nothing of it is in there."
            yield found("2.5", task.id, words, own_words(task.result))


def deeds(case: Case) -> Iterator[AuditFinding]:
    """2.6: deeds that somebody claims, and no call that did them."""
    acts = {task.id: [step for step in _tools(task) if went_well(step)] for task in case.trace.tasks}
    for task, progress in case.done():
        near = [*acts[task.id], *(step for name, _ in needs(progress.task) for step in acts.get(name, ()))]
        for deed, tools in claims(own_words(task.result), progress.task.instruction):
            if not _borne_out(near, tools):
                made = ", ".join(dict.fromkeys(step.name for step in near)) or "none"
                words = f"The result of {task.id!r} says that something was {deed}; no call of a tool did it."
                yield found("2.6", task.id, words, f"calls: {made}; it says: {own_words(task.result).strip()}")
    if isinstance(case.trace.answer, str) and case.trace.combine != "forward":
        every = [step for made in acts.values() for step in made]
        for deed, tools in claims(own_words(case.trace.answer), case.trace.goal):
            if not _borne_out(every, tools):
                words = f"The answer says that something was {deed}; no call of a tool did it."
                yield found("2.6", NO_TASK, words, own_words(case.trace.answer))


def _borne_out(steps: Iterable[StepTrace], tools: str) -> bool:
    """Whether a call acted, or is at least of a tool whose name speaks of the deed."""
    named = re.compile(rf"(?:^|[^a-z])(?:{tools})")
    return any(acted(step) or named.search(step.name.casefold()) for step in steps)


def promises(case: Case) -> Iterator[AuditFinding]:
    """3.1: results that only say what will be done next, of workers who had tools and called none."""
    for task, _ in case.done():
        last = task.attempts[-1]
        words = own_words(task.result)
        held = any(prompt.tools for prompt in last.prompts)
        if held and not _tools(task) and len(words.split()) <= _SHORT and (promise := promised(words)):
            said_so = f"{task.worker} ended {task.id!r} with what it would do next, and did not do it."
            yield found("3.1", task.id, said_so, promise)


def unchecked(case: Case) -> Iterator[AuditFinding]:
    """3.2: effects after which nobody looked: no later call that reads, no later task that checks, no person."""
    if not case.over:
        return
    allowed = {one.task for one in case.trace.questions if one.what == "tool" and one.verdict == "approve"}
    checked = _checked(case) | {TaskId(said_so[1]) for note in case.trace.notes if (said_so := _ACCEPTED.match(note))}
    for task, _ in case.done():
        steps = _tools(task)
        at = max((n for n, step in enumerate(steps) if step.effect == "effect" and acted(step)), default=-1)
        looked = any(step.effect == "read" and went_well(step) for step in steps[at + 1 :])
        if at >= 0 and not looked and task.id not in allowed and task.id not in checked:
            words = f"{task.id!r} changed something outside, and nobody looked whether it worked."
            yield found("3.2", task.id, words, f"{steps[at].name}({said(steps[at].arguments)})")


def _checked(case: Case) -> set[TaskId]:
    """Every task that one which checks is based on, however far back."""
    line = [one.task for one in case.state.tasks.values() if checks(one.task.instruction)]
    found_so: set[TaskId] = set()
    while line:
        for name, _ in needs(line.pop()):
            if name not in found_so:
                found_so.add(name)
                line.append(case.state.tasks[name].task)
    return found_so


def _tools(task: TaskTrace) -> list[StepTrace]:
    return [step for attempt in task.attempts for step in attempt.steps if step.name not in ENGINE]
