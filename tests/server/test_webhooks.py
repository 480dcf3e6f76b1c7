"""Webhooks of a team file, told by a real server to a real receiver: signed, repeated, and not lost by kill -9."""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.journal.store import list_deliveries
from chargehand.server.settings import FIRST, JOURNAL, WebhookTimes
from tests.server.api import GOAL, Garden, team_in
from tests.server.running import TOKEN, Running, running, settings_in
from tests.support.server_process import ForkedCommand

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
HANG = 0
"""The answer of a receiver that never gives one."""


class Receiver:
    """An address that gives these answers, one after the other, then 204."""

    def __init__(self, port: int, answers: Sequence[int], hung: threading.Event) -> None:
        self.url = f"http://127.0.0.1:{port}/hooks"
        self.answers = list(answers)
        self.hung = hung
        """Set when a call is left without an answer."""
        self.calls: list[tuple[dict[str, str], bytes]] = []

    def wait(self, count: int, limit: float = 60.0) -> list[dict[str, object]]:
        """The events of the first so many calls, once there are as many."""
        deadline = time.monotonic() + limit
        while len(self.calls) < count:
            assert time.monotonic() < deadline, f"{len(self.calls)} calls, not {count}"
            time.sleep(0.02)
        return [json.loads(body) for _, body in self.calls]


@contextmanager
def receiving(*answers: int) -> Generator[Receiver]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
            answer = receiver.answers.pop(0) if receiver.answers else 204
            if answer == HANG:
                receiver.hung.set()
                over.wait(60)
                return
            self.send_response(answer)
            self.send_header("Location", receiver.url)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_address[1], answers, threading.Event())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def team_with(folder: Path, url: str, events: str = "[run.started, run.ended]") -> Path:
    team = team_in(folder / "team")
    entry = f"webhooks:\n  desk: {{url: {url}, secret_env: DESK_SECRET, events: {events}}}\n"
    team.write_text(team.read_text() + entry)
    return team


@contextmanager
def garden_with(folder: Path, team: Path, **changes: object) -> Generator[Garden]:
    settings = settings_in(folder / "data", teams=(team,), grace=0.5, **changes)
    with (
        running(settings, {"DESK_SECRET": SECRET}) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, team.parent)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    """As a receiver verifies it, by the specification of the Standard Webhooks."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    return headers["webhook-signature"] == f"v1,{expected}"


def test_a_webhook_is_told_of_a_run_in_signed_cloud_events(tmp_path: Path) -> None:
    with receiving() as receiver, garden_with(tmp_path, team_with(tmp_path, receiver.url)) as home:
        run = home.begin(labels={"ticket": "7"})
        started, ended = receiver.wait(2)
        assert [started["type"], ended["type"]] == ["chargehand.run.started", "chargehand.run.ended"]
        for (headers, body), event in zip(receiver.calls, (started, ended), strict=True):
            assert is_signed(headers, body)
            assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
            assert headers["content-type"].startswith("application/cloudevents+json")
            assert headers["webhook-id"] == event["id"]
            assert event["specversion"] == "1.0"
            assert event["subject"] == run
            assert GOAL not in body.decode(), "no content is sent"
        data = ended["data"]
        assert isinstance(data, dict)
        summary = home.wait(run)["summary"]
        assert isinstance(summary, dict)
        assert (data["status"], data["labels"]) == (summary["state"], {"ticket": "7"})
        assert data["calls"] == summary["spent"]["calls"]
        until(lambda: not list_deliveries(tmp_path / "data" / FIRST / JOURNAL))


def test_an_event_that_is_not_taken_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    times = WebhookTimes(pauses=(0.05,) * 10)
    with (
        receiving(500, 302, 429) as receiver,
        garden_with(tmp_path, team_with(tmp_path, receiver.url, "[run.ended]"), webhooks=times) as home,
    ):
        home.begin()
        assert len({str(event["id"]) for event in receiver.wait(4)}) == 1
        assert all(is_signed(headers, body) for headers, body in receiver.calls)


def test_an_address_that_is_gone_is_given_up_and_shown(tmp_path: Path) -> None:
    with receiving(410) as receiver, garden_with(tmp_path, team_with(tmp_path, receiver.url, "[run.ended]")) as home:
        run = home.begin()
        receiver.wait(1)
        journal = tmp_path / "data" / FIRST / JOURNAL
        until(lambda: [delivery.given_up for delivery in list_deliveries(journal)] == [True])
        (delivery,) = list_deliveries(journal)
        assert (delivery.run, delivery.webhook, delivery.error) == (run, "garden/desk", "the answer was 410")


_SERVE = """
from pathlib import Path
from chargehand.server.app import serve
from chargehand.server.settings import ServerSettings, WebhookTimes
settings = ServerSettings(
    Path({data!r}), port=0, teams=(Path({team!r}),), token={token!r}, webhooks=WebhookTimes(claim=0.2)
)
serve(settings, {{"DESK_SECRET": {secret!r}}}.get, lambda port, _: print(port, flush=True))
"""


@contextmanager
def killed_process(data: Path, team: Path) -> Generator[Running]:
    """A server in a process of its own, which is killed at the end of the block."""
    code = _SERVE.format(data=str(data), team=str(team), token=TOKEN, secret=SECRET)
    process = ForkedCommand(folder=data.parent, environment=os.environ, code=code)
    try:
        port = process.stdout.readline()
        assert port, process.communicate(30)[1]
        yield Running(int(port), TOKEN)
    finally:
        process.kill()
        process.communicate(30)


def test_what_a_killed_server_had_not_delivered_is_delivered_by_the_next(tmp_path: Path) -> None:
    with receiving(HANG) as receiver:
        team = team_with(tmp_path, receiver.url, "[run.ended]")
        with killed_process(tmp_path / "data", team) as server:
            sent = {"team": "garden", "goal": GOAL}
            begun = httpx.post(f"{server.url}/api/runs", json=sent, headers=server.headers, timeout=30)
            assert begun.status_code == 201, begun.text
            assert receiver.hung.wait(60)
        with garden_with(tmp_path, team, webhooks=WebhookTimes(look=0.05)):
            first, again = receiver.wait(2)
    assert first == again, "the same event, so a receiver can drop it"
    assert first["subject"] == begun.json()["run"]


@pytest.mark.parametrize(
    ("environment", "problem"),
    [({}, "DESK_SECRET, which is not set"), ({"DESK_SECRET": "whsec_short"}, "at least 24 bytes")],
)
def test_a_secret_that_cannot_sign_is_told_before_the_server_listens(
    tmp_path: Path, environment: dict[str, str], problem: str
) -> None:
    (webhook,) = load_team(team_with(tmp_path, "http://127.0.0.1:1/hooks")).webhooks
    with pytest.raises(Invalid, match=problem):
        webhook.secret(environment.get)


def test_an_address_that_cannot_be_called_is_a_finding_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"webhooks\.desk"):
        load_team(team_with(tmp_path, "ftp://example.com"))
