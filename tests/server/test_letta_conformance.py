"""The walk through all that a client can do, with the newest; `make letta-matrix` does it with older ones."""

from pathlib import Path

from tests.server.letta_conformance import conform
from tests.server.model_server import fake_model
from tests.server.running import running, settings_in


def test_the_newest_client_finds_everything_it_knows(tmp_path: Path) -> None:
    with fake_model(lambda _asked: "Nothing is new.") as model, running(settings_in(tmp_path)) as server:
        walked = conform(server.url, server.token, model.handle)
    assert walked == [
        "blocks",
        "archives",
        "agents",
        "attachments",
        "messages",
        "tools",
        "lists",
        "passages",
        "clean",
    ]
