"""Results that must pass checks: who passes, what becomes of who does not, and what a check may cost."""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import Struct, convert

from bench.verifier import measured
from chargehand.agents.audit.failure_modes import audit_run
from chargehand.agents.checks import Check, Reviewer, Rule, Verifier
from chargehand.agents.checks.run import Verdict, read_verdict
from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.facts import CheckRefusal, ResultAccepted, ResultRefused
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.local import LocalModel, pull
from chargehand.models.messages import Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Reviewing
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import Tool, tool
from tests.agents.crowd import call, calls, model, of_kind
from tests.agents.options import make_team

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
COUNT = Task(TaskId("t1"), "Count the apples in the cellar.", "ann")
ONE = Plan((COUNT,), "forward")
QUICK = Policy(retry=Retry(attempts=2, base=0.001))
LONG = "There are 12 apples in the cellar, counted twice."
PRICED = ModelCard("scripted", micros_in=1.0, micros_out=1.0)


def executor(
    check: Rule | dict[str, Check], said: Sequence[Line] | Callable[[Request], Line], *others: Worker, **more: object
) -> tuple[Team, ScriptedModel]:
    checks = {"it": check} if isinstance(check, Rule) else check
    script = model(work=said)
    ann = Worker("ann", "counts things", accept=tuple(checks))
    options = {"plan": ONE, "policy": QUICK, "journal": MemoryJournal(), "model": script, "checks": checks} | more
    return make_team((ann, *others), **options), script


def verdicts(*lines: Line, **more: object) -> ScriptedModel:
    return ScriptedModel(lines, usage=Usage(10, 5), micros=7, repeat=True, **more)  # pyright: ignore[reportArgumentType] - as above


def no(*problems: str) -> str:
    return json.dumps({"problems": problems, "accepted": False})


YES = json.dumps({"problems": [], "accepted": True})


def notes(found: Result) -> list[str]:
    return [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]


def steps(found: Result) -> list[str]:
    return [step.name for task in found.trace().tasks for one in task.attempts for step in one.steps]


# --- what becomes of who does not pass


async def test_a_result_that_is_not_accepted_costs_one_further_call() -> None:
    """The worker has found everything already: it is told what is wrong, and nothing is looked up again."""
    team, script = executor(Rule(min_words=5), [calls(call("give", 1)), "12", LONG])
    found = await team.run("How many apples?")
    assert (found.ending, found.answer) == ("complete", LONG)
    assert len(script.requests) == 3
    last = script.requests[-1].messages
    assert "it has 1 words; at least 5 are wanted" in last[-1].text
    assert last[:-2] == script.requests[-2].messages, "all that was said before, as it was"
    assert len(found.trace().tasks[0].attempts) == 1
    assert [one for one in notes(found) if "accepted" in one] == [
        "not accepted by it: it has 1 words; at least 5 are wanted; sent back",
        "accepted by it",
    ]


async def test_what_checks_say_of_a_result_is_told_as_facts() -> None:
    reviewer = verdicts(no("Too few."), no("Still too few."))
    team, _ = executor(
        {"long": Rule(min_words=5), "look": Verifier(model=reviewer)}, ["12", LONG, f"{LONG} More.", LONG]
    )
    found = await team.run("How many apples?")
    facts = [(note.attempt, note.fact) for note in found.trace().notes if note.fact is not None]
    short = CheckRefusal("long", ("it has 1 words; at least 5 are wanted",))
    assert facts[:4] == [
        (1, ResultRefused((short,), sent_back=True)),
        (1, ResultAccepted(("long",))),
        (1, ResultRefused((CheckRefusal("look", ("Too few.",)),))),
        (2, ResultAccepted(("long",))),
    ]


