"""Who is out of order, who is tried again and who works again: said in the journal, once, and shown."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.cli.live_view import view_footer
from chargehand.engine import events as ev
from chargehand.engine.facts import BreakerChanged
from chargehand.engine.fold import begin, fold, replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.runtime.trace import Tracer
from tests.cli.commands import chargehand, script, task
from tests.requests import request
from tests.virtual import Stage

POLICY = Policy(
    retry=Retry(attempts=1), limits=Limits(width=1), breaking=Breaking(consecutive=2, open=30.0), refine=False
)
CREW = Roster((Agent("ann", model="big"),))


def stage(*moves: Move) -> Stage:
    return Stage(ScriptedExecutor(Script({f"t{n}": (move,) for n, move in enumerate(moves)})))


def work(count: int) -> Plan:
    return Plan(tuple(Task(TaskId(f"t{n}"), f"carry out part {n} of the work", "ann") for n in range(count)), "none")


def notes(entries: Sequence[ev.Entry]) -> list[str]:
    return [
        one.event.text
        for one in entries
        if isinstance(one.event, ev.Noted) and isinstance(one.event.fact, BreakerChanged)
    ]


DEAD = Move(fail="network", message="the line is\ndead")
BAD = Move(fail="logic", message="no")
DONE = Move(result=1)


def test_opening_probing_and_closing_are_said_with_who_why_and_until_when() -> None:
    played = stage(DEAD, DEAD, DONE, DONE)
    played.start(request(work(4), CREW, policy=POLICY))
    opened, probed, closed = notes(played.entries["run"])
    assert opened == (
        "breaker open: model big is out of order, 2 failures in a row; it is not asked for 30 s, until 13:47:10 UTC"
        " (network: the line is dead)"
    )
    assert probed == "breaker half-open: model big is tried again, attempt 1 of t2 by ann is the probe"
    assert closed == "breaker closed: model big works again, the probe succeeded"


def test_who_is_not_asked_for_longer_than_any_calendar_lasts_is_told_without_a_date() -> None:
    played = stage(DEAD, DEAD)
    for_good = structs.replace(POLICY, breaking=Breaking(consecutive=2, open=1e300, open_ceiling=1e300))
    played.start(request(work(2), CREW, policy=for_good))
    (opened,) = notes(played.entries["run"])
    assert "UTC" not in opened


def test_a_probe_that_fails_is_said_with_the_longer_wait() -> None:
    played = stage(DEAD, DEAD, DEAD, DONE)
    played.start(request(work(4), CREW, policy=POLICY))
    told = notes(played.entries["run"])
    assert [one.split(":")[0] for one in told] == [
        "breaker open",
        "breaker half-open",
        "breaker open",
        "breaker half-open",
        "breaker closed",
    ]
    assert told[0].startswith("breaker open: model big is out of order")
    assert told[2].startswith("breaker open: the probe of model big failed; it is not asked for 60 s")


def test_each_note_follows_what_it_is_about() -> None:
    played = stage(DEAD, DEAD, DONE)
    played.start(request(work(3), CREW, policy=POLICY))
    entries = played.entries["run"]
    places = [at for at, one in enumerate(entries) if isinstance(one.event, ev.Noted)]
    kinds = [type(entries[at - 1].event) for at in places]
    assert kinds == [ev.AttemptFailed, ev.AttemptStarted, ev.AttemptSucceeded]
    assert [one.seq for one in entries] == list(range(1, len(entries) + 1))


def test_a_share_of_failures_is_counted_as_such() -> None:
    policy = Policy(
        retry=Retry(attempts=1),
        limits=Limits(width=1),
        refine=False,
        breaking=Breaking(consecutive=9, share=0.5, sample=4, open=5.0, window=600.0),
    )
    played = stage(DEAD, DONE, DONE, DEAD, DONE)
    played.start(request(work(5), CREW, policy=policy))
    assert "2 of the last 4 attempts failed" in notes(played.entries["run"])[0]


@pytest.mark.parametrize("moves", [(DEAD, DONE, DONE), (BAD, BAD, BAD)], ids=["one outage", "bad work only"])
def test_nothing_is_said_where_nothing_opens(moves: tuple[Move, ...]) -> None:
    played = stage(*moves)
    played.start(request(work(3), CREW, policy=POLICY))
    assert notes(played.entries["run"]) == []


def test_a_run_resumed_after_any_entry_says_nothing_twice() -> None:
    whole = stage(DEAD, DEAD, DEAD, DONE)
    whole.start(request(work(4), CREW, policy=POLICY))
    entries = whole.entries["run"]
    for at in range(2, len(entries)):
        again = stage(DEAD, DEAD, DEAD, DONE)

        async def put(at: int = at, again: Stage = again) -> None:
            lease = await again.journal.claim("run", new=True)
            await again.journal.append(lease, entries[:at])
            await again.journal.release(lease)

        again.play(put)
        again.resume()
        told = notes([*entries[:at], *again.entries["run"]])
        opened = [one for one in told if one.startswith("breaker open")]
        assert len(opened) == len(set(opened)) <= 2, at
        cut_off = isinstance(entries[at - 1].event, ev.AttemptSucceeded)  # they are written together, but for this test
        assert sum(one.startswith("breaker closed") for one in told) == (not cut_off), at


def test_the_notes_change_nothing_that_is_decided() -> None:
    played = stage(DEAD, DEAD, DONE)
    played.start(request(work(3), CREW, policy=POLICY))
    entries = played.entries["run"]
    state = begin(entries[0])
    for entry in entries[1:]:
        if not isinstance(entry.event, ev.Noted):
            fold(state, entry)
    assert state.breakers == replay(entries).breakers


# --- shown


def test_runs_show_tells_them_whole(tmp_path: Path) -> None:
    policy = {"retry": {"attempts": 1}, "breaking": {"consecutive": 2, "open": 0.05}, "limits": {"width": 1}}
    moves = {f"t{n}": [{"fail": "network", "message": "the line went dead"}] for n in range(2)}
    file = script(tmp_path, *(task(f"t{n}") for n in range(3)), policy=policy, moves=moves)
    chargehand(tmp_path, "play", file, "--run", "dead")
    shown = chargehand(tmp_path, "runs", "show", "dead").stdout
    assert "breaker open: worker ann is out of order, 2 failures in a row; it is not asked for" in shown
    assert "UTC (network: the line went dead)" in shown
    assert "breaker half-open: worker ann is tried again, attempt 1 of t2 by ann is the probe" in shown
    assert "breaker closed: worker ann works again, the probe succeeded" in shown


def test_the_live_view_says_who_is_out_of_order() -> None:
    played = stage(DEAD, DEAD, DONE)
    played.start(request(work(3), CREW, policy=POLICY))
    tracer = Tracer("run", played.entries["run"][0])
    feet: list[str] = []
    for entry in played.entries["run"][1:]:
        tracer.record(entry)
        feet.append(view_footer(tracer, entry.at))
    assert any("big is out of order" in foot for foot in feet)
    assert "big" not in feet[-1]
