"""Files that are none, secrets in odd places, numbers nobody could have written: the doctor neither waits nor tells."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chargehand.cli.main import main
from chargehand.config import doctor
from chargehand.config.doctor import CheckResult, Surroundings, check_store
from chargehand.config.environment import models_home
from chargehand.journal.store import examine_journal
from chargehand.models.providers import without_secrets
from chargehand.sqlite.connection import JOURNAL, examine
from tests.config.files import write

SECRET = "sk-hush-hush-0123456789"
PLAIN = "version: 1\nname: crew\nworkers: {ann: Reads.}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHARGEHAND_HOME", str(tmp_path / "home"))
    for name in ("CHARGEHAND_TEAM", "CHARGEHAND_MODELS", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told(what: str) -> list[CheckResult]:
    return [one for one in doctor.check_surroundings(Path("runs.db")) if one.what == what]


@pytest.mark.parametrize("how", ["pipe", "endless"])
def test_a_dotenv_that_is_no_file_is_not_waited_for(here: Path, how: str) -> None:
    write(here, PLAIN)
    if how == "pipe":
        os.mkfifo(here / ".env")
    else:
        (here / ".env").symlink_to("/dev/zero")
    assert [line.state for line in told("keys")] == ["missing"]


def test_a_journal_that_is_a_pipe_a_folder_or_a_device_is_said_to_be_one(here: Path) -> None:
    os.mkfifo(here / "pipe")
    wrong = {here / "pipe": "is no ordinary file", here: "is a folder", Path("/dev/zero"): "is no ordinary file"}
    for path, words in wrong.items():
        line = check_store("journal", path, examine_journal, "name another: --journal FILE")
        assert (line.state, line.message) == ("bad", f"{path} {words}")
        assert "--journal FILE" in line.todo


HANDLES = (f"openai+http://me:{SECRET}@127.0.0.1:9/v1#m", f"openai+https://h.example/v1?api_key={SECRET}#m")


@pytest.mark.parametrize("handle", HANDLES)
def test_a_key_inside_the_address_of_a_model_is_shown_by_nobody(
    here: Path, capfd: pytest.CaptureFixture[str], handle: str
) -> None:
    write(here, f"version: 1\nname: crew\nworkers:\n  ann: {{description: Reads., model: '{handle}'}}\n")
    for command in (["doctor"], ["doctor", "--json"], ["check"], ["check", "--json"]):
        assert main(command) != 0, command
        said = "".join(capfd.readouterr())
        assert SECRET not in said, command
        assert "base URL" in said, command  # and what is wrong is said all the same


def test_a_key_in_the_base_url_of_the_environment_is_not_shown(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(here, PLAIN)
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://gateway.example/v1?key={SECRET}")
    for command in (["doctor"], ["run", "--model", "openai:m", "hello"]):
        main(command)
        assert SECRET not in "".join(capfd.readouterr()), command


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("openai:gpt-5-mini", "openai:gpt-5-mini"),
        ("openai+http://me:p@ss@host:1/v1#m", "openai+http://…host:1/v1#m"),
        ("openai+http://host/v1?a=b&c=d#m", "openai+http://host/v1…#m"),
        ("Is it at https://h.example/a? Ask.", "Is it at https://h.example/a? Ask."),
    ],
)
def test_only_what_may_be_secret_is_left_out_of_an_address(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_signs_in_the_name_of_a_model_do_not_reach_the_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(here, 'version: 1\nname: crew\ndefaults: {model: "openai:m\\e[31mred"}\nworkers: {ann: Reads.}\n')
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    main(["doctor"])
    said = capfd.readouterr().out
    assert "[31mred" in said
    assert "\x1b[31m" not in said


def test_models_kept_with_somebody_who_is_not_there_end_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARGEHAND_MODELS", "~nobody-of-this-name/models")
    assert models_home().parts == ("~nobody-of-this-name", "models")
    assert told("disk") != []


def test_what_nobody_foresaw_ends_no_other_look(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(_around: Surroundings) -> list[CheckResult]:
        raise ValueError("embedded null byte")

    monkeypatch.setattr(doctor, "_CHECKS", (odd,))
    assert "embedded null byte" in told("doctor")[0].message


def some_file(file: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for one in (f"PRAGMA application_id = {JOURNAL.application}", "PRAGMA user_version = 1", *statements):
            connection.execute(one)
    return file


def test_a_large_file_is_looked_through_only_for_so_long(here: Path) -> None:
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000)"
    file = some_file(
        here / "large.db",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = OFF",
        "CREATE TABLE lines (a, b)",
        f"{rows} INSERT INTO lines SELECT x, x || ' is the number of this line, and it is rather long' FROM n",
        "CREATE INDEX every ON lines (b)",
    )
    with file.open("r+b") as opened:  # the last page is looked at late
        opened.seek(-4096, os.SEEK_END)
        opened.write(b"\x07" * 4096)
    assert examine(file, JOURNAL, 0.001).fault == ""
    assert examine(file, JOURNAL, 20.0).fault == "damaged"


def test_json_of_the_doctor_is_one_document_whatever_is_in_the_way(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(here, PLAIN)
    os.mkfifo(here / ".env")
    assert main(["doctor", "--json", "--journal", str(here)]) == 1
    lines = json.loads(capfd.readouterr().out)["lines"]
    assert "journal" in {one["what"] for one in lines if one["state"] == "bad"}
