"""Any run can be told, at any moment of it: those of the simulation hold nearly everything that can happen."""

import io
from typing import get_args

from chargehand.cli.console import Console
from chargehand.cli.tale import Tale
from chargehand.terms.events import Entry, Event, Noted
from chargehand.terms.plan import TaskId
from tests.sim.run import Case, play


def told(entries: list[Entry]) -> list[str]:
    page = io.StringIO()
    tale = Tale(Console(page), Console(page), jsonl=False)
    tale.hear("run", entries)
    tale.close()
    return page.getvalue().splitlines()


def test_any_run_can_be_told_at_any_moment() -> None:
    met: set[str] = set()
    for seed in range(80):
        entries = play(Case(seed).plot())
        met.update(type(entry.event).__name__ for entry in entries)
        whole = told(entries)
        assert sum(" s  " in line for line in whole) >= len(entries) - 1  # one line an event, but for the request
        assert any(line.startswith("ending: ") and "not yet" not in line for line in whole)
        for cut in {1, len(entries) // 3, len(entries) // 2, len(entries) - 1} - {0}:
            assert any(line.startswith("ending: not yet") for line in told(entries[:cut]))
    unmet = {shape.__name__ for shape in get_args(Event)} - met
    assert unmet <= {"Noted", "PromptSent", "ResultsOffered", "ResultReused"}


def test_a_note_is_told_beside_its_task() -> None:
    first = play(Case(0).plot())[0]
    lines = told([first, Entry(2, first.at + 1, Noted("half way", TaskId("t0"), 1))])
    assert any(line.startswith("    1.00 s  t0") and line.endswith("note: half way") for line in lines)
