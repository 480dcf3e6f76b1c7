"""The contract for messages between workers: who may write to whom, how often, and what happens outside of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from chargehand.agents.messages import MAIL, MATCHING, ONE
from chargehand.agents.roles import Supervisor, Worker
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, ToolCall
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE, calls
from tests.agents.options import make_team
from tests.config.files import parts, said, write
from tests.envelopes import unwrap

PLAN = Plan((Task(TaskId("t1"), "Ask the others.", "ann"),), "none")
OTHERS = (Worker("bob", tags=["hand"]), Worker("cid", tags=["hand", "left"]), Worker("dot", tags=["roof"]))


def ask(worker: str, number: int = 1) -> ToolCall:
    return ToolCall(f"c{number}", ONE, json.dumps({"message": f"How many, time {number}?", "worker": worker}))


def ask_all(number: int = 1, **tags: Sequence[str]) -> ToolCall:
    return ToolCall(f"c{number}", MATCHING, json.dumps({"message": "How many?", **tags}))


class Crowd:
    """Ann makes these calls, one after another; everybody else has three."""

    def __init__(self, *made: ToolCall | tuple[ToolCall, ...]) -> None:
        self._made = made
        self.heard: list[str] = []
        self.returned: list[dict[str, object]] = []
        self.script = ScriptedModel(self._line, card=FREE)

    def _line(self, request: Request) -> Line:
        assert isinstance(request.subject, Working)
        name = request.subject.worker.name
        if name != "ann":
            self.heard.append(name)
            return f"{name} has 3"
        results = [unwrap(one.text) for one in request.messages if one.role == "tool"]
        self.returned = [json.loads(one[1]) for one in results if one is not None]
        turn = sum(one.role == "assistant" for one in request.messages)
        if turn == len(self._made):
            return "done"
        wanted = self._made[turn]
        return calls(*(wanted if isinstance(wanted, tuple) else (wanted,)))

    async def work(self, contacts: Sequence[str], *workers: Worker, **more: object) -> Team:
        options: dict[str, object] = {"journal": MemoryJournal(), "policy": Policy(retry=Retry(attempts=1)), **more}
        ann = Worker("ann", tools=MAIL, contacts=contacts)
        team = make_team([ann, *(workers or OTHERS)], model=self.script, plan=PLAN, **options)
        await team.run("Count", run="r")
        return team

    @property
    def refusal(self) -> str:
        return str(self.returned[-1].get("error") or self.returned[-1].get("note"))


# --- whom


@pytest.mark.parametrize(
    ("contacts", "reached"),
    [
        (["bob"], ["bob"]),
        (["tag:hand"], ["bob", "cid"]),
        (["tag:left", "dot"], ["cid", "dot"]),
        (["*"], ["bob", "cid", "dot"]),
    ],
)
async def test_who_is_in_the_contract_gets_messages_and_nobody_else(
    contacts: Sequence[str], reached: list[str]
) -> None:
    everybody = Crowd(ask_all())
    await everybody.work(contacts)
    assert sorted(everybody.heard) == reached
    for name in ("bob", "cid", "dot"):
        one = Crowd(ask(name))
        await one.work(contacts)
        assert one.heard == ([name] if name in reached else [])
        if name not in reached:
            assert one.refusal == f"You may not write to {name!r}. You may write to {', '.join(reached)}."


async def test_tags_are_narrowed_to_the_contract() -> None:
    crowd = Crowd(ask_all(match_all=["hand"]))
    await crowd.work(["cid", "dot"])
    assert crowd.heard == ["cid"]
    assert [one["worker"] for one in crowd.returned[0]["replies"]] == ["cid"]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType] - as it is journaled


async def test_tags_that_only_others_carry_reach_nobody_and_it_is_said_who_there_is() -> None:
    crowd = Crowd(ask_all(match_all=["roof"]))
    await crowd.work(["tag:hand"])
    assert crowd.heard == []
    assert crowd.refusal == (
        "No other worker carries all of roof; the tags there are: hand, left. You may write to bob, cid."
    ), "tags of those outside are not told"


async def test_a_name_that_is_not_there_is_answered_with_those_of_the_contract() -> None:
    crowd = Crowd(ask("dott"))
    await crowd.work(["bob"])
    assert "'dot'" not in crowd.refusal
    assert crowd.refusal == "You may not write to 'dott'. You may write to bob."


async def test_the_model_is_told_whom_it_may_write_to() -> None:
    crowd = Crowd(ask("bob"))
    await crowd.work(["tag:hand"])
    first = crowd.script.requests[0]
    told = {one.name: one.description for one in first.tools}
    assert all(told[name].endswith("You may write to bob, cid.") for name in MAIL)


async def test_what_a_worker_says_of_itself_does_not_widen_its_contract() -> None:
    """The sender is who the engine recorded, so a reader without contacts cannot pass a message on."""
    crowd = Crowd(ToolCall("c1", ONE, json.dumps({"message": "I am dot.", "worker": "dot", "sender": "dot"})))
    await crowd.work(["bob"])
    assert crowd.heard == []


async def test_contracts_are_each_ones_own() -> None:
    def line(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        name = request.subject.worker.name
        done = any(one.role == "assistant" for one in request.messages)
        asks = {"ann": "bob", "bob": "cid"}.get(name)
        if asks is None or done:
            return " ".join(one.text for one in request.messages if one.role == "tool") or f"{name} has 3"
        return calls(ask("dot" if name == "bob" else asks))

    workers = [Worker("ann", tools=[ONE], contacts=["bob"]), Worker("bob", tools=[ONE], contacts=["cid"])]
    team = Team(
        [*workers, Worker("cid"), Worker("dot")], supervisor=Supervisor(model=ScriptedModel(line, card=FREE), plan=PLAN)
    )
    found = await team.run("Count")
    assert "You may write to cid." in str(found.results[TaskId("t1")])


async def test_a_person_is_not_bound_by_it() -> None:
    crowd = Crowd()
    team = await crowd.work(["bob"])
    replies = await team.message("How many?", workers=["dot"])
    assert [one.status for one in replies.replies] == ["answered"]
    replies = await team.message("How many?", match_all=["hand"])
    assert [one.worker for one in replies.replies] == ["bob", "cid"]


async def test_money_is_held_only_for_those_who_may_be_asked() -> None:
    crowd = Crowd(ask_all())
    team = await crowd.work(["bob"], budget=Budget(calls=60))
    assert crowd.heard == ["bob"]
    async with team.driven() as driver:
        entries = await driver.journal.read("r")
    (held,) = [
        one.event.reserve for one in entries if isinstance(one.event, ev.StepStarted) and one.event.name == MATCHING
    ]
    assert held is not None
    assert held.calls == Worker("bob").steps, "for one of the three"


# --- as it is declared


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (
            Worker("ann", tools=[ONE]),
            "worker 'ann' has send_message_to_agent_and_wait_for_reply and no contacts: it may",
        ),
        (Worker("ann", contacts=["bob"]), "has contacts and no tool to write to them; add send_message_to_agent_and"),
        (Worker("ann", tools=[ONE], contacts=["bop"]), "contacts: there is no worker 'bop' to write to"),
        (Worker("ann", tools=[ONE], contacts=["ann"]), "contacts: is the worker itself"),
        (
            Worker("ann", tools=[ONE], contacts=["tag:x"]),
            "no other worker carries the tag 'x'; the tags there are: hand",
        ),
    ],
)
def test_a_contract_nobody_could_keep_is_refused_when_it_is_declared(worker: Worker, said: str) -> None:
    with pytest.raises(Invalid) as raised:
        Team([worker, Worker("bob", tags=["hand"])])
    assert said in str(raised.value)


def test_another_contract_is_another_worker_for_whoever_would_use_results_again() -> None:
    def spec(contacts: Sequence[str]) -> str:
        return Team([Worker("ann", tools=[ONE], contacts=contacts), *OTHERS]).roster.agents[0].spec

    assert spec(["bob"]) == spec(("bob",))
    assert spec(["bob"]) != spec(["*"])


FILE = """\
version: 1
workers:
  ann:
    description: Asks the others.
    tools: [{tools}]
    contacts: {contacts}
  bob: {{description: Counts., tags: [hand]}}
  cid: Counts.
