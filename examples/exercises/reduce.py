"""More results than the model can read, reduced piece by piece to one answer: `python examples/exercises/reduce.py`.

Twelve weather stations return long logs. In each one line matters, and all twelve must be in the answer.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import re
from random import Random

from chargehand import Failure, ModelCard, Plan, Request, Result, ScriptedModel, Supervisor, Task, Team, Worker

# the window in tokens of four characters
STATIONS = 12
LINES = 375
WINDOW = 4000
STATION = re.compile(r"Read the log of station (\d+)\.")
GUST = re.compile(r"Station \d+ had a gust of \d+ km/h at \d\d:\d\d\.")


def log(request: Request) -> str:
    """The log a worker returns: calm readings and, somewhere among them, one gust."""
    number = int(STATION.findall(request.messages[-1].text)[0])
    chance = Random(number)  # noqa: S311 - weather, no secret
    lines = [f"Station {number}: wind {chance.randint(5, 60)} km/h, calm." for _ in range(LINES)]
    gust = chance.randint(101, 160)
    hour = chance.randint(0, 23)
    minute = chance.randint(0, 59)
    lines[chance.randrange(LINES)] = f"Station {number} had a gust of {gust} km/h at {hour:02}:{minute:02}."
    return "\n".join(lines)


class Reader:
    """What a model with a small window does: it refuses what does not fit, and picks the gusts out of what does."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.reductions = 0

    def __call__(self, request: Request) -> str | Failure:
        self.sizes.append(sum(len(one.text) for one in request.messages) // 4)
        if self.sizes[-1] > WINDOW:
            return Failure("logic", f"{self.sizes[-1]} tokens do not fit into {WINDOW}", permanent=True)
        self.reductions += request.messages[0].text.startswith("Shorten")
        return " ".join(GUST.findall(request.messages[-1].text)) or "All was calm."


def run(reader: Reader) -> Result:
    judge = ScriptedModel(reader, card=ModelCard("small", window=WINDOW))
    tasks = tuple(Task(f"t{one}", f"Read the log of station {one}.", "keeper") for one in range(1, STATIONS + 1))
    keeper = Worker("keeper", "reads logs", model=ScriptedModel(log))
    return Team([keeper], supervisor=Supervisor(judge=judge, plan=Plan(tasks, "reduce"))).run_sync(
        "Which gusts were there?"
    )


if __name__ == "__main__":
    model = Reader()
    result = run(model)
    returned = "".join(str(one) for one in result.results.values())
    print(f"{len(result.results)} results, {len(returned) // 4} tokens; the window has {WINDOW}")
    print(f"{model.reductions} reductions and an answer; the largest call had {max(model.sizes)} tokens")
    lost = [one for one in GUST.findall(returned) if one not in str(result.answer)]
    print(f"{len(GUST.findall(returned))} gusts in the results, {len(lost)} of them not in the answer\n")
    print(result.answer)