async def test_what_is_not_accepted_twice_is_done_again_with_what_was_wrong_in_view() -> None:
    team, script = executor(Rule(min_words=5), ["12", "13", LONG])
    found = await team.run("How many apples?")
    assert (found.ending, found.answer) == ("complete", LONG)
    first, second = found.trace().tasks[0].attempts
    assert first.failure == Failure("logic", "not accepted by it: it has 1 words; at least 5 are wanted")
    assert "it has 1 words" in next(
        one.messages[-1].text for one in script.requests if "error" in one.messages[-1].text
    )
    assert second.instruction == "Do it, but better than before."
    assert [one for one in notes(found) if "accepted" in one] == [
        "not accepted by it: it has 1 words; at least 5 are wanted; sent back",
        "not accepted by it: it has 1 words; at least 5 are wanted",
        "accepted by it",
    ]


@pytest.mark.parametrize(
    ("then", "kind", "words"),
    [
        (calls(call("give_up", reason="there is no more")), "logic", "there is no more"),
        (Failure("network", "the line went dead"), "network", "the line went dead"),
        ("", "logic", "the model did not send a usable result: it was empty"),
    ],
)
async def test_why_a_result_was_not_accepted_is_kept_when_no_other_comes(then: Line, kind: str, words: str) -> None:
    team, _ = executor(Rule(min_words=5), ["12", then])
    found = await team.run("How many apples?")
    failure = found.trace().tasks[0].attempts[0].failure
    assert failure is not None
    said = f"{words} (its result was not accepted by it: it has 1 words; at least 5 are wanted)"
    assert (failure.kind, failure.message) == (kind, said)


async def test_what_is_never_accepted_goes_to_the_fallback_and_then_is_a_gap() -> None:
    team, _ = executor(Rule(contains="pears"), ["12 apples"])
    found = await team.run("How many?")
    assert (found.ending, found.results) == ("failed", {})
    assert [(one.task, one.message) for one in found.gaps] == [("t1", "not accepted by it: 'pears' is not in it")]
    assert len(found.trace().tasks[0].attempts) == 2
    bob = Worker("bob", model=ScriptedModel(["12 pears"]), accept=["pears"])
    ann = Worker("ann", model=verdicts("12 apples"), fallbacks=["bob"], accept=["pears"])
    both = Team((ann, bob), supervisor=Supervisor(plan=ONE), policy=QUICK, checks={"pears": Rule(contains="PEARS")})
    found = await both.run("How many?")
    assert (found.ending, found.answer) == ("complete", "12 pears")
    assert [one.worker for one in found.trace().tasks[0].attempts] == ["ann", "ann", "bob"]


# --- rules, schemas, functions


def is_twelve(value: dict[str, str]) -> bool:
    return value["text"] == "12"


def why_not_twelve(value: dict[str, str]) -> str:
    return "" if is_twelve(value) else "it is not 12"


@pytest.mark.parametrize(
    ("rule", "good", "bad", "why"),
    [
        (Rule(contains=("twelve", "Apples")), "Twelve\n apples.", "Twelve pears.", "'Apples' is not in it"),
        (Rule(matches=r"^Total: \d+$"), "So:\nTotal: 12", "Total: many", r"nothing in it matches '^Total: \\d+$'"),
        (Rule(matches="cellar"), "in the cellar", "in the attic", "nothing in it matches 'cellar'"),
        (Rule(max_words=3), "Twelve red apples.", "There are twelve red apples.", "5 words; at most 3"),
        (Rule(cites=True), "Twelve (cellar.md).", "Twelve.", "it names no source"),
        (Rule(cites=True), "Twelve, see https://cellar.example/a.", "Twelve (all red).", "it names no source"),
        (Rule(has_number=True), "There are 12.", "There are many.", "there is no number in it"),
        ({"type": "object", "required": ["apples"]}, '{"apples": 12}', '{"pears": 12}', "lacks 'apples'"),
        ({"type": "object", "required": ["apples"]}, '```json\n{"apples": 1}\n```', "12 apples", "is not JSON"),
        (is_twelve, "12", "13", "not accepted by it"),
        (why_not_twelve, "12", "13", "not accepted by it: it is not 12"),
    ],
)
async def test_each_kind_of_check_lets_the_right_one_pass(rule: Check, good: str, bad: str, why: str) -> None:
    assert (await executor({"it": rule}, [good])[0].run("How many?")).ending == "complete"
    found = await executor({"it": rule}, [bad])[0].run("How many?")
    assert why in found.gaps[0].message
    assert found.results == {}


