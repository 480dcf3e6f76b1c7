"""What the tests of integrations share: HTTP clients that are made quickly, and the process that forks servers."""

from collections.abc import Iterator

import pytest

from tests.cli.forked import start_server
from tests.support.certificates import one_certificate


@pytest.fixture(scope="package", autouse=True)
def quick_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Start it in a set-up, so that its imports are not part of the first test."""
    start_server()
