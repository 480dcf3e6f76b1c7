"""A worker that keeps failing is left alone for a while, then tried again: `python examples/exercises/breaker.py`.

Its service is down for the first half second. Twelve tasks need it, one after the other, with a breaker and without.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import time

from chargehand import Failure, Plan, Policy, Request, Result, Retry, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.engine.policy import Breaking

DOWN = 0.5
TASKS = 12
WITH = Breaking(consecutive=3, open=0.6)
WITHOUT = Breaking(consecutive=1_000_000, sample=1_000_000)


class Service:
    """Down for a while from its first call on. It keeps when it was called, and whether that was in vain."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, bool]] = []
        self._first: float | None = None

    def __call__(self, _request: Request) -> str | Failure:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        since = now - self._first
        self.calls.append((since, since < DOWN))
        return Failure("network", "the service is down") if since < DOWN else "Weighed."


def run(breaking: Breaking, service: Service) -> Result:
    tasks = tuple(Task(f"t{number}", f"Weigh parcel {number}.", "scales") for number in range(1, TASKS + 1))
    scales = Worker("scales", "weighs parcels", model=ScriptedModel(service, handle="weigher"), concurrency=1)
    policy = Policy(retry=Retry(base=0.002), breaking=breaking)
    return Team([scales], supervisor=Supervisor(plan=Plan(tasks, "none")), policy=policy).run_sync(
        "How heavy are the parcels?"
    )


def show(title: str, breaking: Breaking) -> None:
    service = Service()
    result = run(breaking, service)
    lost = sum(vain for _, vain in service.calls)
    print(f"{title}: {len(service.calls)} calls, {lost} in vain; {len(result.results)} of {TASKS} tasks done")
    for note in result.trace().notes:
        print(f"  {note.at:.2f} s  {note.task}: {note.text}")


if __name__ == "__main__":
    show("without a breaker", WITHOUT)
    show("with one", WITH)