class Count(Struct):
    apples: int


async def test_a_type_is_held_against_typed_results_and_a_function_sees_plain_data() -> None:
    seen: list[object] = []

    async def few(value: object) -> bool:
        seen.append(value)
        return True

    ann = Worker("ann", output={"type": "object"}, accept=["typed", "few"])
    script = model(work=['{"apples": "many"}', '{"apples": 3}'])
    checks: dict[str, Check] = {"typed": Count, "few": few}
    found = await Team((ann,), supervisor=Supervisor(model=script, plan=ONE), policy=QUICK, checks=checks).run(
        "How many?"
    )
    assert found.results == {"t1": {"apples": 3}}
    assert "apples" in notes(found)[0]
    assert seen == [{"apples": "many"}, {"apples": 3}]


def broken(_: object) -> bool:
    raise LookupError("no cellar")


def silent(_: object) -> None: ...


@pytest.mark.parametrize(
    ("check", "why"),
    [(broken, "LookupError: no cellar"), (silent, "it returned NoneType; return True or False")],
)
async def test_a_check_that_does_not_work_fails_the_task_once_and_says_so(check: Check, why: str) -> None:
    team, script = executor({"it": check}, ["12"])
    found = await team.run("How many?")
    assert found.gaps[0].message.startswith(f"the check 'it' failed itself, so nothing can be accepted: {why}")
    assert len(script.requests) == 1, "nothing that is wrong with a check is mended by doing the task again"


async def test_a_pattern_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chargehand.agents.checks.run._CPU_SECONDS", 0.2)
    team, _ = executor(Rule(matches="(a+)+$"), ["a" * 60 + "!"])
    began = time.monotonic()
    found = await team.run("How many?")
    assert time.monotonic() - began < 15
    assert "it was not done after 0.2 s; write it more simply" in found.gaps[0].message


# --- who is asked


async def test_a_reviewer_is_asked_as_itself_without_tools_and_told_nothing_of_the_way_there() -> None:
    @tool
    def peel(fruit: str) -> str:
        """Peel a fruit."""
        return f"peeled {fruit}"

    bob = Worker("bob", "knows apples", "You are strict.", tools=[peel], model=(ruler := verdicts(no("Too few."), YES)))
    team, script = executor({"look": Reviewer("bob")}, [calls(call("give", 1)), "11", "12"], bob)
    found = await team.run("How many?")
    assert (found.ending, found.answer) == ("complete", "12")
    assert "not accepted by look: Too few.; sent back" in notes(found)
    first = ruler.requests[0]
    assert first.tools == ()
    assert "You are bob. knows apples" in first.messages[0].text
    assert "You are strict." in first.messages[0].text
    assert "Task: Count the apples in the cellar." in first.messages[1].text
    assert len(first.messages) == 2
    assert "give" not in first.messages[1].text
    assert script.requests
    assert steps(found).count("look") == 2


