"""No secret is written: not in the journal, the memory, the logs or what is streamed, and runs go on all the same."""

import base64
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast
from urllib.parse import quote

import httpx
import msgspec
import pytest
from msgspec import Raw

from chargehand.agents.roles import Supervisor, Worker
from chargehand.config.environment import secret_values
from chargehand.engine import events as ev
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.engine.state import TextKind, Work
from chargehand.journal.protocol import Journal
from chargehand.journal.store import open_journal
from chargehand.models.messages import Kept, KeptPart, Reply, Request, ToolCall
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.runtime.executor import Done, Executor, StepContext
from chargehand.server.middleware.redaction import (
    MARK,
    RedactedContext,
    RedactedExecutor,
    RedactedJournal,
    Redactor,
    clean_logs,
    redactor_of,
)
from chargehand.server.settings import ServerSettings
from chargehand.server.tenants import Tenant, Tenants
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.server.running import running, settings_in

CANARIES = tuple(f"canary-{number:02}-{secrets.token_urlsafe(18)}" for number in range(50))
NO_KEYS: dict[str, str] = {}
PLAN = Plan((Task(TaskId("t1"), "Find the keys and send them.", "ann"),), "none")


def forms(secret: str) -> list[bytes]:
    """As a secret may be found in a file."""
    plain = secret.encode()
    padded = [base64.b64encode(b"x" * offset + plain + b"y" * 3)[4:-4] for offset in range(3)]
    return [plain, quote(secret, safe="").encode(), *padded]


def hits(data: bytes) -> list[str]:
    return [one for one in CANARIES if any(form in data for form in forms(one))]


def everything_in(folder: Path) -> bytes:
    return b"\n".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


_THOUGHTS = Kept(
    (
        KeptPart("reasoning_content", Raw(f'"I think of {CANARIES[45]} now. "'.encode())),
        KeptPart("extra_content", Raw(b'{"signature":"unchanged"}'), call="1"),
    )
)


class World:
    """A worker whose tools leak, and what they did. It may act on what it was told, unless a person is `asked`."""

    def __init__(self, *, asked: bool = False) -> None:
        self.sent: list[str] = []

        @tool
        def find(key: str) -> dict[str, object]:
            """Find what there is."""
            coded = base64.b64encode(f"user:{CANARIES[1]}".encode()).decode()
            return {
                "asked": key,
                CANARIES[2]: list(CANARIES[3:30]),
                "url": f"https://u:{quote(CANARIES[30])}@x.test/",
                "basic": coded,
                "inner": msgspec.json.encode({"k": CANARIES[31]}).decode(),
                "plain": "Nothing secret.",
            }

        @tool
        def fail(key: str) -> str:
            """Fail."""
            raise ValueError(f"cannot log in with {key} nor with {CANARIES[32]}")

        @tool(effect="effect")
        def send(to: str) -> str:
            """Send something."""
            self.sent.append(to)
            return f"sent to {to}, signed {CANARIES[33]}"

        def speak(request: Request) -> Reply:
            calls = (
                ToolCall("1", "find", msgspec.json.encode({"key": CANARIES[0]}).decode()),
                ToolCall("2", "fail", msgspec.json.encode({"key": CANARIES[34]}).decode()),
                ToolCall("3", "send", msgspec.json.encode({"to": f"ann {CANARIES[35]}"}).decode()),
            )
            done = sum(one.role == "tool" for one in request.messages)
            if done < len(calls):
                return Reply(f"I know {CANARIES[36]}.", calls=(calls[done],), finish="tools", kept=_THOUGHTS)
            return Reply(f"Found {CANARIES[37]} and sk-{'a1B2' * 8}.")

        self.team = Team(
            [Worker("ann", "finds things", f"You are Ann. Your key is {CANARIES[38]}.", tools=[find, fail, send])],
            supervisor=Supervisor(model=ScriptedModel(speak), plan=PLAN),
            policy=Policy(tainted_effects="ask" if asked else "allow"),
        )


GOAL = f"Find out what {CANARIES[39]} opens."


async def driven(
    tenant: Tenant, world: World, run: str, *, resume: bool = False, answer: ev.InputAnswered | None = None
) -> None:
    async with world.team.executor(tenant.finder) as executor:
        runner = tenant.open_runner(executor, tenant.on_entries, tenant.on_words)
        if resume:
            await runner.resume(run, *(() if answer is None else (tenant.redact(answer),)))
        else:
            await runner.start(run, tenant.redact(world.team.request(GOAL, time.time(), seed=7)))


