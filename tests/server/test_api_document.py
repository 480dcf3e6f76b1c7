"""The document of our own API is the one that is kept, and the server keeps to it whatever it is sent."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand.server.api.routes import OPERATIONS, written
from chargehand.server.settings import ServerLimits
from tests.server.api import BOTH, garden

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
_CONFIG = """
[parameters]
"path.team" = "garden"
"path.run" = "{run}"
"path.task" = "t1"
"path.block" = "rules"
"path.seq" = "1"
"path.number" = "1"
"path.archive" = "findings"
"query.run" = ["{run}"]
[checks]
# what has the right shape may still not fit: a plan for workers that do not exist, a run that has ended
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, 429]
# what is too long is refused before it is read
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 409, 413, 414, 422, 429, 431]
"""


def test_the_kept_document_is_the_one_that_is_served(tmp_path: Path) -> None:
    assert DOCUMENT.read_bytes() == written(), "run `make openapi`, and look at what has changed"
    with garden(tmp_path) as home:
        assert home.client.get("/api/openapi.json").content == written()


def test_every_route_is_in_it_with_what_it_takes_and_tells_and_what_can_go_wrong() -> None:
    document: dict[str, Any] = json.loads(DOCUMENT.read_bytes())
    assert document["openapi"] == "3.1.0"
    for one in OPERATIONS:
        told = document["paths"][one.path][one.method.lower()]
        assert (told["summary"], told["operationId"]) == (one.summary, one.name)
        assert ("requestBody" in told) == (one.body is not None or one.uploads)
        assert {"401", "403", "default"} <= set(told["responses"])
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))


def test_every_route_asks_for_a_token_and_says_so_as_a_problem(tmp_path: Path) -> None:
    with garden(tmp_path) as home, httpx.Client(base_url=home.server.url) as stranger:
        for one in OPERATIONS[:20]:
            path = one.path.format(run="x", task="x", team="garden", block="x", seq="1", archive="x")
            refused = stranger.request(one.method, path)
            assert (refused.status_code, refused.json()["code"]) == (401, "no_token"), path
            assert refused.headers["content-type"] == "application/problem+json"


def test_a_method_that_is_not_for_a_path_is_told_which_are(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        refused = home.client.delete("/api/teams/garden/blocks/rules")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, PUT")


@pytest.mark.slow("schemathesis takes two seconds to start, and calls every operation with data of its own")
@pytest.mark.timeout(600)  # on a busy machine
def test_the_server_keeps_to_the_document_whatever_it_is_sent(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    thorough = bool(request.config.getoption("thorough"))
    # it calls without a good token more often than strangers may, on a fast machine
    with garden(tmp_path, limits=ServerLimits(strangers=10_000)) as home:
        run = home.begin(BOTH)
        home.wait(run)
        config = tmp_path / "schemathesis.toml"
        config.write_text(_CONFIG.format(run=run))
        words = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", str(DOCUMENT)]
        words += ["--url", home.server.url, "-H", f"Authorization: Bearer {home.server.token}", "--checks", "all"]
        words += ["--exclude-path", "/api/runs/events"]  # it never ends
        words += ["--exclude-operation-id", "delete_run"]  # the others need the run
        words += ["--request-timeout", "60", "--no-color", "--max-examples", "20" if thorough else "1"]
        words += [] if thorough else ["--seed", "1", "--phases", "examples,fuzzing,stateful"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=580)
    assert done.returncode == 0, done.stdout[-5000:]
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted, done.stdout[-2000:]
    assert counted[1] == counted[2]
    assert int(counted[1]) > (500 if thorough else 100)
