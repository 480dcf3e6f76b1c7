"""The files of the page: served without a token, kept by browsers as long as they may be, small enough."""

import gzip
import re
from collections.abc import Iterator

import httpx
import pytest

from chargehand.server import page
from tests.server.running import Running, running, settings_in

HTML = {"Accept": "text/html"}
MOST_SCRIPT = 80 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(settings_in(tmp_path_factory.mktemp("page"))) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as browser:
        yield browser


def assets(client: httpx.Client) -> list[str]:
    return re.findall(r"/assets/[\w.-]+", client.get("/", headers=HTML).text)


def test_every_view_is_the_same_page_and_needs_no_token(client: httpx.Client) -> None:
    first = client.get("/", headers=HTML)
    assert first.headers["content-type"].startswith("text/html")
    assert first.headers["cache-control"] == "no-cache"
    for path in (
        "/runs/some-run",
        "/runs/outer/t1/1/2/0123abcd",
        "/compare/a/vs/b",
        "/teams",
        "/teams/x",
        "/memory",
        "/evals/x/y",
    ):
        assert client.get(path, headers=HTML).text == first.text, path
    assert client.get("/elsewhere", headers=HTML).status_code == 401


def test_the_page_may_load_nothing_from_elsewhere_and_runs_no_inline_script(client: httpx.Client) -> None:
    reply = client.get("/", headers=HTML)
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    assert "style=" not in reply.text
    assert re.findall(r"<script[^>]*>([^<]+)</script>", reply.text) == []
    assert not re.search(r"(?:src|href)=\"(?!/assets/)", reply.text)


def test_files_are_kept_for_ever_and_sent_packed(client: httpx.Client) -> None:
    names = assets(client)
    assert len(names) == 4
    for name in names:
        plain = client.get(name, headers={"Accept-Encoding": "identity"})
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert "content-encoding" not in plain.headers
        packed = client.get(name, headers={"Accept-Encoding": "gzip"})
        assert packed.content == plain.content
        assert (packed.headers.get("content-encoding") == "gzip") == (not name.endswith(".woff2"))
    missing = client.get("/assets/none.js")
    assert (missing.status_code, missing.headers["cache-control"]) == (404, "no-store")


def test_a_terminal_is_told_what_there_is(client: httpx.Client) -> None:
    assert client.get("/").text.startswith("chargehand is running")


def test_the_scripts_of_the_first_load_are_small(client: httpx.Client) -> None:
    scripts = [client.get(name).content for name in assets(client) if name.endswith(".js")]
    assert 0 < sum(len(gzip.compress(script, 9)) for script in scripts) <= MOST_SCRIPT


def test_only_paths_of_the_page_are_open() -> None:
    for path in ("/", "/assets/x.js", "/runs/x", "/teams", "/memory/x", "/compare/a/vs/b"):
        assert page.is_page(path), path
    for path in ("/api/runs", "/v1/agents", "/metrics", "/runsome", "/teamsters"):
        assert not page.is_page(path), path
