"""The harness itself: the judge notices what must not happen, and the proxy loses what it is told to lose."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from msgspec import structs

from tests.cluster.harness import PATIENCE, Cluster, cluster
from tests.cluster.judge import Verdict, epochs_that_go_back, judge
from tests.cluster.outside import Call
from tests.cluster.proxy import tcp_proxy
from tests.postgres import PostgresServer
from tests.temporal import TemporalServer


@pytest.fixture(scope="module")
def finished(postgres: PostgresServer, temporal: TemporalServer) -> Iterator[Cluster]:
    """A server that has done one run of two tasks, by itself."""
    with cluster(postgres, temporal) as made:
        made.write_team(milliseconds=10, tool_calls=1, tool_seconds=0)
        server = made.start_server(engine="local")
        server.wait_ready()
        assert made.wait_ended(made.begin("e1", 2)) == "complete"
        yield made


def verdict(
    finished: Cluster, *more: Call, without: Call | None = None, acknowledged: dict[str, int] | None = None
) -> Verdict:
    calls = [call for call in finished.calls() if call != without]
    return judge(finished.store, finished.superuser, [*calls, *more], finished.acknowledged | (acknowledged or {}), {})


def test_a_run_that_nothing_happened_to_has_no_problems(finished: Cluster) -> None:
    found = verdict(finished)
    assert found.problems == []
    assert (found.calls, found.in_flight) == (6, 0), "two replies and a tool call for each task"


@pytest.mark.parametrize("what", ["model", "tool"])
def test_a_call_that_begins_after_its_result_was_recorded_is_a_problem(finished: Cluster, what: str) -> None:
    call = next(call for call in finished.calls() if call.what == what and call.phase == "begin")
    found = verdict(finished, structs.replace(call, at=call.at + 1000))
    assert len(found.repeated) == len(found.problems) == 1


def test_a_call_that_was_under_way_may_be_made_again(finished: Cluster) -> None:
    call = next(call for call in finished.calls() if call.phase == "begin")
    found = verdict(finished, structs.replace(call, at=call.at - 1))
    assert (found.in_flight, found.problems) == (1, [])


def test_a_result_that_was_recorded_without_a_call_is_a_problem(finished: Cluster) -> None:
    call = next(call for call in finished.calls() if call.phase == "end")
    assert len(verdict(finished, without=call).lost) == 1


def test_an_acknowledged_run_that_is_not_there_is_a_problem(finished: Cluster) -> None:
    assert verdict(finished, acknowledged={"run-of-nobody": 1}).lost == ["run-of-nobody is not in the journal"]


def test_a_lost_result_of_a_task_is_a_problem(finished: Cluster) -> None:
    (run,) = finished.acknowledged
    assert verdict(finished, acknowledged={run: 3}).lost == [f"{run} has 2 results of 3"]


def test_an_epoch_that_goes_back_is_a_problem(finished: Cluster) -> None:
    change = "UPDATE chargehand.entries SET epoch = epoch {} 1 WHERE seq = 3"
    finished.postgres.execute(change.format("+"), database=finished.database)
    try:
        assert len(epochs_that_go_back(finished.superuser)) == 1
    finally:
        finished.postgres.execute(change.format("-"), database=finished.database)


# --- the proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(1000):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_what_is_lost_arrives_when_the_network_is_healed(echo: int, direction: str) -> None:
    with tcp_proxy(("127.0.0.1", echo)) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        proxy.lose(direction)  # pyright: ignore[reportArgumentType] - one of the three
        connection.sendall(b"two")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        proxy.heal()
        connection.settimeout(PATIENCE)
        assert connection.recv(10) == b"two"


def test_a_reset_cuts_open_connections_and_new_ones_work(echo: int) -> None:
    with tcp_proxy(("127.0.0.1", echo)) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(b"one")
            assert connection.recv(10) == b"one"
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                connection.recv(10)
        with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(b"two")
            assert connection.recv(10) == b"two"
