"""Lets a test be an `async def`: it runs on a loop of its own. Keeps all the collected tests out of the garbage.

Properties draw the same examples each time; with `--thorough` they draw five times as many at random, hunts have their
full size, and tests that are marked `thorough` run as well. An example may take ten seconds: the usual 0.2 s is less
than a busy machine may stand still for. Ctrl-C means what it usually does, for us and for the commands we start, also
in the background of a script, where it would be ignored.
"""

import asyncio
import gc
import inspect
import itertools
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from chargehand.models.refused_fields import forget_refusals
from tests.cli.forked import fork_server, use_fork_server
from tests.postgres import PostgresServer, postgres_server
from tests.support.hunts import use_full_size
from tests.support.shared_servers import SharedServers, find_shared
from tests.support.slow_cases import SlowCases
from tests.temporal import TemporalServer, temporal_server

_FIND_SERVER = pytest.StashKey[Callable[[str], str]]()
"""How the servers of all tests are found."""
_SHARED_SERVERS = pytest.StashKey[SharedServers]()
_TENANTS = (f"tenant-{number}" for number in itertools.count(1))

settings.register_profile("same each time", deadline=10_000, derandomize=True)
settings.register_profile("thorough", deadline=10_000, max_examples=500)


@pytest.fixture(autouse=True)
def _no_refusals_remembered() -> None:
    """A process remembers what models refused, by their address: a test may get the port of an earlier one."""
    forget_refusals()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="random examples, hunts at full size, and what takes long")


def pytest_configure(config: pytest.Config) -> None:
    thorough = bool(config.getoption("thorough"))
    settings.load_profile("thorough" if thorough else "same each time")
    use_full_size(thorough)
    if not thorough:
        config.pluginmanager.register(SlowCases())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _share_servers(config)


def _share_servers(config: pytest.Config) -> None:
    """Have one PostgreSQL, one Temporal and one fork server, whether the tests run in one process or in several."""
    address = getattr(config, "workerinput", {}).get("shared_servers")
    if address is None:
        servers = SharedServers({"postgres": _shared_postgres, "temporal": _shared_temporal, "fork": fork_server})
        config.stash[_SHARED_SERVERS] = servers
        config.add_cleanup(servers.close)
        find = servers.find
    else:
        find = partial(find_shared, str(address))
    config.stash[_FIND_SERVER] = find
    use_fork_server(partial(find, "fork"))


class _Worker(Protocol):
    """What xdist knows of a process before it starts it."""

    config: pytest.Config
    workerinput: dict[str, object]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Worker) -> None:
    node.workerinput["shared_servers"] = node.config.stash[_SHARED_SERVERS].listen()


@contextmanager
def _shared_postgres() -> Generator[str]:
    with postgres_server() as server:
        yield str(server.folder)


@contextmanager
def _shared_temporal() -> Generator[str]:
    with temporal_server() as server:
        yield f"{server.port} {server.folder}"


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> PostgresServer:
    """The PostgreSQL of all tests, started by the first that asks for it. Nobody stops it: see `own_postgres`."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return PostgresServer(Path(pytestconfig.stash[_FIND_SERVER]("postgres")), prefix=f"test_{worker}_")


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that tests may stop and start."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def temporal(pytestconfig: pytest.Config) -> TemporalServer:
    """The Temporal of all tests, started by the first that asks for it. Nobody stops it."""
    port, folder = pytestconfig.stash[_FIND_SERVER]("temporal").split(" ", 1)
    return TemporalServer(Path(folder), port=int(port))


@pytest.fixture
def postgres_store(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database without data."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def empty_database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database that nobody has opened yet."""
    with postgres.database(empty=True) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database that all tests of this process share."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def postgres_tenant(postgres: PostgresServer, postgres_database: str) -> Iterator[str]:
    """The URL of a new tenant of a database that has others: quicker than a database, and they must not meet."""
    yield f"{postgres_database}&tenant={next(_TENANTS)}"
    postgres.disconnect()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = inspect.signature(test).parameters
    asyncio.run(test(**{name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("thorough"):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """What stays to the end need not be looked through by every collection: that took half a second each."""
    gc.collect()
    gc.freeze()
