"""How far a run has come, in short lines: the plan, and what becomes of its tasks."""

from chargehand.terms import events as ev
from chargehand.terms.plan import Task

_ROOM = 160
_LISTED = 30
_DUTIES = {"plan": "planning", "answer": "writing the answer"}


def line(event: ev.Event) -> str:
    """What an event says to whoever looks on; nothing for most."""
    return _line_of_task(event) or _line_of_run(event)


def _line_of_run(event: ev.Event) -> str:
    match event:
        case ev.SupervisionStarted(duty=duty, why=why) if duty in _DUTIES:
            return f"{_DUTIES[duty]}{'' if why in ('first', 'more') else ' again'}\n"
        case ev.RunRequested(plan=plan) if plan is not None:
            return _planned(plan.tasks)
        case ev.TasksAdded(tasks=tasks) if tasks:
            return _planned(tasks)
        case ev.SupervisionFailed(duty=duty, failure=failure):
            return f"{_DUTIES.get(duty, duty)} failed: {_short(failure.message)}\n"
        case ev.TimeRanOut():
            return "the time is up; the answer is written from what there is\n"
        case ev.PauseSet(paused=paused):
            return "paused\n" if paused else "resumed\n"
        case ev.RunResumed():
            return "taken up again after a restart\n"
        case ev.InputRequested():
            return "a person is asked\n"
        case _:
            return ""


def _line_of_task(event: ev.Event) -> str:
    match event:
        case ev.AttemptStarted(task=task, attempt=attempt, worker=worker):
            return f"{task} {'started' if attempt == 1 else f'tried again ({attempt})'}: {worker}\n"
        case ev.AttemptSucceeded(task=task):
            return f"{task} done\n"
        case ev.AttemptFailed(task=task, failure=failure):
            return f"{task} failed: {_short(failure.message)}\n"
        case ev.RetryScheduled(task=task, worker=worker):
            return f"{task} is tried again{f' by {worker}' if worker else ''}\n"
        case ev.TaskRefined(task=task, instruction=instruction):
            return f"{task} was put in other words: {_short(instruction)}\n"
        case ev.ResultReused(task=task, run=run):
            return f"{task} taken over from {run}\n"
        case ev.TaskFailed(task=task, failure=failure):
            return f"{task} was given up: {_short(failure.message)}\n"
        case ev.TaskSkipped(task=task, reason=reason):
            return f"{task} skipped: {reason}\n"
        case _:
            return ""


def _planned(tasks: tuple[Task, ...]) -> str:
    lines = [f"plan: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"]
    lines += [
        f"- {one.id}{f' ({one.worker})' if one.worker else ''}: {_short(one.instruction)}" for one in tasks[:_LISTED]
    ]
    if len(tasks) > _LISTED:
        lines.append(f"- and {len(tasks) - _LISTED} more")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _ROOM else f"{plain[: _ROOM - 2]} …"
