"""A set-up that was broken on purpose: the doctor says what, where and what to type, soon, and shows no secret."""

import importlib.util
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from chargehand import Supervisor, Team, Worker
from chargehand.config import doctor
from chargehand.config.doctor import CheckResult, Surroundings, check_store, writable
from chargehand.config.environment import home
from chargehand.extras import install_command
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import examine_journal
from tests.config.files import write

SECRET = "sk-hush-hush-0123456789"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().endswith(("_KEY", "_TOKEN", "_PROXY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CHARGEHAND_HOME", str(tmp_path / "home"))
    for name in ("CHARGEHAND_TEAM", "CHARGEHAND_MODELS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    return tmp_path


def looked(journal: Path | str = "runs.db", team: str | None = None) -> list[CheckResult]:
    """All lines. No fault may keep anybody waiting, and none may show a key."""
    began = time.monotonic()
    lines = doctor.check_surroundings(Path(journal), team)
    assert time.monotonic() - began < 12
    assert SECRET not in repr(lines)
    return lines


def told(what: str, journal: Path | str = "runs.db", team: str | None = None) -> CheckResult:
    (line,) = [one for one in looked(journal, team) if one.what == what]
    return line


def team_with(folder: Path, model: str) -> None:
    write(folder, f"version: 1\nname: crew\ndefaults: {{model: '{model}'}}\nworkers: {{ann: Reads.}}\n")


# --- keys


def test_a_key_that_the_team_needs_and_nobody_set_is_named_with_the_places_looked_at(here: Path) -> None:
    team_with(here, "openai:gpt-5-mini")
    line = told("key OPENAI_API_KEY")
    assert line.state == "bad"
    assert str(here / ".env") in line.message
    assert line.todo.startswith("export OPENAI_API_KEY=")
    assert [one for one in looked() if one.what == "model openai:gpt-5-mini"] == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (f'"{SECRET}"', "quotes"),
        (f"'{SECRET}", "quotes"),
        (f"Bearer {SECRET}", "spaces"),
        (f"{SECRET}\nmore", "line ends"),
        (f"{SECRET}…", "other characters"),
        (f"OPENAI_API_KEY={SECRET}", "its own name"),
    ],
)
def test_what_cannot_be_a_key_is_said(here: Path, monkeypatch: pytest.MonkeyPatch, value: str, words: str) -> None:
    team_with(here, "openai:gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", value)
    line = told("key OPENAI_API_KEY")
    assert (line.state, "the environment" in line.message) == ("bad", True)
    assert words in line.message


def test_a_line_end_behind_a_key_does_no_harm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team_with(here, "openai:gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\n")
    assert [line.what for line in looked() if line.state == "bad"] == []


def test_a_dotenv_that_is_not_read_is_pointed_out(here: Path) -> None:
    (here / ".env").write_text(f"OPENAI_API_KEY={SECRET}\n")
    assert "only one beside the team file is" in told(".env").message
    team_with(here / "crew", "openai:gpt-5-mini")
    line = told(".env", team="crew")
    assert str(here / "crew") in line.message
    assert line.todo.endswith("set -a; . ./.env; set +a")


def test_a_dotenv_in_order_is_no_news(here: Path) -> None:
    team_with(here, "openai:gpt-5-mini")
    (here / ".env").write_text(f'# ours\n\nexport OPENAI_API_KEY="{SECRET}"  # the key\n')
    assert [line.what for line in looked() if line.what == ".env" or line.state == "bad"] == []


# --- the team


def test_a_tool_whose_module_cannot_be_imported_is_named_with_its_line(here: Path) -> None:
    text = (
        "version: 1\nname: crew\ntools:\n  x: {python: 'things:x'}\nworkers: {ann: {description: Reads., tools: [x]}}\n"
    )
    write(here, text)
    assert "team.yaml:4: tools.x: there is no module 'things'" in told("team").message
    (here / "things.py").write_text("import not_installed_anywhere\n")
    assert "imports 'not_installed_anywhere', which is not installed" in told("team").message


def test_a_local_model_that_was_not_fetched_is_said_with_the_command(here: Path) -> None:
    team_with(here, "local:smollm2-135m")
    assert "chargehand models pull smollm2-135m" in told("team").message


def test_an_extra_of_which_a_part_is_missing_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_one(name: str) -> object:
        return None if name == "uvicorn" else importlib.util.find_spec(name)

    monkeypatch.setattr(doctor, "find_spec", all_but_one)
    line = told("extra server")
    assert line.state == "missing"
    assert line.todo == f"pip install -e '{Path(__file__).parents[2]}[server]'", "the tests run from a checkout"
    assert install_command("server", here) == "pip install 'chargehand[server]'"
    assert line.message.startswith("lacks uvicorn")


def test_the_extra_cluster_has_a_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_name: str) -> None:
        return None

    assert told("extra cluster").state == "good"
    monkeypatch.setattr(doctor, "find_spec", none)
    line = told("extra cluster")
    assert (line.state, line.message) == ("missing", "not installed (stores in PostgreSQL, runs on Temporal)")
    assert line.todo.endswith("[cluster]'")


# --- servers on this machine


def test_a_server_on_this_machine_that_does_not_run_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.getsockname()[1]
        monkeypatch.setenv("OLLAMA_BASE_URL", f"http://127.0.0.1:{number}/v1")
        team_with(here, "ollama:qwen3")
        assert told("model ollama:qwen3").state == "good"
    line = told("model ollama:qwen3")
    assert (line.state, f"127.0.0.1 port {number}" in line.message) == ("bad", True)
    assert "ollama serve" in line.todo
    assert "export OLLAMA_BASE_URL=" in line.todo
    team_with(here, f"openai+http://localhost:{number}/v1#any")
    assert told(f"model openai+http://localhost:{number}/v1#any").state == "bad"


