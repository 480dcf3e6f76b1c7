"""A server that is killed with -9 while it works loses nothing it acknowledged, and does nothing twice."""

from pathlib import Path

import pytest

from tests.server.kill9_server import many
from tests.support.hunts import hunt_size

KILLS = hunt_size(quick=2, thorough=4)


@pytest.mark.slow("three servers and a model are processes of their own, and work until they are killed")
def test_what_was_acknowledged_before_kill_9_is_done_once_after_it(tmp_path: Path) -> None:
    tally = many(KILLS, 7, tmp_path)
    assert tally.kills == KILLS
    assert len(tally.runs) >= 10 * KILLS / 4
    assert tally.problems == []