"""


@pytest.mark.parametrize(
    ("contacts", "made"),
    [
        ('[bob, "tag:hand"]', ("bob", "tag:hand")),
        ('["*"]', ("*",)),
    ],
)
def test_a_team_file_says_it_under_the_worker(tmp_path: Path, contacts: str, made: object) -> None:
    text = FILE.format(tools=ONE, contacts=contacts)
    found = parts(tmp_path, text)
    assert found.findings == []
    assert found.workers[0].contacts == made
    assert load_team(write(tmp_path, text)).members[0].name == "ann"


@pytest.mark.parametrize(
    ("tools", "contacts", "problem"),
    [
        (ONE, "[]", f"team.yaml:2: workers: worker 'ann' has {ONE} and no contacts: it may write to no worker"),
        (
            "dates",
            "[bob]",
            "team.yaml:2: workers: worker 'ann' has contacts and no tool to write to them; add send_message",
        ),
        (
            ONE,
            "[bob, bop]",
            "workers: worker 'ann': contacts: there is no worker 'bop' to write to; did you mean 'bob'?",
        ),
        (ONE, '[bob, "tag:x"]', "worker 'ann': contacts: no other worker carries the tag 'x'"),
    ],
)
def test_what_is_wrong_in_a_team_file_is_said_where_it_stands(
    tmp_path: Path, tools: str, contacts: str, problem: str
) -> None:
    found = parts(tmp_path, FILE.format(tools=tools, contacts=contacts))
    assert problem in said(found.findings, found.source.file)[0]


def test_contacts_that_are_no_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"workers\.ann\.contacts: must be a list"):
        load_team(write(tmp_path, FILE.format(tools=ONE, contacts="bob")))
