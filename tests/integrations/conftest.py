"""What the tests of integrations share: HTTP clients that are made quickly."""

from collections.abc import Iterator

import pytest

from tests.support.certificates import one_certificate


@pytest.fixture(scope="package", autouse=True)
def quick_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield
