"""Old journals: every later version reads them, sees the same in them, and can carry them on from any entry."""

import msgspec
import pytest
from msgspec import Raw, structs

from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.events import VERSIONS
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.value import decode_value
from chargehand.errors import Corrupt
from chargehand.journal.codec import TAGS, UPCASTS, encode
from chargehand.runtime.executor import Done, Proposal, StepContext
from chargehand.runtime.runner import outcome
from tests.histories.kept import Line, entries_of, expected_of, names, read_expected, read_lines, tags
from tests.virtual import Stage

NAMES = names()


class Understudy(ScriptedExecutor):
    """Takes over a run it did not begin: plans what the history planned, and returns what it returned."""

    def __init__(self, entries: list[ev.Entry]) -> None:
        super().__init__(Script())
        self._tasks: dict[TaskId, Task] = {}
        self._results: dict[TaskId, object] = {}
        for entry in entries:
            if isinstance(entry.event, ev.TasksAdded):
                self._tasks.update((task.id, task) for task in entry.event.tasks)
            elif isinstance(entry.event, ev.AttemptSucceeded):
                self._results[entry.event.task] = decode_value(entry.event.result)

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        known = {task.id for task in brief.tasks}
        return Proposal(tuple(task for task in self._tasks.values() if task.id not in known))

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        if brief.work.task in self._results:
            return Done(self._results[brief.work.task])
        return await super().attempt(brief, context)


def history(name: str) -> list[ev.Entry]:
    return entries_of(read_lines(name), name)


def carried_on(entries: list[ev.Entry], executor: ScriptedExecutor) -> list[ev.Entry]:
    """What a process that finds these entries makes of them, with a person who says yes to everything."""
    stage = Stage(executor)
    stage.loop.now = max(stage.loop.now, entries[-1].at)

    async def restore() -> None:
        lease = await stage.journal.claim("run", new=True)
        await stage.journal.append(lease, entries)
        await stage.journal.release(lease)

    stage.play(restore)
    found = stage.resume()
    while found.question is not None:
        number = found.question.number
        answers = {
            "effect": ev.InputAnswered(number, "done", result="a person says so"),
            "question": ev.InputAnswered(number, "answer", result="blue"),
        }
        found = stage.resume(answers.get(found.question.what, ev.InputAnswered(number, "approve")))
    written = stage.play(lambda: stage.journal.read("run"))
    again = outcome("run", replay(written))
    assert structs.replace(found, state=again.state) == again
    return written


def test_there_are_histories_of_every_kind_of_event() -> None:
    assert len(NAMES) >= 30
    assert set[str]().union(*(tags(history(name)) for name in NAMES)) == set(TAGS.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_old_journal_means_what_it_meant(name: str) -> None:
    found = expected_of(replay(history(name)))
    expected = read_expected(name)
    assert structs.replace(found, numbers={}) == structs.replace(expected, numbers={})
    # a number that is left out must not come to mean another; a new one may be added
    assert {place: found.numbers.get(place) for place in expected.numbers} == expected.numbers


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_would_be_written_the_same_today(name: str) -> None:
    for line, entry in zip(read_lines(name), history(name), strict=True):
        if line.version == VERSIONS.get(TAGS[type(entry.event)], 1):
            assert encode(entry.event) == bytes(line.event)


@pytest.mark.parametrize("name", NAMES)
def test_an_old_journal_is_carried_on_from_every_entry(name: str) -> None:
    entries = history(name)
    executor = Understudy(entries)
    for cut in range(1, len(entries)):
        written = carried_on(entries[:cut], executor)
        assert written[:cut] == entries[:cut]
        assert [entry.seq for entry in written] == list(range(1, len(written) + 1))
        assert isinstance(written[-1].event, ev.RunEnded)
        assert replay(written).ledger.reserved == ev.Amount()


# --- a shape that changed, made up for the occasion


def as_it_once_was(line: Line) -> Line:
    """A retry as an imagined first version wrote it: under another name, with the wait in milliseconds."""
    fields = msgspec.json.decode(bytes(line.event), type=dict[str, object])
    if fields["type"] != "task.retry_scheduled":
        return line
    fields["type"] = "task.again"
    fields["after_ms"] = float(str(fields.pop("after"))) * 1000
    return Line(line.seq, line.at, 1, Raw(msgspec.json.encode(fields)))


def renamed(fields: dict[str, object]) -> dict[str, object]:
    return {**fields, "type": "task.retry_scheduled"}


def in_seconds(fields: dict[str, object]) -> dict[str, object]:
    after = float(str(fields.pop("after_ms"))) / 1000
    return {**fields, "after": after}


def test_an_older_shape_is_brought_up_to_date_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [as_it_once_was(line) for line in read_lines("retries")]
    assert lines != read_lines("retries")
    with pytest.raises(Corrupt, match=r"run 'retries' is a 'task.again' of version 1.*does not know it"):
        entries_of(lines, "retries")
    monkeypatch.setitem(VERSIONS, "task.retry_scheduled", 3)
    monkeypatch.setitem(UPCASTS, ("task.again", 1), renamed)
    monkeypatch.setitem(UPCASTS, ("task.retry_scheduled", 2), in_seconds)
    found = entries_of(lines, "retries")
    monkeypatch.undo()
    assert found == history("retries")


def test_a_shape_of_the_future_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_lines("retries")
    lines[5] = Line(lines[5].seq, lines[5].at, 2, lines[5].event)
    with pytest.raises(Corrupt, match=r"entry 6 of run 'retries' .*version 2.*upgrade chargehand"):
        entries_of(lines, "retries")
