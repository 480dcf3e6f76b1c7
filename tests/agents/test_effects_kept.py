"""A call that succeeded is recorded as one, whatever it returned, and the same effect is not had twice unasked."""

from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import NoReturn, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.tool_calls import LARGEST, LARGEST_OF_ACTION
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.events import Effect
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.value import DEPTH, decode_value, encode_or_text, encode_value
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.team import Team
from chargehand.tools.tool import Costs, Tool, ToolFailed, tool
from tests.agents.crowd import call, calls, model, of_kind, refused_calls, team
from tests.agents.test_break_resume import by_step, cut, say_done, undone


class Receipt:
    """What an SDK returns: no data, and proud of it."""

    def __repr__(self) -> str:
        return "<Receipt 4711>"


class Hostile:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("do not look at me")


def nested(levels: int) -> object:
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def holds_itself() -> object:
    found: list[object] = []
    found.append(found)
    return found


UNKEEPABLE: dict[str, Callable[[], object]] = {
    "path": lambda: Path("receipt.pdf"),
    "sdk object": Receipt,
    "object without words": Hostile,
    "nan": lambda: nan,
    "infinity in a table": lambda: {"rate": inf, "paid": True},
    "integer over 64 bits": lambda: 2**64,
    "integer of many digits": lambda: 10**5000,
    "half a surrogate pair": lambda: "\ud800",
    "keys that are no text": lambda: {(1, 2): "a", "(1, 2)": "b"},
    "as deep as data may be": lambda: nested(DEPTH),
    "deeper than data may be": lambda: nested(DEPTH + 5),
    "a list that holds itself": holds_itself,
    "objects inside a list": lambda: [Receipt(), {"file": Path("a")}],
    "more than a mebibyte": lambda: "x" * (LARGEST + 1),
    "far too much": lambda: "x" * (LARGEST_OF_ACTION + 1),
    "an impossible price": lambda: Costs("paid", Amount(tokens=cast("int", 0.5))),
}


def pays(value: Callable[[], object], paid: list[int], effect: Effect, *, asynchronous: bool) -> Tool:
    if asynchronous:

        @tool(name="pay", effect=effect)
        async def pay_soon(euros: int) -> object:
            """Pay."""
            paid.append(euros)
            return value()

        return pay_soon

    @tool(name="pay", effect=effect)
    def pay(euros: int) -> object:
        """Pay."""
        paid.append(euros)
        return value()

    return pay


def until_it_works(request: Request) -> Line:
    """What a model does that was told of an error: it calls again."""
    last = request.messages[-1]
    return "Paid." if last.role == "tool" and '"error"' not in last.text else calls(call("pay", euros=120))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("effect", ["effect", "idempotent"])
@pytest.mark.parametrize("kind", UNKEEPABLE)
async def test_a_call_that_succeeded_is_made_once_whatever_it_returned(
    kind: str, effect: Effect, asynchronous: bool
) -> None:
    paid: list[int] = []
    pay = pays(UNKEEPABLE[kind], paid, effect, asynchronous=asynchronous)
    found = await team(model(work=until_it_works), Worker("ann", tools=[pay])).run("Pay it.")
    assert (found.ending, paid) == ("complete", [120])


async def test_the_model_is_told_that_the_result_is_kept_as_text() -> None:
    script = model(work=until_it_works)
    pay = pays(Receipt, [], "effect", asynchronous=False)
    await team(script, Worker("ann", tools=[pay])).run("Pay it.")
    told = script.requests[2].messages[-1].text
    assert "<Receipt 4711>" in told
    assert "The call succeeded." in told.partition("</data ")[2], "our words stand outside the envelope"


