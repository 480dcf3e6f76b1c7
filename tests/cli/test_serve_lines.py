"""What `chargehand serve` prints when it is ready."""

from pathlib import Path

import httpx

from chargehand.cli.serve import startup_lines
from chargehand.integrations.a2a_server import a2a_api
from chargehand.server.settings import ServerSettings
from tests.cli.commands import chargehand, script, task
from tests.server.running import running, settings_in


def test_what_a_caller_needs_stands_in_one_column(tmp_path: Path) -> None:
    lines = startup_lines(ServerSettings(data=tmp_path), 8283, "ch_1", ["shop"])[1:]
    assert lines[0].startswith("token ")
    assert {len(line) - len(line.partition("  ")[2].lstrip()) for line in lines} == {18}


def test_it_says_where_plugins_listen(tmp_path: Path) -> None:
    lines = startup_lines(ServerSettings(data=tmp_path), 8283, "ch_1", ["shop"], [a2a_api()])
    assert lines[-1] == "a2a               http://127.0.0.1:8283/a2a"


def test_a_run_of_the_command_line_is_listed_where_it_is_written_into_the_journal_of_the_server(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "data")
    hint = next(line for line in startup_lines(settings, 8283, None) if line.startswith("command line"))
    journal = settings.data / "main" / "runs.db"
    assert hint.endswith(f"chargehand run --journal {journal} ...")
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        file = script(tmp_path, task("a"))
        for name, words in (("kept-apart", ()), ("shown", ("--journal", journal))):
            assert chargehand(tmp_path, "play", file, "--run", name, *words).returncode == 0
        assert [(run["run"], run["state"]) for run in client.get("/api/runs").json()["runs"]] == [("shown", "complete")]
