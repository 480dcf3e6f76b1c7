"""Effects of which nobody knows whether they happened: looked up by tools, asked about call by call, or failed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from chargehand import Unknown
from chargehand.agents.executor import Assignment
from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.runtime.executor import Done, StepContext
from chargehand.team import Team
from chargehand.tools.tool import CallKey, LookUp, Tool, tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team
from tests.agents.test_break_resume import APPLES, PEARS, by_step, cut
from tests.runtime.streams import rows
from tests.runtime.streams import written as written_journal

Verdict = Literal["done", "again", "fail"]
TWO = calls(call("mail", 1, to="Ann"), call("mail", 2, to="Bob"))
QUICK = Policy(retry=Retry(base=0.001, ceiling=0.001))


class Post:
    """A post office that sends a mail and loses the reply for some receivers.

    Args:
        lost: the receivers.
        happened: looks up whether a mail was sent.
        together: the first so many mails are under way at the same time.
    """

    def __init__(self, *lost: str, happened: LookUp | None = None, together: int = 0) -> None:
        self.lost = set(lost)
        self.sent: list[tuple[str, str]] = []
        begun = asyncio.Event()

        @tool(effect="effect", trusted=True, happened=happened)
        async def mail(to: str, key: CallKey) -> str:
            """Send a mail."""
            self.sent.append((to, key))
            if len(self.sent) >= together:
                begun.set()
            await begun.wait()
            if to in self.lost:
                raise ConnectionResetError("the line went dead")
            return f"sent to {to}"

        self.mail = mail

    @property
    def receivers(self) -> list[str]:
        return [to for to, _ in self.sent]


def office(post: Post, *lines: Line, policy: Policy = QUICK, journal: MemoryJournal | None = None) -> Team:
    script = model(work=by_step(*(lines or (TWO, "Both know."))))
    return team(script, Worker("ann", tools=[post.mail]), policy=policy, journal=journal)


async def say(team: Team, result: Result, first: Verdict, *others: ev.CallVerdict, told: object = None) -> Result:
    assert result.question is not None
    return await team.resume("r", ev.InputAnswered(result.question.number, first, result=told, also=others))


def doubts(result: Result) -> list[tuple[str, Any]]:
    """Return the task and the receiver of each call in the open question about effects."""
    assert result.question is not None
    assert result.question.what == "effect"
    return [(call.task, call.arguments["to"]) for call in result.question.calls]


async def after_last_start(entries: Sequence[ev.Entry]) -> MemoryJournal:
    """Return the journal of a process that died when the last effect of a run was under way."""
    starts = [(at, entry.event) for at, entry in enumerate(entries, 1) if isinstance(entry.event, ev.StepStarted)]
    return await cut(entries, max(at for at, started in starts if started.effect == "effect"))


# --- asked call by call


async def test_a_question_lists_each_effect_in_doubt_of_a_reply_with_its_key() -> None:
    post = Post("Ann", "Bob")
    found = await office(post).run("Count", run="r")
    assert (found.ending, doubts(found)) == ("needs_input", [("t1", "Ann"), ("t1", "Bob")])
    assert found.question is not None
    assert [pending.key for pending in found.question.calls] == [key for _, key in post.sent]
    assert [(gap.reason, gap.tool, gap.arguments["to"]) for gap in found.gaps] == [
        ("uncertain", "mail", "Ann"),
        ("uncertain", "mail", "Bob"),
    ]


async def test_a_call_that_was_made_is_answered_and_the_other_one_is_made_again_with_its_key() -> None:
    post = Post("Ann", "Bob")
    executor = office(post)
    found = await executor.run("Count", run="r")
    post.lost.clear()
    found = await say(executor, found, "done", ev.CallVerdict(2, "again"), told={"receipt": 7})
    assert (found.ending, post.receivers) == ("complete", ["Ann", "Bob", "Bob"])
    assert post.sent[1] == post.sent[2], "the key tells the service that it is the same mail"


async def test_the_model_reads_what_a_person_says_a_call_returned_and_no_call_of_it_is_repeated() -> None:
    post = Post("Ann", "Bob")
    script = model(work=by_step(TWO, "Both know."))
    executor = team(script, Worker("ann", tools=[post.mail]))
    found = await executor.run("Count", run="r")
    found = await say(executor, found, "done", ev.CallVerdict(2, "done", result=["by", "hand"]), told={"receipt": 7})
    assert (found.ending, found.results, post.receivers) == ("complete", {"t1": {"text": "Both know."}}, ["Ann", "Bob"])
    first, second = (message.text for message in script.requests[-1].messages if message.role == "tool")
    assert '"receipt":7' in first
    assert '["by","hand"]' in second
    assert len(script.requests) == 3, "plan, calls, answer"


async def test_a_call_without_a_verdict_is_asked_about_next() -> None:
    post = Post("Ann", "Bob")
    executor = office(post)
    found = await say(executor, await executor.run("Count", run="r"), "done", told="sent")
    assert (found.ending, doubts(found), post.receivers) == ("needs_input", [("t1", "Bob")], ["Ann", "Bob"])
    found = await say(executor, found, "done", told="sent")
    assert (found.ending, post.receivers) == ("complete", ["Ann", "Bob"])


async def test_a_call_that_is_said_to_fail_fails_its_task_and_the_other_stays_in_doubt() -> None:
    post = Post("Ann", "Bob")
    executor = office(post)
    found = await say(executor, await executor.run("Count", run="r"), "fail", ev.CallVerdict(2, "done", result="sent"))
    assert (found.ending, found.reason, post.receivers) == ("failed", "no_results", ["Ann", "Bob"])
    assert [(gap.status, gap.reason, gap.tool, gap.arguments) for gap in found.gaps] == [
        ("failed", "uncertain", "mail", {"to": "Ann"})
    ]


async def test_a_finished_call_of_the_same_reply_is_not_repeated_after_the_answer() -> None:
    post = Post("Bob")
    executor = office(post)
    found = await executor.run("Count", run="r")
    assert doubts(found) == [("t1", "Bob")]
    found = await say(executor, found, "done", told="sent")
    assert (found.ending, post.receivers) == ("complete", ["Ann", "Bob"])


async def test_effects_in_doubt_of_two_tasks_are_one_question_after_a_crash() -> None:

    def work(request: Request) -> Line:
        to = "Ann" if "apples" in request.messages[1].text else "Bob"
        return by_step(calls(call("mail", to=to)), f"{to} knows.")(request)

    def shop(post: Post, journal: MemoryJournal | None = None) -> Team:
        workers = (Worker("ann", tools=[post.mail]), Worker("bob", tools=[post.mail]))
        return team(model(plans=[plan(APPLES, PEARS)], work=work), *workers, journal=journal)

    whole = await shop(Post(together=2)).run("Count", run="r")
    post = Post()
    executor = shop(post, await after_last_start(whole.entries))
    found = await executor.resume("r")
    assert doubts(found) == [("t1", "Ann"), ("t2", "Bob")]
    found = await say(executor, found, "done", ev.CallVerdict(2, "again"), told="sent")
    assert (found.ending, found.results) == ("complete", whole.results)
    assert post.receivers == ["Bob"]


def _nested_office(post: Post, levels: int, journal: MemoryJournal | None = None) -> Team:
    """Return a team whose office is so many teams inside it."""
    journal = journal or MemoryJournal()
    outer = office(post, journal=journal)
    for level in range(levels):
        task = Task(TaskId("o"), "Have both of them told.", f"in{level}")
        supervisor = Supervisor(model=model(), plan=Plan((task,), "forward"))
        outer = Team([outer.as_worker(f"in{level}", "tells")], supervisor=supervisor, name=f"n{level}", journal=journal)
    return outer


@pytest.mark.parametrize("levels", [1, 2])
async def test_effects_in_doubt_of_a_nested_team_are_answered_outside_call_by_call(levels: int) -> None:
    post = Post("Ann", "Bob")
    outer = _nested_office(post, levels)
    found = await outer.run("Tell them.", run="r")
    assert found.question is not None
    assert [pending.arguments for pending in found.question.calls] == [{"to": "Ann"}, {"to": "Bob"}]
    post.lost.clear()
    found = await say(outer, found, "done", ev.CallVerdict(2, "again"), told="sent")
    assert (found.ending, post.receivers) == ("complete", ["Ann", "Bob", "Bob"])
    assert post.sent[1] == post.sent[2]


@pytest.mark.parametrize("levels", [1, 2])
async def test_a_cancelled_run_names_the_effects_in_doubt_of_a_nested_team_that_waits(levels: int) -> None:
    outer = _nested_office(Post("Ann", "Bob"), levels)
    result = await outer.run("Tell them.", run="r")
    assert result.ending == "needs_input"
    result = await outer.resume("r", ev.CancelRequested("not wanted any more"))
    assert result.ending == "cancelled"
    named = [(gap.task, gap.reason, gap.tool, gap.arguments) for gap in result.gaps if gap.tool]
    assert named == [("o", "uncertain", "mail", {"to": "Ann"}), ("o", "uncertain", "mail", {"to": "Bob"})]


@pytest.mark.parametrize(
    "written", [(), (ev.CancelRequested("enough"),), (ev.CancelRequested("enough"), ev.WorkStopped())]
)
@pytest.mark.parametrize("levels", [1, 2])
async def test_a_run_that_is_cancelled_after_a_crash_names_the_effects_in_doubt_of_a_nested_team(
    levels: int, written: Sequence[ev.Event]
) -> None:
    journal = MemoryJournal()
    await _nested_office(Post(together=2), levels, journal).run("Tell them.", run="r")
    runs = {run: _until_last_start(entries) for run, entries in (await rows(journal)).items()}
    last = runs["r"][-1]
    runs["r"] += [ev.Entry(last.seq + number, last.at, event) for number, event in enumerate(written, 1)]
    cancel = () if written else (ev.CancelRequested("enough"),)
    result = await _nested_office(Post(), levels, await written_journal(runs)).resume("r", *cancel)
    assert result.ending == "cancelled"
    named = [(gap.task, gap.reason, gap.tool, gap.arguments) for gap in result.gaps if gap.tool]
    assert named == [("o", "uncertain", "mail", {"to": "Ann"}), ("o", "uncertain", "mail", {"to": "Bob"})]


def _until_last_start(entries: Sequence[ev.Entry]) -> list[ev.Entry]:
    """Return what a process had written that died when the last call or nested run was under way."""
    starts = [(at, entry.event) for at, entry in enumerate(entries, 1) if isinstance(entry.event, ev.StepStarted)]
    return list(entries[: max(at for at, step in starts if step.effect != "read")])


async def test_the_step_of_a_function_worker_is_answered_and_the_function_goes_on_with_it() -> None:
    begun: list[str] = []

    async def act(_assignment: Assignment, context: StepContext) -> str:
        async def book(key: str) -> Done:
            begun.append(key)
            raise ConnectionResetError("the line went dead")

        booked = await context.step("book", book, request="a berth", effect="effect")
        return f"booked: {booked}"

    task = Task(TaskId("t1"), "Book a berth.", "ann")
    executor = Team(
        [Worker("ann", call=act)], supervisor=Supervisor(plan=Plan((task,), "forward")), journal=MemoryJournal()
    )
    found = await executor.run("Book", run="r")
    assert found.question is not None
    [pending] = found.question.calls
    assert (pending.tool, pending.key) == ("book", begun[0])
    found = await say(executor, found, "done", told="berth 12")
    assert (found.ending, found.results, len(begun)) == ("complete", {"t1": {"text": "booked: berth 12"}}, 1)


async def test_a_call_in_doubt_fails_its_task_unasked_where_the_policy_says_so() -> None:
    post = Post("Ann", "Bob")
    found = await office(post, policy=Policy(uncertain="fail")).run("Count", run="r")
    assert (found.ending, found.question, post.receivers) == ("failed", None, ["Ann", "Bob"])
    assert [gap.arguments for gap in found.gaps] == [{"to": "Ann"}, {"to": "Bob"}]


async def test_an_answer_that_cites_the_task_of_a_call_in_doubt_says_that_it_is_in_doubt() -> None:
    post = Post("Ann")

    def work(request: Request) -> Line:
        return by_step(calls(call("mail", to="Ann")))(request) if "apples" in request.messages[1].text else "Twelve."

    script = model(plans=[plan(APPLES, PEARS)], work=work, answer="Ann got her mail [t1].")
    workers = (Worker("ann", tools=[post.mail]), Worker("bob"))
    found = await team(script, *workers, policy=Policy(uncertain="fail")).run("Count", run="r")
    told = 'Not answered:\n- t1: it is not known whether mail({"to":"Ann"}) happened'
    assert str(found.answer).startswith(f"Ann got her mail [t1].\n\n{told}")


# --- looked up by the tool


class Register:
    """What a service knows of the mails, by key, and how it was asked."""

    def __init__(self, answer: Callable[[Post, Mapping[str, Any], str], object]) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, str]] = []
        self.post = Post("Ann", happened=self.look)

    def look(self, arguments: Mapping[str, Any], key: str) -> object:
        self.asked.append((arguments["to"], key))
        return self.answer(self.post, arguments, key)


def knows(post: Post, arguments: Mapping[str, Any], key: str) -> object:
    return "it was sent" if (arguments["to"], key) in post.sent else None


def never_came(post: Post, _arguments: Mapping[str, Any], _key: str) -> object:
    post.lost.clear()
    return None


def cannot_tell(_post: Post, _arguments: Mapping[str, Any], _key: str) -> object:
    return Unknown


def breaks(_post: Post, _arguments: Mapping[str, Any], _key: str) -> object:
    raise ConnectionResetError("the service is away")


async def test_a_tool_that_knows_the_result_answers_the_call_and_nobody_is_asked() -> None:
    service = Register(knows)
    script = model(work=by_step(TWO, "Both know."))
    found = await team(script, Worker("ann", tools=[service.post.mail]), policy=QUICK).run("Count", run="r")
    assert (found.ending, service.post.receivers) == ("complete", ["Ann", "Bob"])
    assert service.asked == service.post.sent[:1], "it is asked with the arguments and the key, once"
    assert any("it was sent" in message.text for message in script.requests[-1].messages)


async def test_a_call_that_did_not_happen_is_made_again_with_its_key() -> None:
    service = Register(never_came)
    found = await office(service.post).run("Count", run="r")
    assert (found.ending, service.post.receivers) == ("complete", ["Ann", "Bob", "Ann"])
    assert service.post.sent[0] == service.post.sent[2]
    assert of_kind(found.entries, ev.StepLookedUp) == [ev.StepLookedUp(TaskId("t1"), 2, 2, "absent")]


async def test_a_person_is_asked_where_the_tool_cannot_tell() -> None:
    service = Register(cannot_tell)
    executor = office(service.post)
    found = await executor.run("Count", run="r")
    assert (found.ending, doubts(found), len(service.asked)) == ("needs_input", [("t1", "Ann")], 1)
    found = await say(executor, found, "done", told="sent")
    assert (found.ending, service.post.receivers) == ("complete", ["Ann", "Bob"])


async def test_a_look_up_that_fails_is_made_again_five_times_before_a_person_is_asked() -> None:
    service = Register(breaks)
    found = await office(service.post).run("Count", run="r")
    assert (found.ending, doubts(found), len(service.asked)) == ("needs_input", [("t1", "Ann")], 5)
    assert service.post.receivers == ["Ann", "Bob"]


async def test_a_look_up_that_fails_once_is_made_again_and_nobody_is_asked() -> None:
    def breaks_once(post: Post, arguments: Mapping[str, Any], key: str) -> object:
        if len(service.asked) == 1:
            raise ConnectionResetError("the service is away")
        return knows(post, arguments, key)

    service = Register(breaks_once)
    found = await office(service.post).run("Count", run="r")
    assert (found.ending, len(service.asked), service.post.receivers) == ("complete", 2, ["Ann", "Bob"])


async def test_a_look_up_may_be_asynchronous() -> None:
    async def look(arguments: Mapping[str, Any], key: str) -> object:
        return knows(post, arguments, key)

    post = Post("Ann", "Bob", happened=look)
    found = await office(post).run("Count", run="r")
    assert (found.ending, post.receivers) == ("complete", ["Ann", "Bob"])


@pytest.mark.parametrize("known", [True, False], ids=["happened", "did not happen"])
async def test_after_a_crash_the_tool_is_asked_before_any_person(*, known: bool) -> None:
    whole_post = Post(happened=lambda _arguments, _key: Unknown)
    whole = await office(whole_post, calls(call("mail", to="Ann")), "Ann knows.").run("Count", run="r")
    post = Post(happened=lambda _arguments, _key: "sent to Ann" if known else None)
    executor = office(post, calls(call("mail", to="Ann")), "Ann knows.", journal=await after_last_start(whole.entries))
    found = await executor.resume("r")
    assert (found.ending, found.results) == ("complete", whole.results)
    assert post.sent == ([] if known else whole_post.sent)


async def test_a_tool_that_is_gone_leaves_the_question_to_a_person() -> None:
    whole = await office(Post(happened=lambda _arguments, _key: None, together=2)).run("Count", run="r")
    post = Post()
    found = await office(post, journal=await after_last_start(whole.entries)).resume("r")
    assert (found.ending, doubts(found), post.sent) == ("needs_input", [("t1", "Ann"), ("t1", "Bob")], [])


def test_only_an_effect_is_looked_up() -> None:
    with pytest.raises(Invalid, match="only an effect is looked up; add effect='effect', or leave happened out"):

        @tool(happened=lambda _arguments, _key: None)
        def mail(to: str) -> str:
            """Send a mail."""
            return to


def test_a_look_up_takes_the_arguments_and_the_key() -> None:
    def look(_key: str) -> None: ...

    with pytest.raises(Invalid, match=r"tool 'mail': happened cannot take .*; write: def look\(arguments, key\)"):

        @tool(effect="effect", happened=look)  # pyright: ignore[reportArgumentType] - that is the point
        def mail(to: str) -> str:
            """Send a mail."""
            return to


def test_a_look_up_of_a_tool_is_kept() -> None:
    look: LookUp = lambda _arguments, _key: None  # noqa: E731
    assert isinstance(Post(happened=look).mail, Tool)
    assert Post(happened=look).mail.happened is look
