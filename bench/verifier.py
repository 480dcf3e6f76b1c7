"""`python -m bench.verifier [--local NAME]`: how many wrong results checks notice, how many right ones they refuse.

Rules and the demo verifier always; a local model if one is named, for so many `--seconds` at most.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from bench.verifier_cases import CASES, KINDS, Seeded
from chargehand.agents.checks import Check, Verifier
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.messages import Request
from chargehand.models.model import Model
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team

ONCE = Policy(retry=Retry(attempts=1, fallback_attempts=1))


class Caught(Struct):
    """Of each kind of mistake: how many results had it, and how many of them were refused. `right`: false alarms."""

    wrong: dict[str, list[bool]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    right: list[bool] = []
    misses: list[str] = []

    @property
    def rate(self) -> float:
        every = [one for found in self.wrong.values() for one in found]
        return sum(every) / len(every) if every else 0.0

    def told(self) -> str:
        kinds = ", ".join(f"{kind} {sum(found)}/{len(found)}" for kind, found in self.wrong.items() if found)
        return f"{self.rate:.0%} of the wrong ones ({kinds}); false alarms {sum(self.right)}/{len(self.right)}"


async def refused(case: Seeded, text: str, checks: Mapping[str, Check], judge: Model | str = "demo") -> bool:
    """Whether a team with these checks lets this result count as done."""

    def said(request: Request) -> str:
        assert isinstance(request.subject, Working)
        return case.source if request.subject.worker.name == "source" else text or " \u200b"

    model = ScriptedModel(said)
    workers = (Worker("source", model=model), Worker("worker", model=model, accept=tuple(checks)))
    first = Task(TaskId("t1"), "Hand over what there is to work from.", "source")
    task = Task(TaskId("t2"), case.instruction, "worker", after=(first.id,))
    team = Team(
        workers, supervisor=Supervisor(judge=judge, plan=Plan((first, task), "none")), policy=ONCE, checks=checks
    )
    found = await team.run(case.instruction)
    return "t2" not in found.results


async def measured(judge: Model | str | None, until: float = float("inf")) -> Caught:
    """What the checks of each case notice; with a `judge`, what a verifier does instead."""
    found = Caught()
    for kind in (*KINDS, ""):
        for case in CASES:
            checks = case.checks if judge is None else {"verifier": Verifier()}
            for text in (case.wrong[kind],) if kind else case.right:
                if time.monotonic() > until:
                    return found
                no = await refused(case, text, checks, judge or "demo")
                (found.wrong[kind] if kind else found.right).append(no)
                if no != bool(kind):
                    found.misses.append(f"{case.name}/{kind or 'right'}: {text[:80]}")
    return found


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--local", default="", help="a local model that is pulled, e.g. qwen-coder-1.5b")
    options.add_argument("--seconds", type=float, default=180.0, help="the most time for the local model")
    given = options.parse_args()
    print("rules:           ", (await measured(None)).told())
    by_demo = await measured("demo")
    print("demo verifier:", by_demo.told(), *by_demo.misses, sep="\n  ")
    if given.local:
        from chargehand.models.local import LocalModel  # an extra

        usual = Path(__file__).parents[1] / ".venv" / "models"
        model = LocalModel(given.local, folder=Path(os.environ.get("CHARGEHAND_MODELS") or usual))
        try:
            local = await measured(model, time.monotonic() + given.seconds)
            print(f"{given.local}:", local.told())
        finally:
            await model.close()


if __name__ == "__main__":
    asyncio.run(main())
