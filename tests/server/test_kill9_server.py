"""A server that is killed with -9 while it works loses nothing it acknowledged, and does nothing twice."""

from pathlib import Path

from tests.server.kill9_server import many


def test_what_was_acknowledged_before_kill_9_is_done_once_after_it(tmp_path: Path) -> None:
    tally = many(4, 7, tmp_path)
    assert tally.kills == 4
    assert len(tally.runs) >= 10
    assert tally.problems == []
