"""What a live view shows: one row a task, its state in words, and a line about the whole. It is drawn by `live`."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from chargehand.agents.instances import meant
from chargehand.agents.levels import end_of
from chargehand.cli.console import Tone, clean, short
from chargehand.cli.measures import Measures
from chargehand.cli.phrases import dollars
from chargehand.cli.render import seconds
from chargehand.cli.words import SUPERVISOR
from chargehand.core.attempts import breaker_name
from chargehand.core.state import Progress, RunState, Status
from chargehand.terms.breaker import stand
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.plan import TaskId, needs
from chargehand.terms.policy import Instant

MOST = 20
"""How many rows there are before finished ones are only counted."""


class Row(Struct, frozen=True):
    """`name` is what the timeline calls it, `words` the latest that its model has written."""

    name: str
    state: str
    task: str
    worker: str = ""
    tries: str = ""
    tokens: str = ""
    dollars: str = ""
    note: str = ""
    tone: Tone = "plain"
    words: str = ""


_STATES: dict[Status, tuple[str, Tone]] = {
    Status.WAITING: ("○ waits", "dim"),
    Status.READY: ("○ ready", "plain"),
    Status.RUNNING: ("● works", "bold"),
    Status.JUDGED: ("● judged", "warn"),
    Status.REFINING: ("~ refined", "warn"),
    Status.BACKING_OFF: ("↻ retries", "warn"),
    Status.EXPANDED: ("▸ repeats", "plain"),
    Status.ASKING: ("? asks", "warn"),
    Status.DONE: ("✔ done", "good"),
    Status.FAILED: ("✘ failed", "bad"),
    Status.SKIPPED: ("- skipped", "bad"),
    Status.DROPPED: ("- dropped", "dim"),
}
_FIRST = {Status.ASKING: 0, Status.RUNNING: 1, Status.REFINING: 1, Status.JUDGED: 1, Status.BACKING_OFF: 2}


def rows(
    state: RunState, measures: Measures, words: Mapping[str, str], most: int = MOST, now: Instant | None = None
) -> list[Row]:
    """At most `most` rows: where there are more tasks, finished ones are counted, then those that wait."""
    now = state.at if now is None else now
    desk = [_desk(state, measures, duty, now) for duty in ("plan", "answer")]
    tasks = sorted(state.tasks.values(), key=_place)
    tail: list[Row] = []
    if len(tasks) > most:
        settled = [one for one in tasks if one.settled]
        if settled:
            tail.append(_count(settled))
        tasks = sorted((one for one in tasks if not one.settled), key=lambda one: _FIRST.get(one.status, 3))
        if len(tasks) > most:
            tail.append(Row("", "", f"… and {len(tasks) - most} more"))
            tasks = tasks[:most]
    shown = [_row(state, one, measures.costs.get(one.task.id, NOTHING), words, now) for one in tasks]
    return [*(row for row in desk[:1] if row), *tail[:1], *shown, *tail[1:], *(row for row in desk[1:] if row)]


def _place(progress: Progress) -> tuple[int, int]:
    """In the order of the plan, with what came of repeating a task right below it."""
    return (progress.order if progress.mother is None else progress.mother.order, progress.index)


def _count(settled: Sequence[Progress]) -> Row:
    done = sum(one.status is Status.DONE for one in settled)
    failed = f", {len(settled) - done} not done" if len(settled) > done else ""
    return Row("", "✔ done", f"{done} tasks{failed}", tone="warn" if failed else "good")


def _desk(state: RunState, measures: Measures, duty: str, now: Instant) -> Row | None:
    """The supervisor's own work, once there was any."""
    desk, name = (state.planning if duty == "plan" else state.answering), f"({duty})"
    if measures.timeline.begun(name) is None:
        return None
    over = state.closed if duty == "plan" else state.answer is not None
    shown, tone = _STATES[Status.DONE if over else Status.RUNNING if desk.open else Status.WAITING]
    cost = measures.costs.get(name, NOTHING)
    note = f"↻ {short(desk.feedback[0].message, 60)}" if desk.feedback else ""
    if not desk.open and not over and desk.timer > now:
        note = f"↻ again in {desk.timer - now:.0f} s"
    return Row(name, shown, name, SUPERVISOR, str(desk.number), *_spent(cost), note, tone)


def _row(state: RunState, progress: Progress, cost: Amount, words: Mapping[str, str], now: Instant) -> Row:
    task = progress.task
    shown, tone = _STATES[progress.status]
    label = f"{short(task.id, 16)} {short(progress.instruction or task.instruction, 60)}"
    tries = str(progress.attempt) if progress.attempt else ""
    worker = progress.worker or meant(task) or "anybody"
    note = _note(state, progress, now)
    latest = words.get(task.id, "") if progress.status is Status.RUNNING else ""
    return Row(task.id, shown, label, short(worker, 14), tries, *_spent(cost), note, tone, latest)


