"""Who does it when the one who should cannot, or does not exist: `python examples/exercises/fallback.py`.

A worker whose model is dead hands over to its fallback. A route to somebody unknown ends with the generalist.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

from chargehand import Failure, Plan, Policy, Retry, Route, ScriptedModel, Supervisor, Task, Team, Worker, tool


@tool
def almanac(island: str) -> str:
    """What the printed almanac says about ferries that go to an island: Hiiumaa or Vormsi."""
    return f"Three ferries a day go to {island}."


def handed_over() -> None:
    dead = ScriptedModel([Failure("network", "the line is dead")], repeat=True)
    team = Team(
        [
            Worker("scout", "looks things up on the web", model=dead, fallbacks=["librarian"]),
            Worker("librarian", "looks things up in print", tools=[almanac]),
        ],
        supervisor=Supervisor(plan=Plan((Task("ferries", "How many ferries go to Hiiumaa?", "scout"),), "forward")),
        policy=Policy(retry=Retry(base=0.01)),
    )
    result = team.run_sync("How many ferries go to Hiiumaa?")
    for attempt in result.trace().tasks[0].attempts:
        print(
            f"attempt {attempt.attempt} by {attempt.worker}: {attempt.failure.message if attempt.failure else 'done'}"
        )
    print(f"{result.ending}: {result.answer}\n")


def to_nobody() -> None:
    router = ScriptedModel(
        ['{"reason": "It is about stars.", "primary": "astrologer", "secondary": null, "confidence": 0.9}'], repeat=True
    )
    desk = ScriptedModel(["Nobody here reads the stars. The observatory opens at nine."])
    team = Team(
        [
            Worker("research", "finds facts"),
            Worker("code", "writes programs"),
            Worker("desk", "answers everything else", model=desk),
        ],
        supervisor=Supervisor(planner=router, strategy=Route(router="model", generalist="desk")),
    )
    result = team.run_sync("What do the stars say about Tuesday?")
    trace = result.trace()
    for duty in trace.supervision:
        for finding in duty.findings:
            print(f"the router is told: {finding.message}")
    print(f"after {len(router.requests)} replies: {trace.tasks[0].worker} gets the whole request")
    print(f"{result.ending}: {trace.tasks[0].worker} says: {result.answer}")


if __name__ == "__main__":
    handed_over()
    to_nobody()
