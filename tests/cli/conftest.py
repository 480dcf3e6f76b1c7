"""What the tests of commands share: the process that forks them."""

import pytest

from tests.cli.forked import start_server


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> None:
    """Start it in a set-up, so that its imports are not part of the first test."""
    start_server()