def _spent(cost: Amount) -> tuple[str, str]:
    tokens = f"{cost.tokens / 1000:.1f}k" if cost.tokens >= 1000 else str(cost.tokens or "")
    return tokens, f"{cost.micros / 1_000_000:.3f}" if cost.micros else ""


def _note(state: RunState, progress: Progress, now: Instant) -> str:
    failure = f"{progress.failure.kind}: {clean(progress.failure.message)}" if progress.failure else ""
    match progress.status:
        case Status.RUNNING:
            under_way = [one.name for one in (progress.steps or {}).values() if one.result is None]
            return ", ".join(map(clean, under_way)) or (f"↻ {failure}" if failure else "")
        case Status.READY:
            return _why_not_started(state, progress, now)
        case Status.WAITING:
            return f"waits for {', '.join(clean(name) for name, _ in needs(progress.task))}"
        case Status.BACKING_OFF if progress.timer > now:
            return f"↻ again in {progress.timer - now:.0f} s: {failure}"
        case Status.BACKING_OFF | Status.REFINING | Status.JUDGED:
            return f"↻ {failure}"
        case Status.EXPANDED:
            return f"{progress.items_done} of {progress.items} items" if progress.items >= 0 else ""
        case Status.ASKING:
            return "a person is asked"
        case Status.DONE:
            return f"↻ {progress.failure.kind}" if progress.failure else ""
        case Status.SKIPPED:
            return f"{progress.skipped}: {clean(progress.because)}" if progress.because else str(progress.skipped)
        case _:
            return failure


def _why_not_started(state: RunState, progress: Progress, now: Instant) -> str:
    """What a task waits for that has all of its inputs."""
    if state.paused:
        return "the run is paused"
    if not state.approved:
        return "waits for approval of the plan"
    if state.running >= state.requested.policy.limits.width:
        return f"{state.running} tasks at once are the most"
    agent = state.agents.get(progress.worker or meant(progress.task))
    if agent is None:
        return ""
    breaker = state.breakers.get(breaker_name(agent))
    if breaker is not None and stand(breaker, now) in ("open", "probing"):
        return f"{short(agent.name, 24)} is out of order for another {max(0.0, breaker.until - now):.0f} s"
    if agent.capacity and state.load.get(agent.name, 0) >= agent.capacity:
        return f"{short(agent.name, 24)} is busy"
    if not state.ledger.covers(agent.estimate, keep=state.requested.budget.floor):
        return "the budget is reserved for calls under way"
    return ""


def title(run: str, state: RunState) -> str:
    """The run and what is going on in it."""
    if (end := end_of(state)) is not None:
        doing = end.ending
    elif state.input is not None:
        doing = "a person is asked"
    elif state.answering.open:
        doing = "answering"
    elif state.planning.open and not state.tasks:
        doing = "planning"
    else:
        doing = "working"
    return f"run {short(run, 40)} · {doing}"


def _shut(state: RunState, now: Instant) -> list[str]:
    """Who is out of order, and for how long."""
    words = {"open": "{} out of order, {:.0f} s", "half-open": "{} out of order", "probing": "{} is tried again"}
    stands = [(name.partition(":")[2], stand(one, now), one.until - now) for name, one in state.breakers.items()]
    return [words[where].format(short(name, 24), left) for name, where, left in stands if where in words]


class Foot:
    """The line about the whole; it remembers the critical path of a run that has ended."""

    def __init__(self) -> None:
        self._path: tuple[TaskId, ...] = ()

    def line(self, state: RunState, measures: Measures, now: Instant) -> str:
        tasks = [one for one in state.tasks.values() if one.mother is None]
        done = sum(one.status is Status.DONE for one in tasks)
        if state.ended is not None and not self._path:  # before that it would be a guess
            self._path = measures.critical(state, now)
        end = state.at if state.ended is not None else max(now, state.at)
        parts = [seconds(end - measures.began), f"{done}/{len(tasks)} done"]
        if len(self._path) > 1:
            path = [short(name, 12) for name in self._path]
            parts.append(f"critical {'→'.join(path if len(path) <= 6 else ['…', *path[-5:]])}")
        spent, cap = state.ledger.micros, state.requested.budget.micros
        if spent or cap is not None:
            parts.append(dollars(spent) + (f" of {dollars(cap)}" if cap is not None else ""))
        parts += _shut(state, now)
        if state.ended is None:
            parts.append("^C stop")
        return " · ".join(parts)
