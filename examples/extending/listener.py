"""Listeners: told every entry of every run once it is written. In a server: `serve --plugin listener:count_events`."""

from collections import Counter
from collections.abc import Sequence

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.engine.events import Entry

counts: Counter[str] = Counter()


def count_events(_run: str, entries: Sequence[Entry]) -> None:
    counts.update(type(entry.event).__name__ for entry in entries)


writer = Worker("writer", "writes", model=ScriptedModel(["Done."]))
team = Team([writer], supervisor=Supervisor(plan=Plan((Task("t1", "Write.", "writer"),), "forward")))
team.add_listener(count_events)
if __name__ == "__main__":
    team.run_sync("Write.")
    print(dict(counts))
