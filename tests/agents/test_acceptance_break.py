"""Checks that are wrong themselves, that change what they look at, and what is kept of a result that was refused."""

from pathlib import Path
from typing import Any

import pytest

from chargehand.agents.checks import Check, Rule, Verifier
from chargehand.agents.checks.run import read_verdict
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.json_schema import problems
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.memory.catalog import Memory
from chargehand.models.demo.model import DemoModel
from chargehand.team import Team
from tests.agents.crowd import model
from tests.agents.test_acceptance import LONG, ONE, QUICK, YES, executor, no, steps


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (Rule(contains=""), "without a word in it"),
        (Rule(contains=("apples", " ")), "without a word in it"),
        ({}, "lets everything pass"),
        ({"type": "strnig"}, "is 'strnig'; 'type' takes array, boolean, integer"),
        ({"properties": {"type": {"type": ["string", "nul"]}}}, r"\$.properties.type.type is .'string', 'nul'."),
        (object, "no schema can be made of it"),
    ],
)
def test_a_check_that_would_let_pass_or_fail_everything_is_refused_at_once(check: Check, why: str) -> None:
    with pytest.raises(Invalid, match=f"check 'it': .*{why}"):
        executor({"it": check}, ["12"])


def test_a_text_is_no_list_of_checks() -> None:
    with pytest.raises(Invalid, match=r"accept is 'it'; write a list of text"):
        Team((Worker("ann", accept="it"),), checks={"it": Rule(contains="12")})


def test_a_schema_that_only_refers_to_itself_is_refused_and_hangs_nobody() -> None:
    circle: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    with pytest.raises(ValueError, match="leads back to itself"):
        list(problems(12, circle))
    with pytest.raises(Invalid, match=r"the schema is wrong: it refers to '#/\$defs/a', which leads back to itself"):
        executor({"it": circle}, ["12"])


async def test_what_a_function_does_to_a_result_is_nothing_to_the_next_one() -> None:
    def careless(value: dict[str, object]) -> bool:
        value.clear()
        return True

    def there(value: dict[str, object]) -> bool:
        return value.get("text") == "12"

    team, _ = executor({"careless": careless, "there": there}, ["12"])
    assert (await team.run("How many?")).answer == "12"


async def test_only_what_was_accepted_is_remembered(tmp_path: Path) -> None:
    ann = Worker("ann", "counts things", accept=("it",), remembers=True)
    team = Team(
        (ann,),
        supervisor=Supervisor(plan=ONE, model=model(work=["12", LONG])),
        policy=QUICK,
        journal=MemoryJournal(),
        checks={"it": Rule(min_words=5)},
        memory=Memory(tmp_path / "memory.db"),
    )
    found = await team.run("How many?")
    assert steps(found) == ["memory", "model", "memory", "model", "remember"]
    script = model(work=["12 apples are in the cellar."])
    again = Team(
        (ann,),
        supervisor=Supervisor(plan=ONE, model=script),
        checks={"it": Rule(min_words=5)},
        memory=Memory(tmp_path / "memory.db"),
    )
    await again.run("How many?")
    shown = script.requests[0].messages[-1].text
    assert LONG in shown
    assert '"12"' not in shown


async def test_a_check_that_was_changed_is_made_again_whoever_names_it() -> None:
    journal = MemoryJournal()
    task = Task(TaskId("t1"), "Count the apples in the cellar.", "ann", accept=("it",))

    async def ending(rule: Rule) -> str:
        team = Team(
            (Worker("ann", "counts things"),),
            supervisor=Supervisor(plan=Plan((task,), "forward"), model=model(work=["12 apples"])),
            policy=QUICK,
            journal=journal,
            checks={"it": rule},
            cache=60.0,
        )
        return (await team.run("How many?")).ending

    assert await ending(Rule(contains="apples")) == "complete"
    assert await ending(Rule(contains="pears")) == "failed"


@pytest.mark.parametrize(
    ("reply", "accepted"),
    [
        (f"It says {YES}, which is no proof. {no('it lies')}", False),
        (f"```json\n{YES}\n```\nBut wait:\n```json\n{no('it lies')}\n```", False),
        (f"[{no('it lies')}]", False),
        ('{"problems": [], "accepted": "false"}', False),
        ('{"problems": [], "accepted": "True"}', True),
        (f"{{{{ {YES}", True),
    ],
)
def test_a_verdict_that_is_quoted_does_not_stand_for_the_one_that_is_given(reply: str, *, accepted: bool) -> None:
    found = read_verdict(reply)
    assert (found.accepted, found.unsaid) == (accepted, "")


def test_a_reply_that_is_all_brackets_is_read_in_no_time() -> None:
    for text in ("{" * 100_000, '{"a":' * 50_000, "}" * 10):
        assert read_verdict(text).unsaid


@pytest.mark.parametrize("value", ["true", "false", "0"])
async def test_a_plain_yes_or_no_is_not_empty(value: str) -> None:
    ann = Worker("ann", "says whether it is so", output={"type": ["boolean", "integer"]}, accept=("look",))
    checks: dict[str, Check] = {"look": Verifier(model=DemoModel())}
    team = Team((ann,), supervisor=Supervisor(plan=ONE, model=model(work=[value])), policy=QUICK, checks=checks)
    found = await team.run("Is it so?")
    assert found.ending == "complete", found.gaps


async def test_accents_are_the_same_however_they_are_written() -> None:
    team, _ = executor(Rule(contains="CAF\u00c9"), ["The cafe\u0301 is open."])
    assert (await team.run("Is it open?")).ending == "complete"
