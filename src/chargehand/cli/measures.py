"""What each part of a run cost and when it was settled, entry by entry. When it was worked on: see `timeline`."""

from collections.abc import Mapping

from chargehand.cli.timeline import Timeline
from chargehand.core.state import RunState
from chargehand.runtime.trace import critical_path
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.plan import Task, TaskId, in_order, needs
from chargehand.terms.policy import Instant, Seconds
from chargehand.terms.roster import USUAL_SECONDS


class Measures:
    """Hears every entry of a run in turn, with the state after it."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.began: Instant = 0.0
        self.costs: dict[str, Amount] = {}
        self.ends: dict[TaskId, Instant] = {}
        self._spent = NOTHING

    def hear(self, state: RunState, entry: ev.Entry) -> None:
        self.timeline.hear(entry)
        self.began = self.began or entry.at
        spent, before = state.ledger.spent, self._spent
        name = part_of(entry.event)
        if spent != before:
            had = self.costs.get(name, NOTHING)
            self.costs[name] = Amount(
                had.tokens + spent.tokens - before.tokens,
                had.micros + spent.micros - before.micros,
                had.calls + spent.calls - before.calls,
            )
            self._spent = spent
        progress = state.tasks.get(TaskId(name))
        if progress is not None and progress.settled:
            self.ends.setdefault(progress.task.id, entry.at)

    def critical(self, state: RunState, now: Instant) -> tuple[TaskId, ...]:
        """The chain of tasks that decides when the run is over: as it was, and as it will be if guesses hold."""
        tasks = [one.task for one in state.tasks.values() if one.mother is None]
        return critical_path(tasks, self._expected(state, tasks, now))

    def _expected(self, state: RunState, tasks: list[Task], now: Instant) -> Mapping[TaskId, Instant]:
        ends: dict[TaskId, Instant] = {}
        for task in in_order(tasks)[0]:
            known = self.ends.get(task.id)
            if known is None:
                begun = self.timeline.begun(task.id)
                start = max([now, *(ends.get(name, now) for name, _ in needs(task))]) if begun is None else begun
                known = max(now, start + _guess(state, task))
            ends[task.id] = known
        return ends


def _guess(state: RunState, task: Task) -> Seconds:
    if task.seconds is not None:
        return task.seconds
    agent = state.agents.get(state.tasks[task.id].worker or task.worker)
    return USUAL_SECONDS if agent is None or agent.seconds is None else agent.seconds


def part_of(event: ev.Event) -> str:
    """The task an event is about, or the duty of the supervisor."""
    task = getattr(event, "task", "")
    if task:
        return task
    match event:
        case ev.TasksAdded():
            return "(plan)"
        case ev.AnswerWritten():
            return "(answer)"
        case ev.SupervisionStarted(duty=duty) | ev.SupervisionFailed(duty=duty):
            return f"({duty})"
        case _:
            return ""
