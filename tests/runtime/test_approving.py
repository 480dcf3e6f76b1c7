"""What a run asks a person, answered by a function of the program or in a word to `resume`."""

import asyncio
import sys
import traceback
from typing import cast

import pytest

from chargehand import (
    ApprovalRequest,
    Plan,
    Policy,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)
from chargehand.engine import events as ev
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid, Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.approving import OnApproval

PLAN = Plan((Task(TaskId("bill"), "Pay the bills.", "clerk"),), "forward")


def office(
    *suppliers: str,
    on_approval: OnApproval | None = None,
    policy: Policy | None = None,
    one_by_one: bool = False,
    journal: MemoryJournal | None = None,
) -> tuple[Team, list[str]]:
    """A clerk that pays these suppliers, in one reply or in one each, and says what became of the last call."""
    paid: list[str] = []

    @tool(effect="effect", approve=True, poll=True)
    def pay(supplier: str, euros: int) -> str:
        """Pay a supplier."""
        paid.append(f"{euros} to {supplier}")
        return "paid"

    def clerk(request: Request) -> Reply | str:
        calls = [
            ToolCall(str(at), "pay", f'{{"supplier": "{name}", "euros": {at}}}') for at, name in enumerate(suppliers)
        ]
        done = sum(message.role == "tool" for message in request.messages)
        if done >= len(calls):
            return f"Done: {request.messages[-1].text}"
        return Reply(calls=(calls[done],) if one_by_one else tuple(calls), finish="tools")

    worker = Worker("clerk", "Pays bills.", tools=[pay], steps=20, model=ScriptedModel(clerk))
    team = Team(
        [worker],
        supervisor=Supervisor(plan=PLAN),
        name="office",
        on_approval=on_approval,
        policy=policy or Policy(),
        journal=journal,
    )
    return team, paid


def test_a_word_approves_the_open_call() -> None:
    team, paid = office("Ott")
    assert team.run_sync("Pay.", run="may").ending == "needs_input"
    assert "paid" in cast("str", team.resume_sync("may", True).answer)
    assert paid == ["0 to Ott"]


def test_a_word_rejects_it_with_a_reason_that_the_model_reads() -> None:
    team, paid = office("Ott")
    team.run_sync("Pay.", run="may")
    done = team.resume_sync("may", "reject", reason="Ott was paid in April")
    assert "Ott was paid in April" in cast("str", done.answer)
    assert paid == []


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_reason_is_kept_with_either_verdict(verdict: str) -> None:
    team, _ = office("Ott")
    team.run_sync("Pay.", run="may")
    done = team.resume_sync("may", verdict, reason="as agreed in April")
    answered = [entry.event for entry in done.entries if isinstance(entry.event, ev.InputAnswered)]
    assert [(answer.verdict, answer.feedback) for answer in answered] == [(verdict, "as agreed in April")]
    assert done.trace().questions[0].feedback == "as agreed in April"


def test_a_rejection_without_a_reason_says_so_once() -> None:
    team, _ = office("Ott")
    team.run_sync("Pay.", run="may")
    assert "A person did not allow this call: no reason was given" in str(team.resume_sync("may", False).answer)


def test_several_open_calls_are_named_and_answered_each_by_its_number() -> None:
    team, paid = office("Ott", "Lehm")
    team.run_sync("Pay.", run="may")
    with pytest.raises(Refused) as refusal:
        team.resume_sync("may", "approve")
    for words in ("asks about 2 calls", "Ott", "Lehm", '{1: "approve", 2: "approve"}'):
        assert words in str(refusal.value)
    with pytest.raises(Refused, match="does not ask about call 7; it asks about 1, 2"):
        team.resume_sync("may", {1: "approve", 7: "approve"})
    done = team.resume_sync("may", {1: "approve", 2: "reject: too dear"})
    assert (done.ending, [gap.status for gap in done.gaps]) == ("partial", ["refused"])
    assert paid == ["0 to Ott"]


