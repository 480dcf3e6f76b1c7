"""What only a person can put right is said once, with what to do: refusals at once, mistakes in code last."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from chargehand import Failure, Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.engine.failure import Refusal
from chargehand.engine.plan import TaskId
from chargehand.models.testing.fault_server import FaultServer
from tests.agents.playhouse import Playhouse
from tests.cli.commands import Done, chargehand
from tests.config.files import write

FINE = ScriptedModel(["fine"], repeat=True)
TOOLS = '''
def price(city: str) -> str:
    """The price of a berth in a city."""
    row = None
    return row.price
'''
TEAM = """
version: 1
name: berths
workers:
  ann:
    description: looks up prices of berths in a city
    tools: [price]
tools:
  price: {python: "tools:price", effect: read}
"""


class Told:
    """What a command printed, and its exit code."""

    def __init__(self, done: Done) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


async def command(folder: Path, *words: str, **more: str) -> Told:
    return Told(await asyncio.to_thread(lambda: chargehand(folder, *words, **more)))


def berths(folder: Path) -> None:
    write(folder, TEAM)
    (folder / "tools.py").write_text(TOOLS)


ASKED = ("run", "What is the price of a berth in Oslo?")
REMOTE = ("--model", "openai:gpt-5-mini")


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("401", "error: openai refused the key (401). Check OPENAI_API_KEY."),
        ("403", "error: openai does not let this key use gpt-5-mini (403)."),
        ("404", "error: openai has no model 'gpt-5-mini' (404). Check the model's name and the base URL."),
        ("429-quota", "error: openai has no credit left for this key (429). Top up the account,"),
        ("422", "error: openai rejects how gpt-5-mini is called (422). Check its settings,"),
    ],
)
@pytest.mark.parametrize("quiet", [False, True], ids=["", "quiet"])
async def test_a_line_says_which_provider_refused_what(tmp_path: Path, mode: str, said: str, quiet: bool) -> None:
    berths(tmp_path)
    async with FaultServer() as server:
        address = {"OPENAI_API_KEY": "sk-not-a-real-key-at-all", "OPENAI_BASE_URL": server.url(mode)}
        told = await command(tmp_path, *ASKED, *REMOTE, *(["--quiet"] if quiet else []), **address)
    assert told.code == 1
    assert any(line.startswith(said) for line in told.lines)
    assert told.err.count("error: openai") == 1
    assert "try again" not in told.err
    assert "sk-not-a-real-key-at-all" not in told.err + told.out
    assert server.requests[mode] <= 2


async def test_a_mistake_in_a_tool_is_printed_once_and_the_last_line_says_what_to_type(tmp_path: Path) -> None:
    berths(tmp_path)
    told = await command(tmp_path, *ASKED, "--no-color")
    assert told.code == 1
    assert told.err.count("Traceback (most recent call last") == 1
    assert 'File "tools.py", line 5, in price\n    return row.price\n' in told.err
    assert "site-packages" not in told.err
    assert told.lines[-1].startswith("  once mended: ")
    assert "--reuse" in told.lines[-1]


async def test_the_journal_shows_where_the_mistake_is(tmp_path: Path) -> None:
    berths(tmp_path)
    entries = await command(tmp_path, *ASKED, "--run", "r1", "--jsonl")
    failed = [json.loads(line)["event"] for line in entries.out.splitlines() if '"attempt.failed"' in line]
    assert failed[0]["failure"]["code_error"]["frames"][-1]["line"] == 5
    shown = await command(tmp_path, "runs", "show", "r1")
    assert "line 5, in price" in shown.out + shown.err


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("ok", "ok  text        it said 'Reply with the word ok"),
        ("401", "NO  text        openai refused the key (401). Check OPENAI_API_KEY."),
        ("500", "NO  text        openai:gpt-4o-mini: "),
    ],
)
async def test_doctor_tries_what_a_model_can_do_and_says_what_it_cost(tmp_path: Path, mode: str, said: str) -> None:
    handle = "openai:gpt-4o-mini"
    async with FaultServer() as server:
        address = {"OPENAI_API_KEY": "sk-not-a-real-key-at-all", "OPENAI_BASE_URL": server.url(mode)}
        told = await command(tmp_path, "doctor", "--ask", handle, **address)
        document = await command(tmp_path, "doctor", "--ask", handle, "--max-usd", "0", "--json", **address)
    assert told.code == 1, told.out  # it echoes what it is told and calls no tool
    assert told.out.startswith(said), told.out
    assert told.out.splitlines()[-1].startswith(f"{handle}: ")
    assert "$" in told.out.splitlines()[-1]
    made = 4 if mode == "ok" else 1
    assert server.requests[mode] == made  # and none where nothing may be spent
    report = json.loads(document.out)
    assert (report["ok"], report["micros"]) == (False, 0)
    assert {trial["state"] for trial in report["trials"]} <= {"skipped", "unsupported"}
    assert "sk-not-a-real-key-at-all" not in told.out + told.err + document.out


# --- for programs


def broken(_request: object) -> str:
    raise TypeError("a mistake in a model")


def test_a_program_that_listens_hears_of_mistakes_refusals_and_retries_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = Failure("resource", "401", permanent=True, refusal=Refusal("acme", "acme:big", "key", 401, "ACME_KEY"))
    dead = Failure("network", "the line is dead")
    workers = [
        Worker("ann", model=ScriptedModel(broken)),
        Worker("bob", model=ScriptedModel([refused], repeat=True)),
        Worker("cyd", model=ScriptedModel([dead, "fine"], repeat=True)),
    ]
    tasks = tuple(Task(TaskId(f"{one.name}{n}"), f"Count {one.name}{n}.", one.name) for one in workers for n in (1, 2))
    with caplog.at_level(logging.INFO, "chargehand.runtime"):
        Playhouse().run(Team(workers, supervisor=Supervisor(model=FINE, plan=Plan(tasks, "none"))))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    errors = [text for level, text in said if level == "ERROR"]
    assert len(errors) == 1
    assert "a mistake in code: TypeError: a mistake in a model" in errors[0]
    assert f"{Path(__file__).name}, line" in errors[0]
    assert str(Path(__file__).parent) not in errors[0]
    warnings = [text for level, text in said if level == "WARNING"]
    assert warnings == ["run run0: acme refused the key (401). Check ACME_KEY."]
    assert any("is tried again in" in text and "the line is dead" in text for _, text in said)


def test_nothing_is_printed_by_a_program_that_does_not_listen(capfd: pytest.CaptureFixture[str]) -> None:
    Playhouse().run(
        Team(
            [Worker("ann", model=ScriptedModel(broken))],
            supervisor=Supervisor(model=FINE, plan=Plan((Task(TaskId("a"), "Go.", "ann"),))),
        )
    )
    assert capfd.readouterr().err == ""
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("chargehand").handlers)