async def test_a_large_result_of_an_effect_is_kept_whole_beside_the_journal(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    try:
        pay = pays(lambda: "x" * (2 * LARGEST), [], "effect", asynchronous=False)
        executor = team(model(work=until_it_works), Worker("ann", tools=[pay]), journal=journal)
        found = await executor.run("Pay it.", run="r")
        assert found.ending == "complete"
        finished = [
            one for one in of_kind(await journal.read("r"), ev.StepFinished) if isinstance(one, ev.StepFinished)
        ]
        assert decode_value(finished[1].result) == {"value": "x" * (2 * LARGEST)}
        assert sum(file.stat().st_size for file in (tmp_path / "runs.db-blobs").rglob("*") if file.is_file()) > LARGEST
    finally:
        await journal.close()


@pytest.mark.parametrize("kind", ["path", "nan", "as deep as data may be", "more than a mebibyte"])
async def test_what_was_kept_as_text_is_read_back_after_a_crash_anywhere(kind: str) -> None:
    whole_paid: list[int] = []
    whole = await _paying(kind, whole_paid, MemoryJournal()).run("Pay it.", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(whole.entries)):
        paid: list[int] = []
        executor = _paying(kind, paid, await cut(whole.entries, at))
        found = await executor.resume("r")
        if undone(whole.entries[:at]):
            found = await say_done(executor, found)
            assert (found.ending, paid) == ("complete", []), at
            continue
        done = len(of_kind(whole.entries[:at], ev.StepFinished)) > 1
        assert (found.ending, paid) == ("complete", [] if done else [120]), at


def _paying(kind: str, paid: list[int], journal: MemoryJournal) -> Team:
    pay = pays(UNKEEPABLE[kind], paid, "effect", asynchronous=False)
    return team(model(work=until_it_works), Worker("ann", tools=[pay]), journal=journal)


@pytest.mark.parametrize("kind", ["path", "integer over 64 bits", "more than a mebibyte"])
async def test_an_effect_inside_a_nested_team_is_had_once_whatever_it_returned(kind: str) -> None:
    paid: list[int] = []
    pay = pays(UNKEEPABLE[kind], paid, "effect", asynchronous=False)
    inner = Team(
        [Worker("ann", "pays", tools=[pay])], supervisor=Supervisor(model=model(work=until_it_works)), name="inner"
    )
    plan = Plan((Task(TaskId("o"), "Have the bill paid now.", "in"),), "forward")
    found = await team(model(), inner.as_worker("in", "pays"), plan=plan).run("Pay it.")
    assert (found.ending, paid) == ("complete", [120])


async def test_a_failure_whose_words_cannot_be_recorded_still_says_that_nothing_happened() -> None:
    tried: list[int] = []

    @tool(effect="effect", trusted=True)
    def pay(euros: int) -> str:
        """Pay."""
        tried.append(euros)
        if len(tried) == 1:
            raise ToolFailed("closed \ud800; nothing was paid")
        return "paid"

    found = await team(model(work=until_it_works), Worker("ann", tools=[pay])).run("Pay it.")
    assert (found.ending, tried) == ("complete", [120, 120])


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Receipt)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner), max_leaves=8
)


@given(_VALUES)
def test_anything_can_be_recorded_and_what_is_data_is_recorded_as_it_is(value: object) -> None:
    body, whole = encode_or_text(value)
    decode_value(body)
    if whole:
        assert body == encode_value(value)


# --- the same effect again


