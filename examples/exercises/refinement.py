"""A task that failed is put better, with the error in view: `python examples/exercises/refinement.py`.

The first one works on its second attempt. The second one never does, and is given up after the third.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

from datetime import date, timedelta

from chargehand import Plan, Result, Supervisor, Task, Team, ToolFailed, Worker, tool

RATES = {"2026-05-28": 1.1871, "2026-05-29": 1.1939}


@tool
def exchange_rate(day: str) -> str:
    """What one euro cost in US dollars on a day, like 2026-05-29."""
    if day not in RATES:
        raise ToolFailed(f"no rate for {day}; the nearest day with one is {max(one for one in RATES if one < day)}")
    return f"One euro was {RATES[day]} US dollars on {day}."


@tool
def stock_price(day: str) -> str:
    """What a share cost on a day, like 2026-05-29."""
    before = date.fromisoformat(day) - timedelta(days=1)
    raise ToolFailed(f"the exchange published nothing for {day}; the nearest earlier day is {before}")


def run(worker: Worker, instruction: str) -> Result:
    """One task for one worker; the demo model works, and puts the task better."""
    return Team(
        [worker], supervisor=Supervisor(plan=Plan((Task("t1", instruction, worker.name),), "forward"))
    ).run_sync(instruction)


def show(result: Result) -> None:
    (task,) = result.trace().tasks
    for attempt in task.attempts:
        print(f"attempt {attempt.attempt}: {attempt.instruction}")
        print(f"  {attempt.failure.kind}: {attempt.failure.message}" if attempt.failure else "  it worked")
    print(f"{result.ending}: {result.answer}\n")


if __name__ == "__main__":
    treasurer = Worker("treasurer", "knows exchange rates", tools=[exchange_rate])
    show(run(treasurer, "Look up the exchange rate on 2026-05-30."))
    broker = Worker("broker", "knows share prices", tools=[stock_price])
    show(run(broker, "Look up the stock price on 2026-05-30."))
