"""One request put to one worker several times: side by side, judged or voted on, within the budget."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import convert

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Route
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.artifacts import Product
from chargehand.models.local import LocalModel, pull
from chargehand.models.messages import Request, Settings
from chargehand.models.request_facts import Judging, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import of_kind
from tests.agents.options import make_team

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
GOAL = "Count the apples in the cellar."
RULES = {"apples": "ann"}
ONCE = Policy(retry=Retry(attempts=1))


def sample(request: Request) -> int:
    """Which sample is asked for."""
    assert isinstance(request.subject, Working)
    return int(request.subject.instruction.partition("sample S")[2].rstrip(".") or 1)


def speaker(said: Sequence[Line], winner: str = "t2") -> ScriptedModel:
    def script(request: Request) -> Line:
        if isinstance(request.subject, Judging):
            return json.dumps({"why": "It says where.", "winner": winner})
        return said[sample(request) - 1]

    return ScriptedModel(script)


def team(script: ScriptedModel, strategy: Route, **more: object) -> Team:
    workers = (Worker("ann", "counts apples"), Worker("bob", "writes letters"))
    options = {"journal": MemoryJournal(), "policy": ONCE} | more
    return make_team(workers, model=script, strategy=strategy, **options)


def notes(found: Result) -> str:
    return "\n".join(one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted))


def judged(script: ScriptedModel) -> list[Judging]:
    return [one.subject for one in script.requests if isinstance(one.subject, Judging)]


async def test_a_judge_picks_one_of_several_samples_word_for_word_and_says_why() -> None:
    script = speaker(["12", "12 in the cellar", "many"])
    found = await team(script, Route("rules", RULES, samples=3)).run(GOAL)
    assert found.ending == "complete"
    assert found.answer == "12 in the cellar\n\nChosen from 3 results: [t2]. Why: It says where."
    assert "Chosen from 3 results: [t2]" in notes(found)
    assert [one.worker for one in found.plan.tasks] == ["ann"] * 3
    assert len({one.instruction for one in found.plan.tasks}) == 3
    assert all(one.instruction.startswith(f"{GOAL}\n\n") for one in found.plan.tasks)
    assert all(not one.after for one in found.plan.tasks)
    assert not [one for duty in found.trace().supervision for one in duty.findings], "no plan asks for the same twice"


async def test_a_team_may_have_its_samples_voted_on() -> None:
    script = speaker(["12", "13", "There are 12."])
    found = await team(script, Route("rules", RULES, samples=3), combine="vote").run(GOAL)
    assert str(found.answer).startswith("12\n\n2 of 3 results agree: [t1], [t3].")
    assert not judged(script)


async def test_samples_that_are_the_same_count_as_one() -> None:
    script = speaker(["12", " 12\n", "12"])
    found = await team(script, Route("rules", RULES, samples=3)).run(GOAL)
    assert found.answer == "12\n\nAll 3 results are the same: [t1], [t2], [t3]."
    assert not judged(script)
    script = speaker(["12", "13", "12"])
    found = await team(script, Route("rules", RULES, samples=3)).run(GOAL)
    assert found.answer == "13\n\nChosen from 3 results, of which 2 differ: [t2]. Why: It says where."
    assert [one.task for one in judged(script)[0].results] == ["t1", "t2"]


@pytest.mark.parametrize(("most", "count"), [(2, 1), (4, 2), (20, 3)])
async def test_what_cannot_be_paid_for_is_not_sampled_but_one_is(most: int, count: int) -> None:
    script = speaker(["12", "13", "14"])
    found = await team(script, Route("rules", RULES, samples=3), budget=Budget(calls=most)).run(GOAL)
    assert len(found.plan.tasks) == count
    assert (found.ending, found.gaps) == ("complete", ())
    assert found.spent.calls <= most
    assert (f"{count} of 3 samples" in notes(found)) == (count < 3)


async def test_what_a_worker_is_estimated_at_says_how_many_samples_there_are() -> None:
    ann = Worker("ann", "counts apples", estimate=Amount(tokens=40_000))
    script = speaker(["12", "13", "14"])
    strategy = Route("rules", RULES, samples=3)
    found = await Team(
        (ann,), supervisor=Supervisor(model=script, strategy=strategy), budget=Budget(tokens=100_000)
    ).run(GOAL)
    assert len(found.plan.tasks) == 2


async def test_a_sample_that_fails_is_a_gap_and_the_others_are_judged() -> None:
    script = speaker(["12", Failure("logic", "the light is out", permanent=True), "14"], winner="t3")
    found = await team(script, Route("rules", RULES, samples=3)).run(GOAL)
    assert found.ending == "partial"
    assert str(found.answer).startswith("14\n\nChosen from 2 results: [t3].")
    assert "t2: the light is out" in str(found.answer)
    again = Policy(retry=Retry(attempts=1), limits=Limits(replans=1))
    script = speaker(["12", Failure("logic", "dark", permanent=True)], "t1")
    both = await team(script, Route("rules", RULES, samples=2), policy=again).run(GOAL)
    assert str(both.answer).startswith("12")
    assert both.plan.combine == "select"


async def test_samples_of_an_earlier_run_are_used_again() -> None:
    journal = MemoryJournal()
    first = speaker(["12", "12 in the cellar", "many"])
    whole = await team(first, Route("rules", RULES, samples=3), journal=journal, cache=60.0).run(GOAL)
    second = speaker(["no", "no", "no"])
    found = await team(second, Route("rules", RULES, samples=3), journal=journal, cache=60.0).run(GOAL)
    assert found.answer == whole.answer
    assert [type(one.subject) for one in second.requests] == [Judging]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (Route(samples=0), r"strategy=Route\(samples=0\) cannot be: must be int >= 1"),
        (Route(samples=11), r"strategy=Route\(samples=11\) cannot be: must be int <= 10"),
        (Route(samples=2, secondary=True), "samples and a secondary worker"),
    ],
)
def test_samples_that_cannot_be_are_refused(strategy: Route, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        team(speaker([]), strategy)


@pytest.mark.thorough
async def test_a_real_model_is_sampled_and_judges_and_what_it_picks_stands_word_for_word() -> None:
    pull("smollm2-135m", MODELS)
    local = LocalModel("smollm2-135m", folder=MODELS)
    warm = Settings(temperature=0.9, max_tokens=24)
    try:
        ann = Worker("ann", "writes short sentences about the sea", settings=warm)
        strategy = Route("rules", {"sea": "ann"}, samples=2)
        judge = Settings(temperature=0.0, max_tokens=160)
        found = await Team(
            (ann,), supervisor=Supervisor(model=local, strategy=strategy, settings=judge), policy=ONCE
        ).run("Describe the sea.")
        said = [convert(one, Product).text for one in found.results.values()]
        if said:  # a model this small may send nothing that can be used
            assert any(str(found.answer).startswith(one) for one in said), found.answer
        else:
            assert found.ending == "failed"
    finally:
        await local.close()