def counting(paid: list[str], *, poll: bool = False) -> Tool:
    @tool(effect="effect", poll=poll, trusted=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return f"paid {to}"

    return pay


async def test_of_64_equal_effects_in_one_step_one_is_had_and_all_are_answered() -> None:
    paid: list[str] = []
    script = model(work=by_step(calls(*(call("pay", n, to="bob") for n in range(64))), "paid"))
    found = await team(script, Worker("ann", tools=[counting(paid)])).run("Count")
    assert (found.ending, paid) == ("complete", ["bob"])
    told = [one.text for one in script.requests[2].messages if one.role == "tool"]
    assert (len(told), sum("paid bob" in one for one in told)) == (64, 64)
    assert sum("It was made once" in one for one in told) == 63


async def test_equal_effects_are_recognised_however_their_arguments_are_written() -> None:
    paid: list[str] = []
    other = calls(call("pay", 1, to="bob"), call("pay", 2, to="eve"), call("pay", 3, to="bob"))
    compact = other.calls[2].__class__("c4", "pay", '{"to":"bob"}')
    found = await team(
        model(work=by_step(calls(*other.calls, compact), "paid")), Worker("ann", tools=[counting(paid)])
    ).run("Count")
    assert (found.ending, sorted(paid)) == ("complete", ["bob", "eve"])


async def test_equal_idempotent_calls_of_one_step_are_made_once_and_equal_readings_each() -> None:
    made: list[str] = []

    @tool(effect="idempotent")
    def store(name: str) -> str:
        """Store a name."""
        made.append("store")
        return name

    @tool
    def look(name: str) -> str:
        """Look a name up."""
        made.append("look")
        return name

    several = calls(*(call(name, n, name="x") for n, name in enumerate(["store", "store", "look", "look"])))
    await team(model(work=by_step(several, "done")), Worker("ann", tools=[store, look])).run("Count")
    assert sorted(made) == ["look", "look", "store"]


def twice(paid: list[str], journal: MemoryJournal | None = None, *, poll: bool = False) -> Team:
    work = by_step(calls(call("pay", to="bob")), calls(call("pay", 2, to="bob")), "done")
    worker = Worker("ann", tools=[counting(paid, poll=poll)])
    return team(model(work=work), worker, journal=journal)


@pytest.mark.parametrize(("verdict", "ending", "times"), [("approve", "complete", 2), ("reject", "partial", 1)])
async def test_the_same_effect_in_a_later_step_is_had_again_if_a_person_says_so(
    verdict: str, ending: str, times: int
) -> None:
    paid: list[str] = []
    executor = twice(paid)
    found = await executor.run("Count", run="r")
    assert (found.ending, paid) == ("needs_input", ["bob"])
    found = await _answer(executor, found, verdict)
    assert (found.ending, len(paid)) == (ending, times)
    assert refused_calls(found) == ([] if times == 2 else [("pay", {"to": "bob"})])


async def test_a_tool_that_is_for_being_repeated_is_repeated_without_asking() -> None:
    paid: list[str] = []
    found = await twice(paid, poll=True).run("Count")
    assert (found.ending, paid) == ("complete", ["bob", "bob"])


async def test_a_repetition_that_a_person_allowed_happens_once_after_a_crash_anywhere() -> None:
    first: list[str] = []
    executor = twice(first)
    whole = await _answer(executor, await executor.run("Count", run="r"), "approve")
    assert (whole.ending, len(first)) == ("complete", 2)
    for at in range(1, len(whole.entries)):
        before = whole.entries[:at]
        paid: list[str] = []
        executor = twice(paid, await cut(whole.entries, at))
        found = await executor.resume("r")
        if undone(before):
            assert (found.gaps[0].reason, paid) == ("uncertain", []), at
            continue
        if found.ending == "needs_input":
            found = await _answer(executor, found, "approve")
        started = {
            (one.step, one.attempt)
            for one in of_kind(before, ev.StepStarted)
            if isinstance(one, ev.StepStarted) and one.effect == "effect"
        }
        assert (found.ending, len(paid)) == ("complete", 2 - len(started)), at


async def test_the_next_attempt_repeats_neither_of_two_equal_effects() -> None:
    paid: list[str] = []

    def work(request: Request) -> Line:
        if "better" in request.messages[1].text:
            return by_step(calls(call("pay", to="bob")), calls(call("pay", 2, to="bob")), "done")(request)
        give_up = calls(call("give_up", 3, reason="the pen broke"))
        return by_step(calls(call("pay", to="bob")), calls(call("pay", 2, to="bob")), give_up)(request)

    executor = team(model(work=work), Worker("ann", tools=[counting(paid)]))
    found = await _answer(executor, await executor.run("Count", run="r"), "approve")
    assert (found.ending, paid) == ("complete", ["bob", "bob"])


async def _answer(executor: Team, found: Result, verdict: str) -> Result:
    assert found.question is not None
    return await executor.resume("r", ev.InputAnswered(found.question.number, verdict))  # pyright: ignore[reportArgumentType] - one of its words
