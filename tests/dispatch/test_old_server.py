"""A Temporal without standalone activities, which no older server has and any operator can switch off."""

from collections.abc import Iterator

import pytest

from tests.cli.commands import Done, chargehand
from tests.cluster.harness import ROOT
from tests.temporal import TemporalServer, temporal_server


@pytest.fixture(scope="module")
def old_server() -> Iterator[TemporalServer]:
    """It answers UNIMPLEMENTED, as a server does that was written before there were any."""
    with temporal_server({"activity.enableStandalone": "false"}) as server:
        yield server


def _chargehand(*arguments: str) -> Done:
    return chargehand(ROOT, *arguments)


@pytest.mark.parametrize("verb", ["serve", "worker"])
def test_servers_and_workers_do_not_start_and_name_the_version_that_is_needed(
    verb: str, old_server: TemporalServer, postgres_store: str
) -> None:
    where = ("--store", postgres_store, "--engine", old_server.url, "--port", "0")
    done = _chargehand(verb, "--team", "teams/portfolio", *where)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert f"{old_server.url}/default has no standalone activities" in line
    assert "use Temporal 1.32 or newer" in line
    assert "activity.enableStandalone" in line


def test_the_doctor_names_the_version_that_is_needed(old_server: TemporalServer, postgres_store: str) -> None:
    done = _chargehand("doctor", "--cluster", "--store", postgres_store, "--engine", old_server.url)
    assert done.returncode == 1
    assert "use Temporal 1.32 or newer" in " ".join(done.stdout.split())
    assert "change its settings, or name another one with --engine" in done.stdout
