"""A database of PostgreSQL: its schema, its tenants, and its errors in words."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chargehand.errors import Corrupt, Invalid, Refused, StoreError, StoreUnavailable
from chargehand.postgres import migrations
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection
from chargehand.store_url import parse_store_url, postgres_url
from tests.postgres import PASSWORD, PostgresServer

ROOT = Path(__file__).parents[2]
_OPEN = """
import sys
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import open_database
from chargehand.store_url import postgres_url
database = client_thread().wait(open_database(postgres_url(sys.argv[1])))
print(database.tenant)
"""


# --- URLs


@pytest.mark.parametrize(
    ("url", "shown", "tenant"),
    [
        ("postgresql://me:hidden@db.example:5433/runs", "postgresql://db.example:5433/runs", "main"),
        ("postgres://me@db.example/runs?tenant=lab", "postgresql://db.example/runs?tenant=lab", "lab"),
        ("postgresql:///runs?host=/var/run&password=hidden", "postgresql:///runs?host=/var/run", "main"),
        ("postgresql://me:hidden@[::1]:5433/runs", "postgresql://[::1]:5433/runs", "main"),
    ],
)
def test_the_url_of_a_database_is_shown_without_its_password(url: str, shown: str, tenant: str) -> None:
    parsed = postgres_url(url)
    assert (str(parsed), parsed.tenant) == (shown, tenant)
    assert "hidden" not in f"{parsed!r} {parsed}"
    assert "tenant" not in parsed.dsn
    assert ("hidden" in parsed.dsn) == ("hidden" in url)


@pytest.mark.parametrize(
    "url", ["mysql://me:hidden@host/db", "postgresql://me:hidden@host/db?tenant=", "x://a:hidden@b"]
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_store_url(url)
    assert "hidden" not in str(caught.value)


def test_a_file_is_no_database() -> None:
    with pytest.raises(Invalid, match="is a file, and a database is needed"):
        postgres_url("runs.db")


_FORK = """
import os, sys
from chargehand.journal.store import list_runs
print(len(list_runs(sys.argv[1])), flush=True)
child = os.fork()
print(len(list_runs(sys.argv[1])), flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


# --- the schema


def test_six_processes_may_open_an_empty_database_at_once(empty_database: str) -> None:
    command = [sys.executable, "-c", _OPEN, empty_database]
    openers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    outputs = [opener.communicate(timeout=60)[0] for opener in openers]
    assert outputs == ["1\n"] * 6


async def test_a_newer_schema_is_refused(postgres: PostgresServer, postgres_store: str) -> None:
    await open_database(postgres_url(postgres_store))
    other = postgres_url(f"{postgres_store}&tenant=other")
    postgres.execute("UPDATE chargehand.schema SET version = 99", database=_name(postgres_store))
    with pytest.raises(Corrupt, match=r"schema 99 and this chargehand knows \d+.*upgrade chargehand") as caught:
        await open_database(other)
    assert caught.value.newer


async def test_an_older_schema_is_brought_up_to_date(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    present = migrations.scripts()
    await open_database(postgres_url(empty_database))
    monkeypatch.setattr(migrations, "scripts", lambda: [*present, "CREATE TABLE later (number int)"])
    database = await open_database(postgres_url(f"{empty_database}&tenant=other"))
    assert await database.fetch("SELECT * FROM later") == []
    assert [tuple(row) for row in await database.fetch("SELECT version FROM schema")] == [(len(present) + 1,)]


async def test_a_script_that_fails_leaves_the_schema_as_it_was(
    postgres: PostgresServer, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = migrations.scripts()
    monkeypatch.setattr(migrations, "scripts", lambda: [*present, "CREATE TABLE later (number int); SELECT 1 / 0"])
    with pytest.raises(StoreError):
        await open_database(postgres_url(empty_database))
    monkeypatch.undo()
    database = await open_database(postgres_url(empty_database))
    assert [tuple(row) for row in await database.fetch("SELECT to_regclass('later')")] == [(None,)]


async def test_a_server_that_is_too_old_is_refused(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "OLDEST_SERVER", 99)
    with pytest.raises(StoreError, match=r"is PostgreSQL \d+, and chargehand needs 99 or newer"):
        await open_database(postgres_url(postgres_store))


async def test_what_is_only_read_is_not_created(empty_database: str) -> None:
    url = postgres_url(empty_database)
    with pytest.raises(Refused, match="nothing of chargehand"):
        await open_database(url, create=False)
    await open_database(url)
    with pytest.raises(Refused, match="no tenant 'other'"):
        await open_database(url.of_tenant("other"), create=False)


# --- tenants


async def test_row_level_security_hides_the_rows_of_other_tenants(postgres_store: str) -> None:
    url = postgres_url(postgres_store)
    one = await open_database(url)
    other = await open_database(url.of_tenant("other"))
    assert one.tenant != other.tenant
    await one.fetch("INSERT INTO runs (run, epoch, seq) VALUES ('r', 1, 0)")
    assert len(await one.fetch("SELECT * FROM runs")) == 1
    assert await other.fetch("SELECT * FROM runs") == []
    assert await other.fetch("UPDATE runs SET epoch = 9 RETURNING 1") == []
    with pytest.raises(StoreError, match="row-level security"):
        await other.fetch("INSERT INTO runs (run, epoch, seq, tenant) VALUES ('r', 1, 0, $1)", one.tenant)


# --- transactions


async def test_an_error_undoes_a_transaction_and_a_closed_connection_is_replaced(
    postgres: PostgresServer, postgres_store: str
) -> None:
    database = await open_database(postgres_url(postgres_store))

    async def fail(connection: Connection) -> None:
        await connection.execute("INSERT INTO runs (run, epoch, seq) VALUES ('r', 1, 0)")
        raise Refused("no")

    with pytest.raises(Refused):
        await database.write(fail)
    tries: list[int] = []

    async def insert(connection: Connection) -> object:
        if not tries:  # the server ends the connection in the middle of the work
            tries.append(1)
            await connection.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
        return await connection.fetchval("INSERT INTO runs (run, epoch, seq) VALUES ('s', 1, 0) RETURNING run")

    assert await database.write(insert) == "s"
    assert [tuple(row) for row in await database.fetch("SELECT run FROM runs")] == [("s",)]


def test_a_database_is_used_from_any_loop_and_from_none(postgres_store: str) -> None:
    url = postgres_url(postgres_store)

    async def ask() -> object:
        return (await (await open_database(url)).fetch("SELECT 41 + 1"))[0][0]

    assert [asyncio.run(ask()), asyncio.run(ask()), client_thread().wait(ask())] == [42, 42, 42]


def test_a_forked_child_has_connections_of_its_own(postgres_store: str) -> None:
    command = [sys.executable, "-c", _FORK, postgres_store]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "0", "0"]), done.stderr


# --- errors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("/test", "/none"), "createdb none"),
        (("chargehand:", "nobody:"), "refuses the user"),
        (("chargehand-pg-", "elsewhere-"), "cannot be reached"),
    ],
)
async def test_a_database_that_cannot_be_opened_says_what_to_do_and_never_the_password(
    postgres_store: str, change: tuple[str, str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnavailable, match=words) as caught:
        await open_database(postgres_url(postgres_store.replace(*change)))
    told = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caplog.text}"
    assert "postgresql://" in told
    assert PASSWORD not in told


async def test_what_does_not_fit_a_column_is_an_error_in_words(postgres_store: str) -> None:
    database: PostgresDatabase = await open_database(postgres_url(postgres_store))
    with pytest.raises(StoreError, match="could not take what it was given"):
        await database.fetch("SELECT $1::int", "no number")


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")