def test_a_server_that_takes_no_more_calls_is_waited_for_only_shortly(here: Path) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        number = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", number))
        team_with(here, f"openai+http://127.0.0.1:{number}/v1#any")
        began = time.monotonic()
        line = told(f"model openai+http://127.0.0.1:{number}/v1#any")
        for one in waiting:
            one.close()
    assert line.state == "bad"
    assert time.monotonic() - began < 5


def test_nobody_outside_this_machine_is_called(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []

    def connect(*details: object, **_more: object) -> None:
        called.append(details)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    team_with(here, "openai:gpt-5-mini")
    line = told("model openai:gpt-5-mini")
    assert (line.state, called) == ("good", [])
    assert line.todo.endswith("chargehand doctor --ask openai:gpt-5-mini")
    (here / ".env").write_text("OPENAI_BASE_URL=https://models.example/v1\n")
    assert "called at models.example, as .env says (OPENAI_BASE_URL)" in told("model openai:gpt-5-mini").message


# --- journal and memory


def some_journal(folder: Path) -> Path:
    worker = Worker("ann", description="Reads.")
    Team([worker], supervisor=Supervisor(model="demo"), journal=folder / "runs.db").run_sync("Say hello.")
    return folder / "runs.db"


def changed(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for one in statements:
            connection.execute(one)


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 : 4096 * 6] = b"\x07" * (4096 * 5)
    file.write_bytes(content)


def remove_journal(file: Path) -> None:
    """The file and whatever lies beside it that says it was a journal."""
    for path in file.parent.glob(f"{file.name}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def put_foreign_database(file: Path) -> None:
    remove_journal(file)
    changed(file, "PRAGMA application_id = 7", "CREATE TABLE songs (title TEXT)")


def put_text(file: Path) -> None:
    remove_journal(file)
    file.write_text("not a database at all, " * 50)


BREAK: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "damaged": (spoil, "is damaged", "restore it from a backup"),
    "newer": (
        lambda file: changed(file, "PRAGMA user_version = 99"),
        "a newer version wrote it",
        "pip install --upgrade",
    ),
    "foreign": (put_foreign_database, "of another program", "--journal FILE"),
    "no database": (put_text, "nor any SQLite", "--journal FILE"),
    "header changed": (
        lambda file: changed(file, "PRAGMA application_id = 7"),
        "is damaged: its header does not say that it is a journal",
        "restore it from a backup",
    ),
    "header overwritten": (
        lambda file: file.write_text("not a database at all, " * 50),
        "is damaged: its header cannot be read",
        "restore it from a backup",
    ),
    "cut": (lambda file: os.truncate(file, 5000), "is damaged", "aside"),
}


@pytest.mark.parametrize("how", BREAK)
def test_a_journal_that_cannot_be_used_is_said_and_left_as_it_is(here: Path, how: str) -> None:
    file = some_journal(here)
    assert told("journal", file).state == "good"
    breaking, words, todo = BREAK[how]
    breaking(file)
    before = file.read_bytes()
    line = told("journal", file)
    assert line.state == "bad"
    assert words in line.message
    assert todo in line.todo
    assert file.read_bytes() == before


def test_a_memory_that_is_damaged_or_is_a_journal_is_said(here: Path) -> None:
    some_journal(here).rename(here / "memory.db")
    assert "is a journal of chargehand" in told("memory").message
    (here / "memory.db").write_bytes(b"SQLite format 3\0" + b"\x07" * 9000)
    assert told("memory").state == "bad"


async def test_a_journal_that_a_living_process_has_is_no_fault(here: Path) -> None:
    journal = await SqliteJournal.open(here / "runs.db")
    try:
        assert told("journal").state == "good"
    finally:
        await journal.close()


def test_a_journal_that_another_program_locks_is_said_soon(here: Path) -> None:
    file = some_journal(here)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        line = told("journal", file)
    assert line.message.endswith("is locked by another program")
    assert f"fuser {file}" in line.todo


@contextmanager
def without_rights() -> Generator[None]:
    """As an account that may do nothing: root is refused no file."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(54_321, 54_321, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A folder that such an account may enter and look into, no more."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder
        folder.chmod(0o755)


def test_files_and_folders_that_may_not_be_written_are_said_with_a_way_round(foreign: Path) -> None:
    file = some_journal(foreign)
    file.chmod(0o444)
    foreign.chmod(0o777)
    with without_rights():
        line = check_store("journal", file, examine_journal, "name another: --journal FILE")
    assert (line.state, line.message) == ("bad", f"{file} cannot be written")
    assert line.todo == f"change its owner or mode: chmod u+w {file}; or name another: --journal FILE"
    foreign.chmod(0o555)
    with without_rights():
        line = writable("home", foreign / "models", "name another")
    assert (line.message, line.todo[:13]) == (f"{foreign} cannot be written: Permission denied", "name another;")


def test_an_account_without_a_home_keeps_its_models_where_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "CHARGEHAND_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _nobody)
    assert home() == here / ".chargehand" / "home"


def _nobody() -> Path:
    raise RuntimeError("Could not determine home directory.")


# --- around


def test_a_folder_that_is_gone_is_all_that_is_said(here: Path) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    (line,) = looked()
    assert (line.what, line.state, line.todo) == ("folder", "bad", "go to one that is: cd ~")


def test_a_look_that_fails_does_not_end_the_others(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_around: Surroundings) -> list[CheckResult]:
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr(doctor, "_CHECKS", (broken, doctor.check_disk))
    lines = looked()
    assert "/somewhere" in next(line.message for line in lines if line.what == "doctor")
    assert lines[-1].what == "disk"
