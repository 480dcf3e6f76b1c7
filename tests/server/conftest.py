"""A real server with a fake model behind it, and the real Letta client: one for all tests of a file."""

from collections.abc import Iterator

import pytest
from letta_client import Letta

from tests.server.model_server import FakeModel, fake_model
from tests.server.running import running, settings_in
from tests.support.certificates import one_certificate


@pytest.fixture(scope="package", autouse=True)
def _quick_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Letta, FakeModel]]:
    folder = tmp_path_factory.mktemp("letta")
    with (
        fake_model(lambda _: "yes") as model,
        running(settings_in(folder, pulse=0.3)) as server,
        Letta(base_url=server.url, api_key=server.token) as client,
    ):
        yield client, model


@pytest.fixture
def client(served: tuple[Letta, FakeModel]) -> Letta:
    return served[0]


@pytest.fixture
def model(served: tuple[Letta, FakeModel]) -> FakeModel:
    served[1].think = lambda _: "yes"
    served[1].questions.clear()
    return served[1]
