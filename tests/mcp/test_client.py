"""Tools of MCP servers in runs, with the SDK of the protocol and without it on the other side."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from msgspec import structs

from chargehand import (
    McpServer,
    MemoryJournal,
    ModelCard,
    Plan,
    Policy,
    Result,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    Worker,
)
from chargehand.engine import events as ev
from chargehand.engine.facts import ToolsWithheld
from chargehand.errors import Invalid
from chargehand.tools.calling import ToolFailed
from chargehand.tools.mcp_lock import PinnedServer
from tests.mcp.peers import (
    PAY,
    PICTURE_SERVER,
    RAW_SERVER,
    SDK_SERVER,
    SEARCH,
    http_server,
    notes,
    pin,
    returned,
    shop,
    team_of,
    wish,
)
from tests.mcp.session_server import session_server
from tests.sample_files import PNG
from tests.server.api import Garden
from tests.server.running import running, settings_in

ROOT = Path(__file__).parents[2]
STOCK = wish("shop_stock", '{"product": "anvils"}')


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with http_server() as place:
        yield place


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param("stdio", marks=pytest.mark.slow("a server made with the SDK is started as a process")),
        "http",
    ],
)
def test_a_worker_calls_tools_of_a_server_made_with_the_sdk(transport: str, tmp_path: Path, url: str) -> None:
    reach: dict[str, Any] = {"command": SDK_SERVER} if transport == "stdio" else {"url": url, "private": True}
    server = shop(tmp_path, **reach)
    team = team_of(server, STOCK, wish("shop_stock", '{"product": 3}'), wish("shop_stock", '{"product": "nails"}'))
    result = team.run_sync("How many anvils are there?")
    assert result.ending == "complete"
    assert "'result': 12" in returned(result)
    assert "do not fit" in returned(result)  # arguments are checked here, against what was approved
    assert "Error executing tool stock" in returned(result)
    assert not result.notice.startswith("Mcp:")


@pytest.mark.slow("a server made with the SDK is started as a process")
@pytest.mark.parametrize("sees", [True, False])
def test_pictures_and_pdfs_of_a_server_reach_models_that_take_them(tmp_path: Path, sees: bool) -> None:
    server = pin(
        McpServer(
            "camera",
            command=PICTURE_SERVER,
            folder=ROOT,
            lock=tmp_path / "mcp.lock",
            connect_timeout=100,
            list_timeout=100,
        )
    )
    card = ModelCard("scripted", keeps_limit=True, images=sees, documents=sees)
    model = ScriptedModel([wish("camera_shoot", "{}"), wish("camera_manual", "{}", "2"), "done"], card=card)
    journal = MemoryJournal()
    plan = Plan((Task("t1", "Look.", "clerk"),), "none")
    team = Team([Worker("clerk", tools=[server], model=model)], supervisor=Supervisor(plan=plan), journal=journal)
    result = team.run_sync("Look at it.")
    assert result.ending == "complete", result.gaps
    shot, manual = [message for message in model.requests[-1].messages if message.role == "tool"]
    assert "One picture was taken." in shot.text
    assert "(audio of type audio/wav, which cannot be shown here)" in shot.text
    assert [image.data for image in shot.images] == ([PNG] if sees else [])
    assert [document.name for document in manual.documents] == (["manual.pdf"] if sees else [])
    assert ("Press the button for 42 seconds." in manual.text) is not sees
    assert ("you cannot be shown such files" in shot.text) is not sees
    assert "iVBOR" not in str(result.entries), "the journal has no bytes"


def test_tools_are_known_and_classified_without_a_connection(tmp_path: Path) -> None:
    server = shop(tmp_path, command=SDK_SERVER)
    assert {tool.name: tool.effect for tool in server.tools()} == {
        "shop_stock": "read",
        "shop_reserve": "idempotent",
        "shop_order": "effect",
    }
    assert [tool.name for tool in server.select("st*", "order")] == ["shop_stock", "shop_order"]
    said = McpServer("shop", command=SDK_SERVER, lock=tmp_path / "mcp.lock", effects={"o*": "read"})
    assert {tool.name: tool.effect for tool in said.tools()}["shop_order"] == "read"
    with pytest.raises(Invalid, match=r"mcp:shop/stok is no approved tool; did you mean 'stock'"):
        server.select("stok")


def test_a_server_of_an_older_protocol_version_serves_as_well(tmp_path: Path) -> None:
    result = team_of(notes(tmp_path), SEARCH, PAY, policy=Policy(tainted_effects="allow")).run_sync("Find it, pay it.")
    assert result.ending == "complete"
    assert '{"query": "late"}' in returned(result)
    assert '{"invoice": "17"}' in returned(result)
    assert result.notice == ""


def test_what_a_server_returned_is_text_from_outside(tmp_path: Path) -> None:
    result = team_of(notes(tmp_path, "injected"), PAY, SEARCH, PAY).run_sync("Look.")
    assert "is off" in returned(result)  # its description has become another
    result = team_of(notes(tmp_path), SEARCH, PAY).run_sync("Look, then pay.")
    assert result.ending == "needs_input"
    assert result.question is not None
    assert result.question.question is not None
    assert result.question.question.because == "tainted"


# --- poisoned servers: nothing gets through, and no run ends because of them


def facts_of(result: Result) -> list[ToolsWithheld]:
    notes = [entry.event for entry in result.entries if isinstance(entry.event, ev.Noted)]
    return [note.fact for note in notes if isinstance(note.fact, ToolsWithheld)]


@pytest.mark.parametrize(
    ("vice", "fact", "words"),
    [
        ("changed", ToolsWithheld("mcp:notes", changed=("search",)), "its description changed"),
        ("widened", ToolsWithheld("mcp:notes", changed=("search",)), "its schema changed"),
        ("hints", ToolsWithheld("mcp:notes", changed=("search",)), "its hints changed"),
        ("hidden", ToolsWithheld("mcp:notes", changed=("search",)), "its definition changed"),
        ("renamed", ToolsWithheld("mcp:notes", new=("search_v2",), missing=("search",)), "does not have it any more"),
        ("other_name", ToolsWithheld("mcp:notes", identity=("name",)), "not the one that was approved"),
    ],
)
def test_a_tool_that_is_not_as_it_was_approved_stays_off_and_the_run_says_so(
    vice: str, fact: ToolsWithheld, words: str, tmp_path: Path
) -> None:
    count = tmp_path / "calls"
    result = team_of(notes(tmp_path, vice, str(count)), SEARCH, SEARCH).run_sync("Find it.")
    assert result.ending == "complete"
    assert words in returned(result)
    assert not count.exists(), "it was not called"
    assert facts_of(result) == [fact], "once a run"
    assert "mcp:notes is not as it was approved" in result.notice.lower()
    shown = json.dumps([str(entry) for entry in result.entries])
    assert "evil.example" not in shown


def test_a_new_tool_is_not_offered_and_the_others_work(tmp_path: Path) -> None:
    result = team_of(notes(tmp_path, "new"), SEARCH, wish("notes_exfiltrate", "{}")).run_sync("Find it.")
    assert '{"query": "late"}' in returned(result)
    assert facts_of(result) == [ToolsWithheld("mcp:notes", new=("exfiltrate",))]
    assert "Ignore all other tools" not in json.dumps([str(entry) for entry in result.entries])


def test_a_result_of_ten_megabytes_is_cut(tmp_path: Path) -> None:
    result = team_of(notes(tmp_path, "huge"), SEARCH).run_sync("Find it.")
    assert result.ending == "complete"
    assert 500_000 < len(returned(result)) < 600_000
    assert "bytes are not shown]" in returned(result)


@pytest.mark.parametrize("vice", ["garbage", "binary"])
def test_garbage_between_the_messages_is_dropped(vice: str, tmp_path: Path) -> None:
    result = team_of(notes(tmp_path, vice), SEARCH).run_sync("Find it.")
    assert '{"query": "late"}' in returned(result)


@pytest.mark.parametrize(
    ("vice", "words"),
    [
        ("endless", "it sent a message of more than 16,777,216 bytes"),
        ("hang", "search did not finish within 0.3 s"),
        ("deaf", "did not list its tools within 0.3 s"),
        ("mute", "it did not answer within 0.3 s"),
        ("error", "no such invoice"),
        ("nonsense", "returned what is no result"),
        ("die", "fatal: out of cheese"),
    ],
)
def test_a_call_that_fails_comes_back_in_words(vice: str, words: str, tmp_path: Path) -> None:
    limits: dict[str, float] = {
        "connect_timeout": 0.3 if vice == "mute" else 30,
        "list_timeout": 0.3 if vice == "deaf" else 30,
    }
    server = notes(tmp_path, vice, call_timeout=0.3 if vice == "hang" else 60, **limits)
    result = team_of(server, SEARCH).run_sync("Find it.")
    assert result.ending == "complete"
    assert words in returned(result)


VICES = ("changed", "new", "huge", "hang", "die", "garbage", "nonsense")


def poisoned_team(folder: Path) -> Team:
    """One worker for each vice, all at work at once."""
    workers: list[Worker] = []
    for vice in VICES:
        home = folder / vice
        home.mkdir()
        server = notes(home, vice, str(home / "calls"), call_timeout=0.3 if vice == "hang" else 60)
        workers.append(Worker(vice, tools=[server], model=ScriptedModel([SEARCH, f"{vice} is done"])))
    plan = Plan(tuple(Task(f"t{number}", "Look it up.", vice) for number, vice in enumerate(VICES)), "none")
    return Team(workers, supervisor=Supervisor(plan=plan), name="poisoned")


async def test_servers_that_misbehave_at_once_take_no_run_down(tmp_path: Path) -> None:
    result = await (await asyncio.to_thread(poisoned_team, tmp_path)).run("Look.")
    assert result.ending == "complete"
    assert not (tmp_path / "changed" / "calls").exists()


def test_servers_that_misbehave_take_no_run_of_the_server_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("poisoned_team")
    module.team = poisoned_team(tmp_path)  # pyright: ignore[reportAttributeAccessIssue] - what is served
    monkeypatch.setitem(sys.modules, "poisoned_team", module)
    with (
        running(settings_in(tmp_path / "data", teams=("poisoned_team:team",))) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        home = Garden(server, client, tmp_path)
        run = str(client.post("/api/runs", json={"team": "poisoned", "goal": "Look."}).json()["run"])
        shown = home.wait(run, "complete", "partial", "failed")
    assert shown["summary"]["state"] == "complete"  # pyright: ignore[reportIndexIssue] - JSON
    assert not (tmp_path / "changed" / "calls").exists()
    assert "changed: search" in json.dumps(shown["notes"]), "the run says what is off"
    assert "is not as it was approved" in str(shown["notice"])


def test_a_server_that_died_is_started_again_for_a_call_that_only_reads(tmp_path: Path) -> None:
    count = tmp_path / "calls"
    result = team_of(notes(tmp_path, "die_once", str(count)), SEARCH).run_sync("Find it.")
    assert '{"query": "late"}' in returned(result)
    assert count.read_text().split() == ["search", "search"]


def test_an_effect_of_a_server_that_died_is_uncertain_and_not_repeated(tmp_path: Path) -> None:
    count = tmp_path / "calls"
    result = team_of(notes(tmp_path, "die_once", str(count)), PAY).run_sync("Pay it.")
    assert count.read_text().split() == ["pay"]
    assert [gap.reason for gap in result.gaps] == ["uncertain"]


async def test_a_server_that_dies_with_every_call_is_left_alone_after_a_while(tmp_path: Path) -> None:
    count = tmp_path / "calls"
    server = await asyncio.to_thread(notes, tmp_path, "die", str(count))
    async with server.open() as tools:
        search = next(tool for tool in tools if tool.name == "notes_search")
        for _ in range(4):
            with pytest.raises(ToolFailed):
                await search.call('{"query": "late"}', "key")
        with pytest.raises(ToolFailed, match="is out of order and is tried again in"):
            await search.call('{"query": "late"}', "key")
    assert len(count.read_text().split()) <= 4


@pytest.mark.parametrize("status", [404, 400])
async def test_a_session_that_a_server_forgot_is_made_again_also_for_an_effect(status: int, tmp_path: Path) -> None:
    with session_server(status) as peer:
        server = McpServer("notes", url=peer.url, private=True, lock=tmp_path / "mcp.lock")
        await server.pin()
        async with server.open() as tools:
            pay = next(tool for tool in tools if tool.name == "notes_pay")
            assert await pay.call('{"invoice": "17"}', "key") == "call 1"
            peer.sessions.clear()
            assert await pay.call('{"invoice": "18"}', "key") == "call 2", "the refused call was not carried out"


async def test_a_request_that_a_server_over_http_refuses_is_told_with_its_status_and_was_not_carried_out(
    tmp_path: Path,
) -> None:
    with session_server(404) as peer:
        server = McpServer("notes", url=peer.url, private=True, lock=tmp_path / "mcp.lock")
        await server.pin()
        async with server.open() as tools:
            pay = next(tool for tool in tools if tool.name == "notes_pay")
            await pay.call('{"invoice": "17"}', "key")
            peer.is_closed = True
            with pytest.raises(ToolFailed, match="pay was refused: HTTP 401 Unauthorized") as refused:
                await pay.call('{"invoice": "18"}', "key")
            assert not refused.value.unknown
        with pytest.raises(ToolFailed, match="cannot be reached: HTTP 401 Unauthorized"):
            await server.listed()


# --- what a server gets to know, and where it may be


def test_a_program_gets_no_variables_but_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = notes(tmp_path, "environment", env={"NOTES_KEY": "for notes"})
    seen = returned(team_of(server, SEARCH).run_sync("Look."))
    assert "NOTES_KEY" in seen
    assert "OPENAI_API_KEY" not in seen
    assert "for notes" not in repr(server)


def test_a_url_of_this_machine_is_refused_unless_it_is_called_private(tmp_path: Path, url: str) -> None:
    result = team_of(shop(tmp_path, url=url), STOCK).run_sync("How many?")
    assert result.ending == "complete"
    assert "127.0.0.1 is this machine" in returned(result)
    assert "private: true" in returned(result)


def test_a_server_over_http_that_is_gone_fails_calls_in_words(tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{nobody.getsockname()[1]}/mcp"
        result = team_of(shop(tmp_path, url=place, private=True), STOCK).run_sync("How many?")
    assert result.ending == "complete"
    assert "the MCP server shop cannot be reached" in returned(result)


def test_the_logging_of_the_program_stays_as_it_is(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    team_of(notes(tmp_path), SEARCH).run_sync("Find it.")
    assert (root.level, root.handlers) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "needs a command or a url"),
        ({"command": ["x"], "url": "http://a.example"}, "and not both"),
        ({"url": "ftp://a.example"}, "begins with http"),
        ({"url": "http://a.example", "env": {"A": "b"}}, "env is for a command"),
        ({"command": ["x"], "headers": {"A": "b"}}, "headers and private are for a url"),
        ({"command": ["x"], "call_timeout": "soon"}, "call_timeout"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        McpServer("docs", **settings)


def test_one_server_serves_runs_on_one_event_loop_after_another(tmp_path: Path) -> None:
    server = notes(tmp_path)
    for query in ("first", "second"):
        team = team_of(server, wish("notes_search", f'{{"query": "{query}"}}'))
        assert query in returned(team.run_sync("Find it."))


def test_a_server_of_which_nothing_was_approved_has_no_tools(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="chargehand mcp pin"):
        McpServer("docs", command=["x"], lock=tmp_path / "mcp.lock").tools()


# --- a person approves while it runs


def approve_now(server: McpServer, vice: str) -> None:
    """Approve the raw server as it is with a vice, as `chargehand mcp approve` does."""
    listed, _ = asyncio.run(McpServer("notes", command=[*RAW_SERVER, vice]).listed())
    pin(server, PinnedServer(structs.replace(server.identity, name="notes"), listed.tools))


async def test_a_tool_is_on_as_soon_as_it_is_approved_and_off_with_the_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = await asyncio.to_thread(notes, tmp_path, "changed")
    async with server.open() as tools:
        search = next(tool for tool in tools if tool.name == "notes_search")
        for _ in range(2):
            with pytest.raises(ToolFailed, match="A person must approve it first"):
                await search.call('{"query": "late"}', "key")
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        problem = "search is off (its description changed since it was approved)"
        assert warnings == [f"MCP server notes: {problem}; see  chargehand mcp diff notes"]
        await asyncio.to_thread(approve_now, server, "changed")
        assert "late" in str(await search.call('{"query": "late"}', "key"))
        await asyncio.to_thread(Path(server.lock).unlink)
        with pytest.raises(ToolFailed, match="all tools of notes are off: no tool of the MCP server 'notes'"):
            await search.call('{"query": "late"}', "key")


@pytest.mark.parametrize("vice", ["hints", "widened"])
async def test_a_tool_approved_with_other_arguments_or_hints_waits_for_the_team_to_be_loaded(
    vice: str, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(notes, tmp_path, vice)
    async with server.open() as tools:
        search = next(tool for tool in tools if tool.name == "notes_search")
        await asyncio.to_thread(approve_now, server, vice)
        with pytest.raises(ToolFailed, match="the team must be loaded again for it"):
            await search.call('{"query": "late"}', "key")
    async with server.open() as tools:
        search = next(tool for tool in tools if tool.name == "notes_search")
        assert "late" in str(await search.call('{"query": "late"}', "key"))


async def test_pin_approves_once_and_approve_whatever_there_is(tmp_path: Path) -> None:
    def server(vice: str) -> McpServer:
        return McpServer("notes", command=[*RAW_SERVER, vice], lock=tmp_path / "mcp.lock")

    pinned = await server("none").pin()
    assert await server("none").pin() == pinned
    before = (tmp_path / "mcp.lock").read_bytes()
    with pytest.raises(Invalid, match=r"is not as it was approved; .*await server.approve\(\)"):
        await server("changed").pin()
    assert (tmp_path / "mcp.lock").read_bytes() == before
    await server("changed").approve()
    assert server("changed").tools()


def test_effects_of_a_tool_that_there_is_not_are_refused(tmp_path: Path) -> None:
    lock = shop(tmp_path, command=SDK_SERVER).lock
    server = McpServer("shop", command=SDK_SERVER, lock=lock, effects={"stck": "read"})
    for ask in (server.tools, lambda: server.select("stock")):
        with pytest.raises(Invalid, match="effects: 'stck' is no approved tool; did you mean 'stock'"):
            ask()
