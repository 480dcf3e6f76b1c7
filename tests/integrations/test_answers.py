"""Answers of persons over A2A, AG-UI and MCP: each reaches the question that its giver was shown, and counts once."""

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.helpers.proto_helpers import new_data_part, new_text_part
from ag_ui.core.types import ResumeEntry

from chargehand import (
    CallKey,
    MemoryJournal,
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
from chargehand.integrations.a2a_worker import from_a2a
from tests.integrations.doors import DOORS, PLUGINS, A2aDoor, AgUiDoor, DoorRefused, McpDoor, door_apis
from tests.integrations.serving import Process
from tests.server.api import Garden
from tests.server.running import running, settings_in

Paid = list[str]
"""Payees, in order."""
Mailed = list[tuple[str, str]]
"""Addresses, each with the key of the call."""


def _payer(name: str, paid: Paid, *replies: tuple[str, ...]) -> Team:
    """Return a team that pays the payees of each reply of its model, one reply after the other."""

    @tool(effect="effect", approve=True)
    async def pay(payee: str) -> str:
        """Pay somebody."""
        paid.append(payee)
        return f"receipt {payee}"

    def work(request: Request) -> Reply | str:
        rounds = sum(message.role == "assistant" for message in request.messages)
        if rounds >= len(replies):
            return "Paid."
        calls = (ToolCall(f"{rounds}-{payee}", "pay", f'{{"payee": "{payee}"}}') for payee in replies[rounds])
        return Reply(calls=tuple(calls), finish="tools")

    plan = Plan((Task("t1", "Pay them.", "clerk"),), "forward")
    worker = Worker("clerk", "pays", tools=[pay], model=ScriptedModel(work))
    return Team([worker], name=name, supervisor=Supervisor(plan=plan))


def _mailer(mailed: Mailed) -> Team:
    """Return a team whose first mail may have left: the line breaks before its tool knows."""

    @tool(effect="effect")
    async def mail(to: str, key: CallKey) -> str:
        """Mail somebody."""
        mailed.append((to, str(key)))
        if len(mailed) == 1:
            raise ConnectionResetError("the line broke")
        return "sent"

    def work(request: Request) -> Reply | str:
        results = [message.text for message in request.messages if message.role == "tool"]
        call = ToolCall("1", "mail", '{"to": "Ute"}')
        return f"The mail came to {results[-1]}." if results else Reply(calls=(call,), finish="tools")

    plan = Plan((Task("t1", "Mail Ute.", "clerk"),), "forward")
    worker = Worker("clerk", "mails", tools=[mail], model=ScriptedModel(work))
    return Team([worker], name="mails", supervisor=Supervisor(plan=plan), policy=Policy(uncertain="ask"))


class Office:
    """A server of teams that pay and mail, and what they paid and mailed."""

    def __init__(self, home: Garden, paid: Paid, mailed: Mailed) -> None:
        self.home = home
        self.paid = paid
        self.mailed = mailed

    def door(self, name: str) -> A2aDoor | AgUiDoor | McpDoor:
        return DOORS[name](self.home.server.url, self.home.server.headers)

    def a2a(self) -> A2aDoor:
        return A2aDoor(self.home.server.url, self.home.server.headers)

    def answer_elsewhere(self, run: str, number: int) -> None:
        """Approve over the server's own API, as another person would."""
        body = {"number": number, "verdict": "approve"}
        assert self.home.client.post(f"/api/runs/{run}/answer", json=body).status_code == 200
        self.home.wait(run, "needs_input", "complete")


@contextmanager
def served(folder: Path) -> Generator[Office]:
    paid: Paid = []
    mailed: Mailed = []
    teams = (_payer("serial", paid, ("Ott",), ("Bob",)), _payer("both", paid, ("Ott", "Bob")), _mailer(mailed))
    with (
        running(settings_in(folder, teams=teams, grace=0.2), apis=door_apis()) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        yield Office(Garden(server, client, folder), paid, mailed)


@pytest.fixture(scope="module")
def shared_office(tmp_path_factory: pytest.TempPathFactory) -> Generator[Office]:
    with served(tmp_path_factory.mktemp("office")) as office:
        yield office


@pytest.fixture
def office(shared_office: Office) -> Office:
    """An office that has paid and mailed nothing. Its server has runs of other tests."""
    shared_office.paid.clear()
    shared_office.mailed.clear()
    return shared_office


@pytest.fixture
def unused_office(tmp_path: Path) -> Generator[Office]:
    """An office of its own, for mails: a tool that fails in one run after the other would be left alone."""
    with served(tmp_path) as office:
        yield office


def number_of(document: dict[str, Any]) -> int:
    return document["question"]["number"]


every_door = pytest.mark.parametrize("name", DOORS)


@every_door
def test_the_same_answer_again_changes_nothing_and_leaves_the_next_question_open(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("serial")
    first = door.answer(run, 1, "approve", "m-77")
    assert number_of(first) == 2
    again = door.answer(run, 1, "approve", "m-77")
    assert number_of(again) == 2
    assert office.paid == ["Ott"]
    assert door.answer(run, 2, "approve", "m-78")["state"] == "complete"
    assert door.answer(run, 1, "approve", "m-77")["state"] == "complete", "also after the end"
    assert office.paid == ["Ott", "Bob"]


@every_door
def test_the_same_answer_sent_eight_times_at_once_counts_once(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("serial")
    with ThreadPoolExecutor(8) as threads:
        sent = [threads.submit(door.answer, run, 1, "approve", "m-77") for _ in range(8)]
        assert {number_of(reply.result()) for reply in sent} == {2}
    assert office.paid == ["Ott"]


@every_door
def test_an_answer_with_a_wrong_or_an_old_number_is_refused(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("serial")
    with pytest.raises(DoorRefused, match=r"question 7|#7"):
        door.answer(run, 7, "approve")
    office.answer_elsewhere(run, 1)
    with pytest.raises(DoorRefused, match="question 1 is not being asked"):
        door.answer(run, 1, "approve")
    assert office.paid == ["Ott"]


@every_door
def test_another_answer_to_the_same_question_is_refused_and_the_first_counts(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("serial")
    door.answer(run, 1, "approve", "m-1")
    with pytest.raises(DoorRefused, match="came before with another answer"):
        door.answer(run, 1, "reject: too dear", "m-1")
    assert office.paid == ["Ott"]


@every_door
def test_an_answer_after_the_end_is_refused(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("serial")
    office.answer_elsewhere(run, 1)
    office.answer_elsewhere(run, 2)
    with pytest.raises(DoorRefused) as refused:
        door.answer(run, 2, "reject: too late")
    assert "POST" not in str(refused.value), "it names no call of another API"
    assert office.paid == ["Ott", "Bob"]


@every_door
def test_all_calls_that_wait_are_told_and_each_gets_its_verdict(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("both")
    question = door.document(run)["question"]
    told = [(call["call"], call["tool"], call["arguments"], call["because"]) for call in question["calls"]]
    assert told == [(1, "pay", {"payee": "Ott"}, "declared"), (2, "pay", {"payee": "Bob"}, "declared")]
    assert "1 of 2" in question["message"]
    assert "Bob" in question["message"]
    document = door.answer(run, 1, {"1": "approve", "2": "reject: unknown payee"})
    assert document["state"] == "partial", "a refused call is a gap"
    assert office.paid == ["Ott"]


@every_door
def test_one_word_for_several_calls_is_refused(office: Office, name: str) -> None:
    door = office.door(name)
    run = door.begin("both")
    with pytest.raises(DoorRefused, match=r"2 calls .*Ott.*Bob"):
        door.answer(run, 1, "approve")
    assert office.paid == []


@every_door
@pytest.mark.parametrize(
    ("team", "answer"),
    [
        ("serial", "approve: only 50"),
        ("serial", "Approve, but only 50"),
        ("both", {"1": "reject", "2": "approve only 50"}),
    ],
)
def test_a_yes_with_a_condition_approves_nothing(office: Office, name: str, team: str, answer: object) -> None:
    door = office.door(name)
    run = door.begin(team)
    with pytest.raises(DoorRefused, match=r"a yes takes no condition|allowed are"):
        door.answer(run, 1, answer)
    assert number_of(door.document(run)) == 1
    assert office.paid == []


_TEAM = """
import time
from pathlib import Path
from chargehand import *

PAID = Path(__file__).with_name("paid")
HELD = Path(__file__).with_name("held")

@tool(effect="idempotent", approve=True)
def pay(payee: str) -> str:
    "Pay somebody. The same payment again is the same payment."
    (PAID / payee).touch()
    while HELD.exists():
        time.sleep(0.01)
    return f"receipt {payee}"

def work(request):
    rounds = sum(message.role == "assistant" for message in request.messages)
    if rounds == 2:
        return "Paid."
    payee = ("Ott", "Bob")[rounds]
    return Reply(calls=(ToolCall(payee, "pay", f'{{"payee": "{payee}"}}'),), finish="tools")

plan = Plan((Task("t1", "Pay them.", "clerk"),), "forward")
workers = [Worker("clerk", "pays", tools=[pay], model=ScriptedModel(work))]
serial = Team(workers, name="serial", supervisor=Supervisor(plan=plan, model=ScriptedModel(lambda _: "All.")))
"""


@every_door
def test_an_answer_cut_by_kill_9_counts_once_when_it_is_sent_again(name: str, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(_TEAM)
    (tmp_path / "paid").mkdir()
    (tmp_path / "held").touch()
    server = Process(tmp_path, *PLUGINS, team="served:serial")
    door = DOORS[name](server.url, server.headers)
    try:
        run = door.begin("serial")
        with ThreadPoolExecutor(1) as threads:
            cut = threads.submit(door.answer, run, 1, "approve", "m-77")
            while not (tmp_path / "paid" / "Ott").exists():
                assert not cut.done(), cut.result()
                time.sleep(0.01)
            server.kill()
            assert cut.exception() is not None, "the client does not know whether its answer was taken"
    finally:
        server.close()
    (tmp_path / "held").unlink()
    server = Process(tmp_path, *PLUGINS, port=int(server.url.rpartition(":")[2]), team="served:serial")
    try:
        assert number_of(door.answer(run, 1, "approve", "m-77")) == 2
        assert not (tmp_path / "paid" / "Bob").exists()
        assert door.answer(run, 2, "approve", "m-78")["state"] == "complete"
    finally:
        server.close()


# --- words without a number: A2A


def test_words_are_good_for_the_question_that_the_client_was_shown_last(office: Office) -> None:
    door = office.a2a()
    run = door.begin("serial")
    office.answer_elsewhere(run, 1)
    with pytest.raises(DoorRefused, match="question 2 was not shown here"):
        door.say(run, "approve")
    assert office.paid == ["Ott"]
    assert number_of(door.document(run)) == 2
    assert door.say(run, "approve")["state"] == "complete"
    assert office.paid == ["Ott", "Bob"]


def test_the_same_words_again_do_not_answer_the_next_question(office: Office) -> None:
    door = office.a2a()
    run = door.begin("serial")
    assert number_of(door.say(run, "approve", "m-77")) == 2
    assert number_of(door.say(run, "approve", "m-77")) == 2
    assert office.paid == ["Ott"]


def test_words_beside_a_number_answer_that_question_only(office: Office) -> None:
    door = office.a2a()
    run = door.begin("serial")
    parts = [new_text_part("approve"), new_data_part({"number": 1})]
    assert door.send("serial", parts, task=run).status.message.parts[1].data.struct_value["number"] == 2
    with pytest.raises(DoorRefused, match="question 1 is not being asked"):
        door.send("serial", parts, task=run)
    assert office.paid == ["Ott"]


def test_the_order_of_the_fields_of_an_answer_does_not_make_it_another_one(office: Office) -> None:
    door = office.a2a()
    run = door.begin("serial")
    for fields in ({"verdict": "approve", "number": 1}, {"number": 1, "verdict": "approve"}):
        door.send("serial", [new_data_part(fields)], task=run, message="m-1")
    assert office.paid == ["Ott"]


def test_after_a_restart_words_need_a_number_or_another_look(tmp_path: Path) -> None:
    with served(tmp_path) as office:
        before = office.a2a()
        run = before.begin("serial")
        before.say(run, "approve", "m-1")
    with served(tmp_path) as office:
        door = office.a2a()
        door.teams[run] = "serial"
        with pytest.raises(DoorRefused, match="question 2 was not shown here"):
            door.say(run, "approve", "m-2")
        assert number_of(door.say(run, "approve", "m-1")) == 2, "the message of before is still known"
        assert office.paid == []
        assert door.answer(run, 2, "approve")["state"] == "complete"
        assert office.paid == ["Bob"]


async def test_a_worker_that_is_a_remote_agent_answers_only_the_question_that_it_told(office: Office) -> None:
    """Its run was looked at meanwhile with the same token, so the server takes words for the next question."""
    url = f"{office.home.server.url}/a2a/serial"
    worker = from_a2a("payer", url, headers=office.home.server.headers, effect="idempotent")
    plan = Plan((Task("t1", "Pay them.", "payer"),), "forward")
    local = Team([worker], supervisor=Supervisor(plan=plan), journal=MemoryJournal())
    waiting = await local.run("Pay them.")
    remote = office.home.client.get("/api/runs").json()["runs"][0]
    await asyncio.to_thread(office.answer_elsewhere, remote["run"], 1)
    door = office.a2a()
    door.teams[remote["run"]] = "serial"
    assert number_of(await asyncio.to_thread(door.document, remote["run"])) == 2
    await local.resume(waiting.run, "approve")
    assert office.paid == ["Ott"]


# --- several interrupts: AG-UI


def test_of_several_resume_entries_the_open_one_is_answered(office: Office) -> None:
    door = AgUiDoor(office.home.server.url, office.home.server.headers)
    run = door.begin("serial")
    door.answer(run, 1, "approve")
    entries = [ResumeEntry(interrupt_id=f"{run}#{number}", status="resolved", payload="approve") for number in (1, 2)]
    assert door.resume(run, entries)["state"] == "complete"
    assert office.paid == ["Ott", "Bob"]


def test_a_resume_entry_that_was_never_told_is_refused_with_the_others(office: Office) -> None:
    door = AgUiDoor(office.home.server.url, office.home.server.headers)
    run = door.begin("serial")
    entries = [ResumeEntry(interrupt_id=f"{run}#{number}", status="resolved", payload="approve") for number in (1, 9)]
    with pytest.raises(DoorRefused, match="#9"):
        door.resume(run, entries)
    assert office.paid == []


def test_an_interrupt_that_is_cancelled_declines_every_call(office: Office) -> None:
    door = AgUiDoor(office.home.server.url, office.home.server.headers)
    run = door.begin("both")
    document = door.resume(run, [ResumeEntry(interrupt_id=f"{run}#1", status="cancelled")])
    assert document["state"] == "partial", "a refused call is a gap"
    assert office.paid == []


# --- effects in doubt


@every_door
@pytest.mark.parametrize(
    ("verdict", "state", "sent"),
    [("done: receipt 7", "complete", 1), ("again", "complete", 2), ("fail", "failed", 1)],
)
def test_an_effect_in_doubt_is_told_with_its_key_and_takes_each_verdict(
    unused_office: Office, name: str, verdict: str, state: str, sent: int
) -> None:
    door = unused_office.door(name)
    run = door.begin("mails")
    question = door.document(run)["question"]
    (call,) = question["calls"]
    assert (question["what"], call["tool"], call["arguments"]) == ("effect", "mail", {"to": "Ute"})
    assert call["key"]
    document = door.answer(run, 1, verdict)
    assert document["state"] == state
    assert len(unused_office.mailed) == sent
    assert len({key for _, key in unused_office.mailed}) == 1, "the same call has the same key"
    assert ("receipt 7" in str(document["answer"])) == (verdict == "done: receipt 7")


@every_door
def test_a_result_in_json_is_data_for_the_worker(unused_office: Office, name: str) -> None:
    door = unused_office.door(name)
    run = door.begin("mails")
    document = door.answer(run, 1, 'done: {"receipt": 7}')
    assert document["state"] == "complete"
    assert '"receipt": 7' in str(document["answer"]).replace('"receipt":7', '"receipt": 7')
