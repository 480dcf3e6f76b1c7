"""A worker process: what it says when it is told something that cannot be right."""

from pathlib import Path

import pytest

from chargehand.dispatch.engine import parse_engine_url
from chargehand.errors import Invalid
from chargehand.server.app import Application
from chargehand.server.cluster import WorkSettings
from chargehand.server.settings import ServerSettings, check
from chargehand.store_url import postgres_url
from tests.temporal import TemporalServer


async def test_a_queue_that_no_team_of_a_worker_has_is_told(
    tmp_path: Path, postgres_store: str, temporal: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "team.yaml").write_text("version: 1\nname: errands\nworkers:\n  runner: {description: runs}\n")
    settings = ServerSettings(
        data=tmp_path / "data",
        store=postgres_url(postgres_store),
        engine=parse_engine_url(temporal.url),
        teams=(tmp_path / "team.yaml",),
    )
    for queues, count in (((), 0), (("errands",), 0), (("erands", "errands"), 1)):
        application = Application(settings, lambda _name: None, work=WorkSettings(queues=queues))
        async with application.opened():
            assert application.queues == (queues or ("errands",))
            await application.drain(0.0)
        assert caplog.messages.count("no team here has the queue erands; theirs are errands") == count


def test_a_heartbeat_that_no_process_can_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"heartbeat is 0\.5 s; it must be at least 1 s"):
        check(ServerSettings(data=tmp_path, heartbeat=0.5))