async def test_fifty_canaries_are_found_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(tmp_path, secrets=CANARIES)
    whispered: list[str] = []
    caplog.set_level(logging.DEBUG)
    with clean_logs(redactor_of(settings, NO_KEYS.get)):
        async with Tenants(settings, NO_KEYS.get) as tenants:
            tenant = await tenants.of("main")

            def hear(_work: Work, words: str, _kind: TextKind) -> None:
                whispered.append(words)

            tenant.word_listeners["leaky"] = [hear]
            reader = tenant.feed.subscribe("leaky", expected=True)
            await driven(tenant, World(), "leaky")
            streamed = [entry async for entry in reader]
            logging.getLogger("some.tool").warning("logged in with %s", CANARIES[40])
            _break_and_log(CANARIES[41])
    shown = msgspec.json.encode(streamed)
    assert hits(everything_in(tmp_path)) == []
    assert hits(shown) == []
    assert hits("".join(whispered).encode()) == []
    assert hits(caplog.text.encode()) == []
    assert b"sk-a1B2" not in everything_in(tmp_path) + shown
    assert shown.count(MARK.encode()) > 35
    assert b"Nothing secret." in shown
    assert MARK in "".join(whispered)
    assert b"I think of" not in shown  # a thought that was changed is worth nothing to its provider
    assert b'{"signature":"unchanged"}' in shown
    assert caplog.text.count(MARK) == 2


def _break_and_log(number: str) -> None:
    try:
        int(number)
    except ValueError:
        logging.getLogger("some.tool").exception("it broke")


async def test_a_run_with_secrets_goes_on_from_every_entry_and_nothing_is_done_twice(tmp_path: Path) -> None:
    settings = ServerSettings(tmp_path, secrets=CANARIES)
    async with Tenants(settings, NO_KEYS.get) as tenants:
        tenant = await tenants.of("main")
        world = World()
        await driven(tenant, world, "whole")
        whole = await tenant.journal.read("whole")
        assert world.sent == [f"ann {MARK}"]
        begun = next(entry.seq for entry in whole if _named(entry) == "send")
        finished = next(entry.seq for entry in whole if _sent(entry))
        for length in range(1, len(whole)):
            again = World()
            await _put(tenant.journal, f"cut{length}", whole[:length])
            await driven(tenant, again, f"cut{length}", resume=True)
            read = await tenant.journal.read(f"cut{length}")
            assert not any(isinstance(one.event, ev.Noted) and "diverged" in one.event.text for one in read), length
            assert len(again.sent) == (length < begun), length
            if not begun <= length < finished:  # between the two nobody knows what was done, and a person is asked
                assert _ending(read) == _ending(whole), length
    assert hits(everything_in(tmp_path)) == []


async def test_a_run_inside_another_is_handed_no_secrets(tmp_path: Path) -> None:
    async with Tenants(ServerSettings(tmp_path, secrets=CANARIES), NO_KEYS.get) as tenants:
        tenant = await tenants.of("main")
        world = World()
        inner = world.team.as_worker("crew", "finds things")
        plan = Plan((Task(TaskId("t1"), "Find the keys and send them.", "crew"),), "none")
        team = Team([inner], supervisor=Supervisor(model=ScriptedModel(lambda _: Reply("Done.")), plan=plan))
        async with team.executor(tenant.finder) as executor:
            runner = tenant.open_runner(executor, tenant.on_entries)
            await runner.start("outer", tenant.redact(team.request(GOAL, time.time(), seed=7)))
        assert world.sent == [f"ann {MARK}"]
    assert hits(everything_in(tmp_path)) == []