def test_an_answer_that_nobody_asked_for_or_nobody_understands_is_refused() -> None:
    team, paid = office("Ott")
    team.run_sync("Pay.", run="may")
    with pytest.raises(Invalid, match='the answer is \'ok\'; say "approve", "reject" or "reject: why"'):
        team.resume_sync("may", "ok")
    team.resume_sync("may", "approve")
    with pytest.raises(Refused, match="asks nothing, so there is nothing to answer"):
        team.resume_sync("may", "approve")
    assert paid == ["0 to Ott"]


@pytest.mark.parametrize(
    "answer", ["approve: only 50", "Approve: but", "APPROVE : if it is due", {1: "approve: only 50"}]
)
def test_a_yes_with_a_condition_approves_nothing(answer: str | dict[int, bool | str]) -> None:
    team, paid = office("Ott")
    team.run_sync("Pay.", run="may")
    with pytest.raises(Invalid, match='; a yes takes no condition; say "reject: why"'):
        team.resume_sync("may", answer)
    assert paid == []
    assert team.resume_sync("may", "Approve").ending == "complete"
    assert paid == ["0 to Ott"]


def test_a_yes_with_a_condition_of_a_function_approves_nothing() -> None:
    team, paid = office("Ott", on_approval=lambda request: "approve: only 50")
    with pytest.raises(Invalid, match="on_approval is 'approve: only 50'; a yes takes no condition"):
        team.run_sync("Pay.", run="may")
    assert paid == []


def test_a_run_is_resumed_only_by_a_team_with_its_workers_and_tools() -> None:
    journal = MemoryJournal()
    team, paid = office("Ott", journal=journal)
    team.run_sync("Pay.", run="may")
    before = asyncio.run(journal.read("may"))
    other = Team([Worker("other", "Somebody else.")], name="shop", journal=journal)
    with pytest.raises(Refused) as refusal:
        other.resume_sync("may", "approve")
    problem = "run 'may' counts on clerk, and team shop has no worker of that name"
    assert str(refusal.value) == f"{problem}; resume it with the team 'office' it began with"
    bare = Team([Worker("clerk", "Pays bills.")], name="shop", journal=journal)
    with pytest.raises(Refused, match="counts on pay, a tool that clerk of team shop does not have; give it back to"):
        bare.resume_sync("may", "approve")
    assert asyncio.run(journal.read("may")) == before
    assert team.resume_sync("may", "approve").ending == "complete"
    assert paid == ["0 to Ott"]


def test_any_team_may_cancel_a_run() -> None:
    journal = MemoryJournal()
    office("Ott", journal=journal)[0].run_sync("Pay.", run="may")
    other = Team([Worker("other", "Somebody else.")], journal=journal)
    assert other.resume_sync("may", ev.CancelRequested("it is over")).ending == "cancelled"


def test_a_run_that_waits_for_a_person_may_be_paused_and_goes_on_with_the_answer() -> None:
    team, paid = office("Ott")
    team.run_sync("Pay.", run="may")
    paused = team.resume_sync("may", ev.PauseSet(paused=True))
    assert (paused.ending, paused.question is not None) == ("needs_input", True)
    assert team.resume_sync("may", "approve").ending == "complete"
    assert paid == ["0 to Ott"]


def test_a_plan_is_approved_in_a_word() -> None:
    team, paid = office("Ott", policy=Policy(approve=True))
    asked = team.run_sync("Pay.", run="may")
    assert asked.question is not None
    assert asked.question.what == "plan"
    assert team.resume_sync("may", "approve").question is not None
    assert paid == []


SAYS: dict[str, tuple[object, list[str], str]] = {
    "true": (True, ["0 to Ott"], "complete"),
    "approve": ("approve", ["0 to Ott"], "complete"),
    "false": (False, [], "partial"),
    "reject": ("reject: not now", [], "partial"),
    "nothing": (None, [], "needs_input"),
}


