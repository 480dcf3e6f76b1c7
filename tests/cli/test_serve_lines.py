"""What `chargehand serve` prints when it is ready."""

from pathlib import Path

from chargehand.cli.serve import startup_lines
from chargehand.server.settings import ServerSettings


def test_what_a_caller_needs_stands_in_one_column(tmp_path: Path) -> None:
    lines = startup_lines(ServerSettings(data=tmp_path), 8283, "ch_1", ["shop"])[1:]
    assert lines[0].startswith("token ")
    assert {len(line) - len(line.partition("  ")[2].lstrip()) for line in lines} == {18}