async def test_a_verifier_sees_task_material_and_result_and_has_a_prompt_of_its_own() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        return f"7 boxes of 12 apples in the {place}"

    checks: dict[str, Check] = {"sound": Verifier("Mind the boxes.", judge := verdicts(YES))}
    tasks = (COUNT, Task(TaskId("t2"), "Tell what the cellar holds.", "eve", after=(COUNT.id,), accept=("sound",)))
    told = "There are 84 apples, and 5 pears."
    said = ScriptedModel([calls(call("look", place="cellar")), told, told])
    eve = Worker("eve", tools=[look], model=said)
    ann = Worker("ann", model=ScriptedModel(["There are 12 in a box."]))
    found = await Team((ann, eve), supervisor=Supervisor(plan=Plan(tasks, "forward")), checks=checks).run("How many?")
    assert (found.ending, [gap.message for gap in found.gaps]) == ("partial", ["5: no tool returned it"])
    (request,) = judge.requests
    system, asked = (one.text for one in request.messages)
    assert "look for what is wrong" in system
    assert "Mind the boxes." in system
    assert "You are eve" not in system
    assert all(part in asked for part in ("There are 12 in a box.", "7 boxes of 12 apples", "There are 84 apples"))
    assert isinstance(request.subject, Reviewing)
    assert request.subject.doubts == ("5",)
    assert request.schema is not None
    assert "sound" in steps(found)
    assert "accepted by sound" in notes(found)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("I like it.", "the verdict could not be read"),
        ('{"accepted": "perhaps"}', "it does not say whether"),
        (Failure("network", "the line went dead"), "the line went dead"),
    ],
)
async def test_without_a_verdict_the_result_stands_and_that_is_noted(line: Line, why: str) -> None:
    team, script = executor({"look": Verifier(model=verdicts(line))}, ["12"])
    found = await team.run("How many?")
    assert (found.ending, found.answer) == ("complete", "12")
    assert any(one.startswith("not reviewed by look: ") and why in one for one in notes(found))
    assert len(script.requests) == 1


def test_a_verdict_is_what_it_says_and_remarks_are_no_refusal() -> None:
    assert read_verdict(f"So:\n```json\n{no('a', ' b ')}\n```") == Verdict(accepted=False, problems=("a", "b"))
    assert read_verdict('{"problems": ["could be shorter"], "accepted": true}').accepted
    assert not read_verdict('{"problems": ["wrong"]}').accepted
    assert read_verdict("{}").unsaid


async def test_plain_checks_come_first_and_save_the_money_for_the_others() -> None:
    team, _ = executor({"words": Rule(min_words=3), "look": Verifier(model=(judge := verdicts(YES)))}, ["12", LONG])
    assert (await team.run("How many?")).answer == LONG
    assert len(judge.requests) == 1


async def test_who_steps_in_does_not_review_itself() -> None:
    bob = Worker("bob", model=verdicts("13"))
    ann = Worker("ann", model=verdicts(Failure("logic", "no", permanent=True)), fallbacks=["bob"])
    task = Task(TaskId("t1"), COUNT.instruction, "ann", accept=("look",))
    team = Team(
        (ann, bob), supervisor=Supervisor(plan=Plan((task,), "forward")), policy=QUICK, checks={"look": Reviewer("bob")}
    )
    found = await team.run("How many?")
    assert found.answer == "13"
    assert "not reviewed by look: bob did it, and no worker reviews its own work; the result stands" in notes(found)


async def test_a_team_that_works_for_another_is_looked_at_like_anybody() -> None:
    count = Plan((Task(TaskId("t1"), "Count them all.", "cid"),), "forward")
    inner = Team((Worker("cid", model=verdicts("12", LONG)),), supervisor=Supervisor(plan=count), name="inner")
    worker = Worker("inner", "counts", team=inner, accept=["words"], timeout=60)
    task = Task(TaskId("t1"), COUNT.instruction, "inner")
    team = Team(
        (worker,),
        supervisor=Supervisor(plan=Plan((task,), "forward")),
        policy=QUICK,
        checks={"words": Rule(min_words=3)},
    )
    found = await team.run("How many?")
    assert found.trace().tasks[0].attempts[0].failure == Failure(
        "logic", "not accepted by words: it has 1 words; at least 3 are wanted"
    )


# --- money and crashes


