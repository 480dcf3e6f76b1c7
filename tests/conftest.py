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
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.postgres import PostgresServer, postgres_server
from tests.support.hunts import use_full_size
from tests.support.slow_cases import SlowCases
from tests.temporal import TemporalServer, temporal_server

_TENANTS = (f"tenant-{number}" for number in itertools.count(1))

settings.register_profile("same each time", deadline=10_000, derandomize=True)
settings.register_profile("thorough", deadline=10_000, max_examples=500)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL of this process, started by the first test that asks for it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    """The Temporal of this process, started by the first test that asks for it."""
    with temporal_server() as server:
        yield server


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
