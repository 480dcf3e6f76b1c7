"""What the processes of a test run get when they ask for a shared server."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.shared_servers import SharedServers, find_shared

EVENTS: list[str] = []


@contextmanager
def recorded_server() -> Generator[str]:
    EVENTS.append("started")
    yield "its address"
    EVENTS.append("stopped")


@contextmanager
def failing_server() -> Generator[str]:
    raise RuntimeError("no port is free")
    yield ""


@pytest.fixture
def servers() -> Iterator[SharedServers]:
    EVENTS.clear()
    servers = SharedServers({"recorded": recorded_server, "failing": failing_server})
    yield servers
    servers.close()


def test_a_server_is_started_once_for_all_who_ask_and_stopped_at_the_end(servers: SharedServers) -> None:
    address = servers.listen()
    assert EVENTS == []
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(find_shared, [address] * 16, ["recorded"] * 16)) == ["its address"] * 16
    servers.close()
    assert EVENTS == ["started", "stopped"]


def test_a_server_that_does_not_start_fails_each_test_that_asks_for_it(servers: SharedServers) -> None:
    address = servers.listen()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the failing of all tests: no port is free"):
            find_shared(address, "failing")


def test_a_server_of_the_own_process_needs_no_socket(servers: SharedServers) -> None:
    assert servers.find("recorded") == servers.find("recorded") == "its address"
    assert EVENTS == ["started"]