async def test_a_review_is_paid_from_the_budget_and_left_out_where_that_is_too_small() -> None:
    for most, reviewed in ((2, True), (1, False)):
        judge = verdicts(YES, card=PRICED)
        checks: dict[str, Check] = {"look": Verifier(model=judge)}
        team, _ = executor(checks, ["12"], budget=Budget(calls=most), plan=Plan((COUNT,), "none"))
        found = await team.run("How many?")
        assert (found.ending, found.results[COUNT.id]) == ("complete", {"text": "12"})
        assert len(judge.requests) == reviewed
        assert found.spent.calls == 1 + reviewed
        assert any("not reviewed by look: the budget does not cover" in one for one in notes(found)) != reviewed
        held = [one.reserve for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
        assert all(one is not None and one.calls == 1 for one in held)


async def test_a_verifier_nobody_knows_the_price_of_makes_a_cap_in_dollars_one_on_calls() -> None:
    team, _ = executor({"look": Verifier(model=ScriptedModel([YES]))}, ["12"], budget=Budget(usd=1.0))
    assert (await team.keep_budget()).budget == Budget(calls=100)


async def test_a_crash_after_any_entry_pays_no_verdict_twice() -> None:
    def build(journal: MemoryJournal | None = None) -> tuple[Team, ScriptedModel]:
        judge = verdicts(YES)
        team, _ = executor({"words": Rule(has_number=True), "look": Verifier(model=judge)}, ["12"], journal=journal)
        return team, judge

    whole = await build(MemoryJournal())[0].run("How many?", run="r")
    finished = [
        at
        for at, one in enumerate(whole.entries)
        if isinstance(one.event, ev.StepFinished) and b"problems" in bytes(one.event.result)
    ]
    for at in range(1, len(whole.entries)):
        journal = MemoryJournal()
        lease = await journal.claim("r", new=True)
        await journal.append(lease, whole.entries[:at])
        await journal.release(lease)
        team, judge = build(journal)
        found = await team.resume("r")
        assert (found.ending, found.results) == ("complete", whole.results), at
        assert len(judge.requests) == (at <= finished[0]), at
        assert not any("diverged" in one for one in notes(found)), at


# --- what is declared


def declare(checks: dict[str, object], *accept: str, task: Sequence[str] = ()) -> Team:
    workers = (Worker("ann", accept=accept), Worker("bob"))
    plan = Plan((Task(TaskId("t1"), COUNT.instruction, "ann", accept=tuple(task)),)) if task else None
    return Team(workers, supervisor=Supervisor(plan=plan), checks=checks)  # pyright: ignore[reportArgumentType] - wrong on purpose


@pytest.mark.parametrize(
    ("checks", "accept", "task", "why"),
    [
        ({"figures": Rule(cites=True)}, ("figure",), (), "worker 'ann' names the check 'figure', which there is not"),
        ({"figures": Rule(cites=True)}, (), ("zzz",), "task 't1' names the check 'zzz', which there is not; there"),
        ({}, ("words",), (), "the team has none: declare it under `checks`"),
        ({"look": Reviewer("ann")}, ("look",), (), "worker 'ann' would be reviewed by 'ann', who does it"),
        ({"look": Reviewer("ann")}, (), ("look",), "task 't1' would be reviewed by 'ann'"),
        ({"look": Reviewer("anne")}, (), (), "check 'look': there is no worker 'anne' to review; did you mean 'ann'"),
        ({"it": Rule()}, (), (), "check 'it': the rule asks for nothing"),
        ({"it": Rule(matches="(")}, (), (), "is no regular expression"),
        ({"it": Rule(min_words=5, max_words=2)}, (), (), "at least 5 and at most 2 words cannot be"),
        ({"it": 12}, (), (), "checks is {'it': 12}; write checks by name"),
        ({" ": Rule(cites=True)}, (), (), "is no name for a check"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(
    checks: dict[str, object], accept: tuple[str, ...], task: tuple[str, ...], why: str
) -> None:
    with pytest.raises(Invalid) as error:
        declare(checks, *accept, task=task)
    assert why in str(error.value)


async def test_a_check_that_is_gone_when_a_run_is_resumed_is_missed_aloud() -> None:
    task = Task(TaskId("t1"), COUNT.instruction, "ann", accept=("words",))
    first = Team((Worker("ann"),), supervisor=Supervisor(plan=Plan((task,))), checks={"words": Rule(cites=True)})
    request = first.request("How many?", time.time())
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, [ev.Entry(1, time.time(), request)])
    await journal.release(lease)
    found = await Team((Worker("ann", model=verdicts("12")),), journal=journal).resume("r")
    assert "names the check 'words', which there is not" in found.gaps[0].message


def test_a_worker_whose_checks_change_is_another_for_the_cache() -> None:
    def spec(check: Check) -> str:
        return Team((Worker("ann", accept=["it"]),), checks={"it": check}).roster.agents[0].spec

    assert spec(Rule(min_words=2)) == spec(Rule(min_words=2))
    assert spec(Rule(min_words=2)) != spec(Rule(min_words=3)) != spec(Verifier())


def test_a_worker_whose_tool_takes_other_arguments_is_another_for_the_cache() -> None:
    def before() -> Tool:
        @tool
        def count(fruit: str) -> str:
            """Count them."""
            return fruit

        return count

    def after() -> Tool:
        @tool
        def count(fruit: str, since: int) -> str:
            """Count them."""
            return f"{fruit} {since}"

        return count

    specs = [Team((Worker("ann", tools=[made]),)).roster.agents[0].spec for made in (before(), before(), after())]
    assert specs[0] == specs[1] != specs[2]


# --- figures, and a real model


@pytest.mark.slow("130 results are checked, most of them by patterns that have a process each")
async def test_every_seeded_mistake_is_caught_by_rules_and_invented_figures_by_the_demo_verifier() -> None:
    rules = await measured(None)
    by_demo = await measured("demo")
    assert sum(map(len, rules.wrong.values())) == 48
    assert (rules.rate, rules.misses) == (1.0, []), rules.told()
    assert not any(by_demo.right), by_demo.misses
    assert by_demo.rate >= 0.5, by_demo.told()
    assert all(all(by_demo.wrong[kind]) for kind in ("number", "url")), by_demo.misses


async def test_a_check_after_an_effect_is_seen_by_the_audit() -> None:
    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        return f"handed over for {to}"

    async def modes(checks: dict[str, Check]) -> list[str]:
        script = ScriptedModel([calls(call("send", to="the baker")), "The letter was sent to the baker."])
        ann = Worker("ann", tools=[send], model=script, accept=tuple(checks))
        task = Task(TaskId("t1"), "Send the baker a letter about the apples.", "ann")
        found = await Team((ann,), supervisor=Supervisor(plan=Plan((task,), "forward")), checks=checks).run(
            "Write to the baker."
        )
        assert found.ending == "complete"
        return [one.mode for one in audit_run(found.entries)]

    assert "3.2" in await modes({})
    assert "3.2" not in await modes({"look": Verifier(model=verdicts(YES))})
    assert "3.2" not in await modes({"words": Rule(contains="baker")})


@pytest.mark.thorough
async def test_a_real_model_gives_a_verdict_that_can_be_read() -> None:
    pull("smollm2-135m", MODELS)
    local = LocalModel("smollm2-135m", folder=MODELS)
    try:
        bob = Worker("bob", "counts", model=local, settings=Settings(temperature=0.0, max_tokens=120))
        team, _ = executor({"look": Reviewer("bob")}, [LONG], bob, policy=Policy(retry=Retry(attempts=1)))
        found = await team.run("How many?")
        (one,) = [step for step in found.trace().tasks[0].attempts[0].steps if step.kind == "check"]
        verdict = convert(one.result, Verdict)
        assert verdict.unsaid == ""
        assert (found.ending == "complete") == verdict.accepted
        assert found.results == ({"t1": {"text": LONG}} if verdict.accepted else {})
    finally:
        await local.close()