@pytest.mark.parametrize(("verdict", "sent"), [("approve", [f"ann {MARK}"]), ("reject", [])])
async def test_a_person_is_asked_about_a_call_without_its_secrets_and_the_answer_holds(
    tmp_path: Path, verdict: Literal["approve", "reject"], sent: list[str]
) -> None:
    settings = ServerSettings(tmp_path, secrets=CANARIES)
    async with Tenants(settings, NO_KEYS.get) as tenants:
        tenant = await tenants.of("main")
        world = World(asked=True)
        await driven(tenant, world, "asked")
        asked = (await tenant.journal.read("asked"))[-1].event
        assert isinstance(asked, ev.InputRequested)
        assert asked.question is not None
        assert (asked.question.because, asked.question.arguments) == ("tainted", {"to": f"ann {MARK}"})
        assert world.sent == []
        feedback = "" if verdict == "approve" else f"Not with {CANARIES[42]}."
        answer = ev.InputAnswered(asked.number, verdict, feedback)
        await driven(tenant, world, "asked", resume=True, answer=answer)
        entries = await tenant.journal.read("asked")
        assert world.sent == sent
        assert isinstance(entries[-1].event, ev.RunEnded)
    assert hits(everything_in(tmp_path)) == []
    assert hits(msgspec.json.encode(entries)) == []


def _sent(entry: ev.Entry) -> bool:
    return isinstance(entry.event, ev.StepFinished) and b"sent to ann" in bytes(entry.event.result)


def _named(entry: ev.Entry) -> str:
    return entry.event.name if isinstance(entry.event, ev.StepStarted) else ""


def _ending(entries: Sequence[ev.Entry]) -> list[bytes]:
    return [bytes(one.event.result) for one in entries if isinstance(one.event, ev.AttemptSucceeded)]


async def _put(journal: Journal, run: str, entries: Sequence[ev.Entry]) -> None:
    lease = await journal.claim(run, new=True)
    await journal.append(lease, entries)
    await journal.release(lease)


async def test_a_secret_that_passes_the_executor_is_caught_by_the_journal(tmp_path: Path) -> None:
    journal = RedactedJournal(await open_journal(tmp_path / "runs.db"), Redactor(CANARIES))
    try:
        await _put(journal, "noted", [ev.Entry(1, 1.0, ev.Noted(f"{CANARIES[0]} and text"))])
        (entry,) = await journal.read("noted")
    finally:
        await journal.close()
    assert entry.event == ev.Noted(f"{MARK} and text")


def test_what_is_sent_to_an_agent_is_kept_without_secrets(tmp_path: Path) -> None:
    key = "sk-proj-0123456789abcdefghijklmnop"
    settings = settings_in(tmp_path, secrets=CANARIES)
    with running(settings, {"OPENAI_API_KEY": "odd-shaped-key-of-a-provider-77"}) as one:
        client = httpx.Client(base_url=one.url, headers=one.headers, timeout=30)
        agent = client.post("/v1/agents", json={"name": "ann", "model": "demo", "memory_blocks": []}).json()["id"]
        for text in (
            f"My key is {key}.",
            f"Use {CANARIES[5]} for it.",
            f"And {one.token} or odd-shaped-key-of-a-provider-77",
        ):
            said = client.post(f"/v1/agents/{agent}/messages", json={"messages": [{"role": "user", "content": text}]})
            assert said.status_code == 200, said.text
        listed = client.get(f"/v1/agents/{agent}/messages").text
        client.close()
    found = everything_in(tmp_path) + listed.encode()
    assert [each for each in (key, CANARIES[5], one.token, "odd-shaped-key") if each.encode() in found] == []


def test_secrets_are_told_from_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-of-some-key-1")
    monkeypatch.setenv("DEPLOY_TOKEN", "value-of-a-token-2")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:pass-word-3@db.test/x")
    monkeypatch.setenv("SSH_KEY_PATH", "~/.ssh/id")
    monkeypatch.setenv("EDITOR", "vi")
    (tmp_path / ".env").write_text("INNER_SECRET=value-of-a-file-4\n", encoding="utf-8")
    found = secret_values(tmp_path)
    assert {"value-of-some-key-1", "value-of-a-token-2", "pass-word-3", "value-of-a-file-4"} <= set(found)
    assert not {"~/.ssh/id", "vi"} & set(found)
    redactor = Redactor(["main", "short", "development", *found])
    for text in ("the main task-management-of-development work", "a risk-free-and-very-long-hyphenated-name", "ch_x"):
        assert redactor.text(text) is text


