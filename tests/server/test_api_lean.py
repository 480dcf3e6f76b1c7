"""A large run over the wire: hundreds of tasks with real prompts and results, as the page reads them."""

import json
import random
import time
import zlib
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from tests.page.big_run import big_plan
from tests.server.api import Garden
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import running, settings_in
from tests.support.hunts import hunt_size

TASKS = hunt_size(quick=25, thorough=500)
LIMIT = 600
"""Bytes a task that the page reads to show the run: all entries in lean form, and the run itself."""
_TEAM = """
version: 1
name: audit
defaults: {{model: "{handle}"}}
timeout: 10m
policy: {{limits: {{max_tasks: 600, max_depth: 500, width: 16}}}}
supervisor: {{combine: none}}
workers:
{workers}
tools:
  ledger: {{python: "tools:ledger"}}
"""
_WORKER = """  w{number}:
    description: Reads ledgers.
    prompt: {instructions}
    tools: [ledger]
"""
_TOOLS = '''
import random


def ledger(place: str) -> str:
    """The ledger of a place."""
    rng = random.Random(place)
    return " ".join(rng.choice(("credit", "debit", "carried", "forward", "posted")) for _ in range(450))
'''
_WORDS = ("the", "ledger", "differs", "from", "last", "year", "by", "seven", "percent", "in", "places", "and", "posts")


def prose(size: int, seed: object) -> str:
    rng = random.Random(str(seed))
    words: list[str] = []
    length = 0
    while length < size:
        words.append(rng.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)


def think(asked: Question) -> Answer | str:
    """Read a ledger, then report in 2 to 4 kB."""
    if not asked.results:
        return Answer(calls=(Call("ledger", {"place": prose(40, asked.user)}),))
    return prose(random.Random(asked.user).randint(2100, 4000), asked.user)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, str]]:
    """A server, and the run of so many tasks that it carried out."""
    folder = tmp_path_factory.mktemp("audit")
    workers = "".join(_WORKER.format(number=number, instructions=prose(3000, number)) for number in range(1, 13))
    with fake_model(think) as model:
        (folder / "tools.py").write_text(_TOOLS)
        (folder / "team.yaml").write_text(_TEAM.format(handle=model.handle, workers=workers))
        settings = settings_in(folder / "data", teams=(folder / "team.yaml",))
        with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as client:
            plan = {**msgspec.to_builtins(big_plan(TASKS)), "combine": "none"}
            begun = client.post("/api/runs", json={"team": "audit", "goal": f"Audit {TASKS} places.", "plan": plan})
            assert begun.status_code == 201, begun.text
            run = begun.json()["run"]
            began = time.monotonic()
            while Garden(server, client, folder).state(run) == "running":
                assert time.monotonic() - began < 300
                time.sleep(0.05)
            yield client, run


def test_a_lean_run_has_at_most_600_bytes_a_task(audited: tuple[httpx.Client, str]) -> None:
    client, run = audited
    shown = client.get(f"/api/runs/{run}").json()["summary"]
    assert (shown["state"], shown["done"]) == ("complete", TASKS)
    whole = received(client, f"/api/runs/{run}/events", "identity")
    plain = received(client, f"/api/runs/{run}/events?lean=true", "identity")
    packed = received(client, f"/api/runs/{run}/events?lean=true", "gzip")
    info = received(client, f"/api/runs/{run}?lean=true", "identity")
    assert zlib.decompress(packed, wbits=31) == plain
    assert len(whole) > 14_000 * TASKS
    assert len(packed) + len(info) <= LIMIT * TASKS
    assert len(plain) < len(whole) / 5


def test_every_entry_that_is_left_out_can_be_read(audited: tuple[httpx.Client, str]) -> None:
    client, run = audited
    for line in received(client, f"/api/runs/{run}/events?lean=true", "identity").splitlines()[:3000]:
        if line.startswith(b"data: ") and b'"messages":{"$entry"' in line:
            prompt = json.loads(line.removeprefix(b"data: "))
            pointer = prompt["event"]["messages"]
            entry = client.get(f"/api/runs/{run}/entries/{pointer['$entry']}").json()
            assert (entry["seq"], len(json.dumps(entry["event"]["messages"])) >= pointer["bytes"]) == (
                prompt["seq"],
                True,
            )
            return
    raise AssertionError("no prompt is large")


def received(client: httpx.Client, path: str, encoding: str) -> bytes:
    """What comes over the wire."""
    with client.stream("GET", path, headers={"Accept-Encoding": encoding}) as reply:
        assert reply.headers.get("content-encoding", "identity") == encoding
        return b"".join(reply.iter_raw())
