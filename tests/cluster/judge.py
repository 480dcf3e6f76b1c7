"""What must hold of a cluster, whatever happened to it: the journal is compared with the log of calls from outside."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.state import RunState, Status
from chargehand.journal.store import list_runs, read_run
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.driver import connect
from chargehand.store_url import postgres_url
from tests.cluster.outside import Call

_RECORDED = re.compile(rb"errand (\S+) part p(\d+) turn t(\d+)")
_CALLS = ("model", "tool")
_AFTER_RETURN = 5.0
"""Within so many seconds a process that came back has noticed that it was replaced: its next write is refused."""
_EPOCHS_GO_BACK = """
    SELECT run, seq FROM (
        SELECT run, seq, epoch, lag(epoch) OVER (PARTITION BY run ORDER BY seq) AS before FROM chargehand.entries
    ) AS numbered WHERE epoch < before
"""


class Key(Struct, frozen=True):
    """One call, as often as it is made."""

    what: str
    errand: str
    part: int
    turn: int


class Verdict(Struct):
    """What was found. Everything but the counts at the top must be empty."""

    runs: int = 0
    calls: int = 0
    """Calls that ended."""
    in_flight: int = 0
    """Calls that were made again, which is right: their result was not recorded when the repetition began."""
    after_return: int = 0
    """Calls that a process began when it was let go on, or had its network back, before it noticed that another had its
    runs. Only calls that cost nothing and change nothing are begun before the journal agrees."""
    takeovers: int = 0
    repeated: list[str] = field(default_factory=list[str])
    """Calls that began after their result had been recorded."""
    recorded_twice: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    """Runs that were acknowledged and are not there, or without a result that they had."""
    not_ended: list[str] = field(default_factory=list[str])
    not_complete: list[str] = field(default_factory=list[str])
    epochs_go_back: list[str] = field(default_factory=list[str])

    @property
    def problems(self) -> list[str]:
        named = {
            "made again though recorded": self.repeated,
            "recorded twice": self.recorded_twice,
            "lost": self.lost,
            "not ended": self.not_ended,
            "not complete": self.not_complete,
            "an epoch went back": self.epochs_go_back,
        }
        return [f"{name}: {problem}" for name, problems in named.items() for problem in problems]

    def __str__(self) -> str:
        again = self.in_flight / max(1, self.calls)
        counts = f"{self.runs} runs, {self.takeovers} takeovers, {self.calls} calls, {self.in_flight} in flight"
        late = f", {self.after_return} of them by a process that came back" if self.after_return else ""
        return f"{counts} made again ({again:.1%}){late}, {len(self.problems)} problems"


def judge(
    store: str,
    superuser: str,
    calls: Sequence[Call],
    acknowledged: Mapping[str, int],
    returns: Mapping[str, Sequence[float]],
) -> Verdict:
    """`acknowledged` are runs that a server accepted, with the number of their tasks.

    `superuser` is a URL of the same database for a role that sees the rows of every tenant. `returns` are the
    moments at which processes that had been frozen or cut off were let go on, by name.
    """
    verdict = Verdict(runs=len(acknowledged), calls=sum(call.phase == "end" for call in calls))
    recorded: dict[Key, float] = {}
    names = {row.run for row in list_runs(store)}
    for run in sorted(names):
        entries = read_run(store, run)
        state = replay(entries)
        verdict.takeovers += sum(isinstance(entry.event, ev.RunResumed) for entry in entries)
        _note_recorded(run, entries, recorded, verdict)
        if run in acknowledged:
            _check_end(run, state, acknowledged[run], verdict)
    verdict.lost += [f"{run} is not in the journal" for run in acknowledged if run not in names]
    _compare_calls(calls, recorded, returns, verdict)
    verdict.epochs_go_back = epochs_that_go_back(superuser)
    return verdict


def _note_recorded(run: str, entries: Sequence[ev.Entry], recorded: dict[Key, float], verdict: Verdict) -> None:
    kinds: dict[tuple[str, int, int], str] = {}
    finished: Counter[tuple[str, int, int]] = Counter()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepStarted):
            kinds[event.task, event.attempt, event.step] = event.kind
        elif isinstance(event, ev.AttemptFailed):
            _forget(recorded, entries, event.task)
        elif isinstance(event, ev.StepFinished):
            place = (event.task, event.attempt, event.step)
            finished[place] += 1
            found = _RECORDED.search(bytes(event.result))
            if found is None or kinds[place] not in _CALLS:  # the result of a run inside it is no call of its own
                continue
            key = Key(kinds[place], found[1].decode(), int(found[2]), int(found[3]))
            if key in recorded:
                verdict.recorded_twice.append(f"{key} in {run}, entry {entry.seq}")
            recorded[key] = entry.at
    verdict.recorded_twice += [f"step {place} of {run}" for place, times in finished.items() if times > 1]


def _forget(recorded: dict[Key, float], entries: Sequence[ev.Entry], task: str) -> None:
    """The next attempt of a failed one begins anew: what it recorded may be asked for again."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepFinished) and event.task == task:
            found = _RECORDED.search(bytes(event.result))
            if found is not None:
                for what in _CALLS:
                    recorded.pop(Key(what, found[1].decode(), int(found[2]), int(found[3])), None)


def _check_end(run: str, state: RunState, tasks: int, verdict: Verdict) -> None:
    if state.ended is None:
        verdict.not_ended.append(run)
        return
    if state.ended.ending != "complete":
        gaps = "; ".join(gap.message for gap in state.ended.gaps[:3])
        verdict.not_complete.append(f"{run} is {state.ended.ending} ({state.ended.reason}): {gaps}")
    done = sum(progress.status is Status.DONE and progress.result is not None for progress in state.tasks.values())
    if done != tasks and state.ended.ending == "complete":
        verdict.lost.append(f"{run} has {done} results of {tasks}")


def _compare_calls(
    calls: Sequence[Call], recorded: Mapping[Key, float], returns: Mapping[str, Sequence[float]], verdict: Verdict
) -> None:
    begun: Counter[Key] = Counter()
    for call in calls:
        if call.phase != "begin":
            continue
        key = Key(call.what, call.errand, call.part, call.turn)
        begun[key] += 1
        if key not in recorded or call.at <= recorded[key]:
            continue
        if any(0 <= call.at - back < _AFTER_RETURN for back in returns.get(call.process, ())):
            verdict.after_return += 1
        else:
            verdict.repeated.append(f"{key}: recorded {call.at - recorded[key]:.2f} s before, now by {call.process}")
    verdict.in_flight = sum(times - 1 for times in begun.values())
    ended = {Key(call.what, call.errand, call.part, call.turn) for call in calls if call.phase == "end"}
    verdict.lost += [f"{key} is recorded and was never made" for key in recorded if key not in ended]


def epochs_that_go_back(superuser: str) -> list[str]:
    """Entries that were written under an older lease than the one before: two drivers wrote in turns."""

    async def look() -> list[str]:
        connection = await connect(postgres_url(superuser))
        try:
            return [f"run number {run}, entry {seq}" for run, seq in await connection.fetch(_EPOCHS_GO_BACK)]
        finally:
            connection.terminate()

    return client_thread().wait(look())