def test_what_is_clean_is_handed_back_as_it_is_and_costs_little() -> None:
    redactor = Redactor(CANARIES[:6])
    body = msgspec.json.encode({"type": "step.finished", "result": "Some words of no interest at all. " * 10})
    assert redactor.clean(body) is body
    shortest = min(_seconds(lambda: redactor.clean(body)) for _ in range(200))
    assert shortest < 100e-6  # some 10 us when nobody else is at work


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


_LINES = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" * 3
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{_LINES}\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_private_keys_are_taken_out_of_text_and_of_json_in_json(layers: int) -> None:
    said = f'Here it is: {PEM}. He said: "keep it".'
    for _ in range(layers):
        said = msgspec.json.encode({"said": said}).decode()
    cleaned = Redactor(()).text(said)
    assert "MIIEvQ" not in cleaned
    for _ in range(layers):
        cleaned = msgspec.json.decode(cleaned)["said"]
    assert cleaned == f'Here it is: {MARK}. He said: "keep it".'


def test_of_a_private_key_that_is_cut_off_its_lines_are_taken_out() -> None:
    body = msgspec.json.encode({"said": f"-----BEGIN PRIVATE KEY-----\n{_LINES}"})
    assert msgspec.json.decode(Redactor(()).clean(body)) == {"said": MARK}
    words = "A file that begins with -----BEGIN CERTIFICATE----- is public."
    assert Redactor(()).text(words) == words


class _Answering:
    """An executor that has a secret in every field of an answer."""

    async def answer(self, _brief: Brief, _context: StepContext) -> Done:
        return Done({"text": CANARIES[0]}, cut=f"at {CANARIES[1]}", sections=(ev.AnswerSection("gaps", CANARIES[2]),))


async def test_no_field_of_an_answer_keeps_a_secret() -> None:
    executor = RedactedExecutor(cast("Executor", _Answering()), Redactor(CANARIES))
    listener = cast("StepContext", _Listener())
    done = await executor.answer(Brief(Work("answer", NO_TASK, 1), GOAL, 9.0), listener)
    assert done.value == {"text": MARK}
    assert done.cut == f"at {MARK}"
    assert hits(msgspec.json.encode(done)) == []


class _Listener:
    """A hand that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, _kind: TextKind = "answer", /) -> None:
        self.said.append(text)


def _streamed(text: str, size: int) -> str:
    """What comes of a text that is said in pieces of a size."""
    listener = _Listener()
    context = RedactedContext(cast("StepContext", listener), Redactor(()), lambda executor: executor)
    for start in range(0, len(text), size):
        context.say(text[start : start + size])
    context.flush()
    return "".join(listener.said)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_private_key_is_taken_out_of_a_stream_however_it_is_split(ends: str) -> None:
    block = "\n".join([_LINES] * 5).join(("-----BEGIN PRIVATE KEY-----\n", "\n-----END PRIVATE KEY-----"))
    text = f"First {PEM} and then {block}, that is all.".replace("\n", ends)
    for size in (1, 2, 3, 5, 8, 13, 34, 64, 997, len(text)):
        assert _streamed(text, size) == f"First {MARK} and then {MARK}, that is all.", size


def test_of_a_private_key_whose_stream_ends_nothing_is_said() -> None:
    cut = f"The key: {PEM[:150]}"
    for size in (1, 7, 64, len(cut)):
        assert "MIIEvQ" not in _streamed(cut, size)


def test_what_clients_write_into_memory_is_kept_without_keys(tmp_path: Path) -> None:
    key = "sk-proj-0123456789abcdefghijklmnop"
    said = f"The key is {key} and the other one is {PEM} as you know."
    with (
        running(settings_in(tmp_path)) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=20) as client,
    ):
        agent = client.post("/v1/agents/", json={"name": "ada", "model": "demo", "system": said}).json()["id"]
        block = client.post("/v1/blocks/", json={"label": "notes", "value": said}).json()
        assert block["value"] == f"The key is {MARK} and the other one is {MARK} as you know."
        client.patch(f"/v1/blocks/{block['id']}", json={"value": f"again: {said}"})
        client.post(f"/v1/agents/{agent}/archival-memory", json={"text": said})
        archive = client.post("/v1/archives/", json={"name": "finds"}).json()["id"]
        assert client.post(f"/v1/archives/{archive}/passages", json={"text": said}).status_code == 200
    kept = everything_in(tmp_path)
    assert key.encode() not in kept
    assert b"MIIEvQ" not in kept