@pytest.mark.parametrize("what", SAYS)
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
def test_a_function_is_asked_with_the_whole_call_and_its_verdict_is_journaled(what: str, *, waits: bool) -> None:
    verdict, wanted, ending = SAYS[what]
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool | str | None:
        asked.append(request)
        return cast("bool | str | None", verdict)

    async def decide_later(request: ApprovalRequest) -> bool | str | None:
        await asyncio.sleep(0)
        return decide(request)

    team, paid = office("Ott", on_approval=decide_later if waits else decide)
    done = team.run_sync("Pay.", run="may")
    assert (done.ending, paid) == (ending, wanted)
    (request,) = asked
    assert (request.run, request.what, request.worker, request.tool) == ("may", "tool", "clerk", "pay")
    assert (request.arguments, request.because, request.task) == ({"supplier": "Ott", "euros": 0}, "declared", "bill")
    answers = [entry.event for entry in done.entries if isinstance(entry.event, ev.InputAnswered)]
    assert len(answers) == (verdict is not None)
    if what == "nothing":
        assert "paid" in cast("str", team.resume_sync("may", "approve").answer)


def test_a_function_is_asked_about_each_of_many_calls() -> None:
    def allow(request: ApprovalRequest) -> bool:
        return cast("int", request.arguments["euros"]) % 2 == 0

    names = [f"supplier{at}" for at in range(12)]
    for one_by_one in (False, True):
        team, paid = office(*names[: 12 if one_by_one else 6], on_approval=allow, one_by_one=one_by_one)
        assert team.run_sync("Pay.").ending == "partial", "half of the calls were refused"
        assert len(paid) == (6 if one_by_one else 3)


def test_a_function_approves_plans_and_calls_of_a_team_inside_a_team() -> None:
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    inner, paid = office("Ott", policy=Policy(approve=True))
    plan = Plan((Task(TaskId("t1"), "Pay the bills.", "office"),), "forward")
    outer = Team([inner.as_worker()], supervisor=Supervisor(plan=plan), name="firm", on_approval=decide)
    assert outer.run_sync("Pay.").ending == "complete"
    assert paid == ["0 to Ott"]
    assert [(one.what, one.worker, one.tool) for one in asked] == [
        ("plan", "office", ""),
        ("tool", "office > clerk", "pay"),
    ]
    assert asked[0].plan == ("bill (clerk): Pay the bills.",)


async def test_a_stream_goes_on_after_the_verdict() -> None:
    team, paid = office("Ott", on_approval=lambda request: True)
    seen = [type(entry.event).__name__ async for entry in team.stream("Pay.")]
    assert seen.index("InputRequested") < seen.index("InputAnswered")
    assert (seen[-1], paid) == ("RunEnded", ["0 to Ott"])


@pytest.mark.parametrize("verdict", ["sure", 1, {}])
def test_what_is_no_verdict_approves_nothing(verdict: object) -> None:
    team, paid = office("Ott", on_approval=lambda request: cast("bool", verdict))
    with pytest.raises(Invalid, match="on_approval is"):
        team.run_sync("Pay.", run="may")
    assert paid == []
    assert team.resume_sync("may", "reject").ending != "needs_input"


def test_a_function_that_fails_raises_and_leaves_the_question_open() -> None:
    def broken(request: ApprovalRequest) -> bool:
        raise KeyError(request.tool)

    team, paid = office("Ott", on_approval=broken)
    with pytest.raises(KeyError, match="pay"):
        team.run_sync("Pay.", run="may")
    assert paid == []


def test_errors_of_run_sync_come_without_the_error_of_a_missing_loop() -> None:
    team, _ = office("Ott")
    for call in (lambda: team.run_sync(" "), lambda: team.resume_sync("nobody")):
        try:
            call()
        except Exception:  # noqa: BLE001 - what a user would see
            shown = "".join(traceback.format_exception(*sys.exc_info()))
            assert "no running event loop" not in shown
            assert "During handling" not in shown


async def test_run_sync_within_a_loop_says_what_with_inner_gaps() -> None:
    team, _ = office("Ott")
    with pytest.raises(Invalid, match=r"write `await team.run\(...\)` there"):
        team.run_sync("Pay.")


def test_a_function_that_cannot_take_the_request_is_refused_when_declared() -> None:
    with pytest.raises(Invalid, match=r"on_approval cannot take a request .* write: def decide\(request\) -> bool"):
        Team([Worker("ann")], on_approval=lambda: True)  # pyright: ignore[reportArgumentType] - that is the point
