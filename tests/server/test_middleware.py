"""Every route, walked: without a token, by another name, from another page, for another tenant, with bodies too big."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from chargehand.server.app import all_apis
from chargehand.server.middleware.gate import CallRates, open_keys
from chargehand.server.middleware.keys import Allowed, create_key
from chargehand.server.middleware.limits import UPLOADS, check_json
from chargehand.server.routing import SLASH
from chargehand.server.settings import ServerLimits, ServerSettings, key_store_url
from chargehand.server.wire import Problem
from tests.server.guarded import guarded
from tests.server.routes import Called, routes
from tests.server.running import Running, running, settings_in

EVERY = list(routes())
APIS = all_apis()
TOKEN = "an-operators-own-token-0123456789"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walls")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Running]:
    with running(settings_in(data, custom_tools=True, limits=ServerLimits(strangers=100_000))) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as one:
        yield one


def key_of(data: Path, tenant: str, scope: Allowed) -> dict[str, str]:
    """Headers with a new key of this tenant."""
    key, token = create_key(tenant, "", scope, time.time())
    with closing(open_keys(key_store_url(data))) as file:
        file.add(key)
    return {"Authorization": f"Bearer {token}"}


def called(client: httpx.Client, route: Called, **more: Any) -> httpx.Response:
    """The reply; of one that goes on for ever only how it begins."""
    with client.stream(route.method, route.path, **more) as found:
        if not found.headers.get("content-type", "").startswith("text/event-stream"):
            found.read()
            return found
    return httpx.Response(found.status_code, headers=found.headers, text="", request=found.request)


def in_manner(response: httpx.Response) -> bool:
    """Whether a refusal speaks like the door its path belongs to."""
    path = response.request.url.path
    slash = {SLASH: True} if path.endswith("/") else {}
    if APIS.owner({"path": path.rstrip("/") or "/", "headers": [], **slash}).name == "openai":
        return "message" in response.json()["error"]
    if path.startswith("/v1"):
        return isinstance(response.json()["detail"], str)
    if path.startswith("/api"):
        told = response.json()
        return told["status"] == response.status_code and "problem+json" in response.headers["content-type"]
    return bool(response.text)


def test_there_are_routes_to_walk() -> None:
    assert len(EVERY) > 50
    assert {one.shape for one in EVERY if one.open} == {"/", "/healthz", "/readyz"}


def test_without_a_good_token_every_route_is_shut(server: Running, client: httpx.Client) -> None:
    wrong = {"Authorization": f"Bearer {server.token[:-1]}0"}
    for route in EVERY:
        for headers in ({}, wrong, {"Authorization": "Basic eDp5"}):
            found = called(client, route, headers=headers, content=b"this is not JSON")
            assert found.status_code == (200 if route.open else 401), (route, found.text)
            assert route.open or in_manner(found), (route, found.text)
    for path in ("/nothing", "/v1/nothing", "/api/nothing", "/api/openapi.json", "/metrics", "/v1/tools", "/docs"):
        assert client.get(path).status_code == 401, path
    assert client.get("/v1/agents").headers["www-authenticate"] == "Bearer"


def test_by_another_name_every_route_is_shut_also_to_who_has_a_token(server: Running, client: httpx.Client) -> None:
    for host in ("evil.test", f"evil.test:{server.port}", f"127.0.0.1.evil.test:{server.port}", "127.0.0.1", ""):
        for route in EVERY if host == "evil.test" else EVERY[:8]:
            found = called(client, route, headers={**server.headers, "Host": host})
            assert found.status_code == 403, (host, route)
            assert in_manner(found)
    for host in (f"localhost:{server.port}", f"127.0.0.1:{server.port}", f"[::1]:{server.port}"):
        assert client.get("/v1/agents", headers={**server.headers, "Host": host}).status_code == 200, host
    assert client.get("/nothing", headers={**server.headers, "Host": "evil.test"}).status_code == 403


def test_from_a_page_of_another_site_every_route_is_shut(server: Running, client: httpx.Client) -> None:
    for origin in ("https://evil.test", "null", f"http://127.0.0.1:{server.port + 1}", "file://"):
        for route in EVERY if origin == "null" else EVERY[:8]:
            found = called(client, route, headers={**server.headers, "Origin": origin})
            assert found.status_code == 403, (origin, route)
            assert not [name for name in found.headers if name.startswith("access-control")]
    same = {**server.headers, "Origin": server.url}
    assert client.get("/v1/agents", headers=same).status_code == 200
    assert client.get("/v1/agents", headers={**server.headers, "Sec-Fetch-Site": "cross-site"}).status_code == 403
    asked = client.options("/v1/agents", headers={**same, "Access-Control-Request-Method": "POST"})
    assert not [name for name in asked.headers if name.startswith("access-control")]


def test_every_reply_tells_browsers_to_keep_and_load_nothing(server: Running, client: httpx.Client) -> None:
    for path, headers in (("/v1/agents", server.headers), ("/v1/agents", {}), ("/", {}), ("/v1/none", server.headers)):
        told = client.get(path, headers=headers).headers
        assert told["content-security-policy"].startswith("default-src 'self'")
        assert (told["x-content-type-options"], told["referrer-policy"]) == ("nosniff", "no-referrer")
        assert told["cache-control"] == "no-store"
        assert "set-cookie" not in told


def test_a_key_does_what_its_scope_allows_and_no_more(data: Path, client: httpx.Client) -> None:
    reads = key_of(data, "scopes", "read")
    runs = key_of(data, "scopes", "run")
    for route in EVERY:
        refused = called(client, route, headers=reads, json={}).status_code == 403
        assert refused == (route.scope in ("run", "admin")), route
        if route.scope == "admin":
            assert called(client, route, headers=runs, json={}).status_code == 403, route


def test_bodies_that_are_too_large_too_deep_or_too_wide_are_refused_on_every_route(
    server: Running, client: httpx.Client
) -> None:
    large = b'{"value": "' + b"x" * (1024 * 1024) + b'"}'
    deep = b'{"metadata": ' + b"[" * 100 + b"]" * 100 + b"}"
    wide = msgspec.json.encode({f"k{number}": 1 for number in range(1001)})
    for route in EVERY:
        if route.method in ("POST", "PUT", "PATCH") and route.path not in UPLOADS:
            for status, body in ((413, large), (422, deep), (422, wide)):
                found = called(client, route, headers={**server.headers, **JSON}, content=body)
                assert found.status_code == status, (route, found.text)
                assert in_manner(found)
    assert client.get("/healthz").json() == {"status": "ok"}


def test_paths_that_no_honest_client_sends_are_refused(server: Running) -> None:
    for path in (
        "/v1/agents/%00",
        "/v1/agents/a%2Fb",
        "/v1/agents/a%5Cb",
        "/v1/agents/%0d%0aX:1",
        "/v1/agents/%ff",
        "/v1/%2e%2e/etc/passwd",
        "/v1/agents/..",
        "/v1/agents/" + "x" * 3000,
        "/v1/agents?a=" + "x" * 9000,
    ):
        assert _status(server, f"GET {path} HTTP/1.1", "") in (400, 414), path
    assert _status(server, "TRACE /v1/agents HTTP/1.1", "") == 405
    assert _status(server, "GET /v1/agents HTTP/1.1", f"Host: 127.0.0.1:{server.port}\r\n") == 400
    assert _status(server, "GET /v1/agents HTTP/1.1", "X-Long: " + "x" * 17_000 + "\r\n") == 431
    assert _status(server, "GET /v1/agents HTTP/1.1", "") == 200


def _status(server: Running, line: str, headers: str) -> int:
    """The status of a call that is put together by hand."""
    host = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line_to:
        line_to.sendall(f"{line}\r\n{host}{headers}\r\n".encode())
        return int(line_to.recv(4096).split(b" ")[1])


# --- one tenant and another


def furnished(client: httpx.Client, headers: dict[str, str]) -> dict[str, str]:
    """One of everything that has an id, by what routes call it."""

    def post(path: str, **body: object) -> Any:
        found = client.post(path, json=body, headers=headers)
        assert found.status_code == 200, found.text
        return found.json()

    block = post("/v1/blocks", label="plan", value="the secret plan")
    archive = post("/v1/archives", name="findings")
    agent = post("/v1/agents", name="ann", model="demo", block_ids=[block["id"]], memory_blocks=[], tags=["mine"])
    client.patch(f"/v1/agents/{agent['id']}/archives/attach/{archive['id']}", headers=headers)
    passage = post(f"/v1/archives/{archive['id']}/passages", text="a hidden finding")
    talk = post(f"/v1/agents/{agent['id']}/messages", messages=[{"role": "user", "content": "Hello, who are you?"}])
    message = talk["messages"][0]
    tool = post("/v1/tools", source_code='def mine(a: int) -> int:\n    """Mine."""\n    return a\n')
    return {
        "agent": agent["id"],
        "block": block["id"],
        "archive": archive["id"],
        "passage": passage["id"],
        "message": message["id"],
        "run": message["run_id"],
        "step": message["step_id"],
        "label": "plan",
        "tool": tool["id"],
        "name": "mine",
        "which": "nothing",
    }


_OWN = ("agent", "block", "archive", "passage", "message", "run", "step", "tool")
BODIES: dict[str, dict[str, object]] = {
    "/v1/agents/{agent}/messages": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/agents/{agent}/messages/stream": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/agents/{agent}/messages/async": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/agents/{agent}/archival-memory": {"text": "mine now"},
    "/v1/archives/{archive}/passages": {"text": "mine now"},
    "/v1/archives/{archive}/passages/batch": {"passages": [{"text": "mine now"}]},
    "/v1/blocks/{block}": {"value": "changed by a stranger"},
    "/api/teams/{team}/plan": {"goal": "Mine."},
    "/api/teams/{team}/search": {"query": "hidden"},
    "/api/teams/{team}/blocks/{block}": {"value": "changed by a stranger", "version": 1},
    "/api/runs/{run:run}/plan": {"number": 1, "verdict": "approve"},
    "/api/runs/{run:run}/answer": {"number": 1, "verdict": "approve"},
    "/api/runs/{run:run}/feedback": {"good": 1},
    "/api/runs/{run:run}/tasks/{task}/reassign": {"worker": "bob"},
}


_VALUES: dict[str, object] = {"bool": True, "int": 1, "float": 1.0, "array": [], "object": {}}


def filled_in(client: httpx.Client, route: Called, headers: dict[str, str]) -> httpx.Response:
    """The reply to a body that has what is asked for: who reads bodies first must not hide what it does then."""
    body = dict(BODIES.get(route.shape, {}))
    found = called(client, route, headers=headers, json=body)
    for _ in range(10):
        missing = re.search(r"the field '(\w+)' is missing", found.text)
        wrong = re.search(r"\$\.(\w+): must be (\w+)", found.text)
        if found.status_code != 422 or not (missing or wrong):
            break
        if missing:
            body[missing[1]] = "x"
        elif wrong:
            body[wrong[1]] = _VALUES.get(wrong[2], "x")
        found = called(client, route, headers=headers, json=body)
    return found


def test_what_is_anothers_is_not_there(data: Path, client: httpx.Client) -> None:
    owner = key_of(data, "owner", "admin")
    stranger = key_of(data, "stranger", "admin")
    ids = furnished(client, owner)
    before = client.get(f"/v1/agents/{ids['agent']}", headers=owner).json()
    walked = 0
    for route in routes(ids):
        if not route.names:
            continue
        found = filled_in(client, route, stranger)
        assert found.status_code == 404, (route, found.status_code, found.text)
        assert "secret plan" not in found.text
        assert "hidden finding" not in found.text
        walked += 1
    assert walked > 30
    assert client.get(f"/v1/agents/{ids['agent']}", headers=owner).json() == before
    assert client.get(f"/v1/blocks/{ids['block']}", headers=owner).json()["value"] == "the secret plan"


def test_no_list_and_no_search_finds_what_is_anothers(data: Path, client: httpx.Client) -> None:
    owner = key_of(data, "keeper", "admin")
    stranger = key_of(data, "visitor", "admin")
    ids = furnished(client, owner)
    for route in EVERY:
        if route.names or route.method != "GET":
            continue
        for asked in ({}, {"agent_id": ids["agent"], "run_id": ids["run"], "archive_id": ids["archive"]}):
            found = called(client, route, headers=stranger, params=asked)
            hits = [one for name, one in ids.items() if name in _OWN and one in found.text]
            assert not hits or found.status_code == 404, (route, hits)  # which names what was asked for
    query = {"query": "hidden finding"}
    for body in (query, {**query, "archive_id": ids["archive"], "agent_id": ids["agent"]}):
        assert "hidden" not in client.post("/v1/passages/search", headers=stranger, json=body).text


def test_no_stream_tells_of_what_is_anothers(data: Path, client: httpx.Client) -> None:
    owner = key_of(data, "loud", "admin")
    stranger = key_of(data, "quiet", "admin")
    ids = furnished(client, owner)
    for path in (f"/api/runs/{ids['run']}/events", "/api/events", f"/v1/runs/{ids['run']}/stream"):
        method = "POST" if path.endswith("/stream") else "GET"
        asked = {"run": ids["run"]} if path == "/api/events" else {}
        with client.stream(method, path, headers=stranger, params=asked, timeout=5) as stream:
            assert stream.status_code == 404, path
            assert "Hello" not in stream.read().decode()


# --- the walls alone


def test_calls_of_a_key_and_tries_without_one_are_counted_apart(tmp_path: Path) -> None:
    limits = ServerLimits(calls=5, strangers=3)
    with guarded(ServerSettings(tmp_path, token=TOKEN, limits=limits)) as url, httpx.Client(base_url=url) as client:
        codes = [client.get("/who").status_code for _ in range(6)]
        assert codes == [401, 401, 401, 429, 429, 429]
        assert int(client.get("/who").headers["retry-after"]) >= 1
        good = [client.get("/who", auth=("", TOKEN)) for _ in range(7)]
        assert [one.status_code for one in good] == [200] * 5 + [429] * 2
        assert int(good[-1].headers["retry-after"]) <= 13
        assert client.get("/").status_code == 200


def test_what_was_used_up_comes_back_and_callers_are_forgotten() -> None:
    now = [0.0]
    rates = CallRates(60, lambda: now[0])
    assert [rates.wait("a") for _ in range(60)] == [0.0] * 60
    assert rates.wait("a") == pytest.approx(1.0)
    assert rates.wait("b") == 0.0
    now[0] += 1.0
    assert (rates.wait("a"), rates.wait("a") > 0) == (0.0, True)
    for number in range(30_000):
        now[0] += 0.001
        rates.wait(f"stranger {number}")
    assert len(rates._due) <= 10_000


def test_a_body_that_lies_about_its_length_is_counted_as_it_comes(tmp_path: Path) -> None:
    limits = ServerLimits(body=1000)
    with guarded(ServerSettings(tmp_path, token=TOKEN, limits=limits)) as url, httpx.Client(base_url=url) as client:
        pieces = (b"x" * 100 for _ in range(11))
        assert client.post("/who", auth=("", TOKEN), content=pieces, headers=JSON).status_code == 413
        few = (b"x" * 100 for _ in range(10))
        assert client.post("/who", auth=("", TOKEN), content=few, headers=JSON).json()["bytes"] == 1000


def test_a_slash_at_the_end_is_taken_away_and_remembered(tmp_path: Path) -> None:
    with guarded(ServerSettings(tmp_path, token=TOKEN)) as url, httpx.Client(base_url=url, auth=("", TOKEN)) as client:
        assert client.get("/who").json()["slash"] is False
        assert client.get("/who/").json()["slash"] is True
        assert client.get("/").json()["slash"] is False


def test_names_that_the_operator_adds_are_answered_to(tmp_path: Path) -> None:
    settings = ServerSettings(tmp_path, token=TOKEN, hosts=("Box.example", "other.example:9000"))
    with guarded(settings) as url, httpx.Client(base_url=url, auth=("", TOKEN)) as client:
        port = url.rpartition(":")[2]
        for host, status in (
            ("box.example", 200),
            (f"BOX.example:{port}", 200),
            ("other.example:9000", 200),
            ("other.example", 403),
            ("box.example:1", 403),
            ("xbox.example", 403),
        ):
            assert client.get("/who", headers={"Host": host}).status_code == status, host


def test_nobody_is_asked_for_a_token_where_the_operator_says_so_but_names_and_pages_count(tmp_path: Path) -> None:
    with guarded(ServerSettings(tmp_path, unlocked=True)) as url, httpx.Client(base_url=url) as client:
        assert client.get("/who").json()["tenant"] == "main"
        assert client.get("/who", headers={"Host": "evil.test"}).status_code == 403
        assert client.get("/who", headers={"Origin": "https://evil.test"}).status_code == 403


def test_headers_that_never_end_and_headers_that_never_come_close_the_line(tmp_path: Path) -> None:
    with guarded(ServerSettings(tmp_path, token=TOKEN), patience=0.2) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(b"GET /who HTTP/1.1\r\nX-Long: ")
            got = b""
            try:
                for _ in range(4000):
                    line.sendall(b"x" * 4096)
                got = line.recv(4096)
            except OSError:
                pass
            assert got == b"" or got.startswith(b"HTTP/1.1 431")
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(b"GET /who HTTP/1.1\r\n")
            assert line.recv(4096) == b""
        assert 0.1 < time.monotonic() - began < 5


def test_json_is_looked_through_in_one_go_however_hostile_it_is() -> None:
    for body in (b'{"a": [[["{{{{{"]]], "b": ":::::"}', b"[]", b"", b'{"a":1,"b":2,"c":3}', b'"[[[[[[["', b"x[[[[[[[["):
        check_json(body, 5, 3)
    for body in (
        b"[" * 6,
        b"[[[[[[]]]]]]",
        b'{"a":{"b":{"c":{"d":{"e":{}}}}}}',
        b'{"a":1,"b":2,"c":3,"d":4}',
        b'[{"a":{"x":1},"b":{},"c":[1],"d":4}]',
        b' \n{"a\\"":1,"b":{"a":1,"b":2,"c":3},"c":3,"d":4}',
    ):
        with pytest.raises(Problem):
            check_json(body, 5, 3)
    for hostile in (
        b'["' + b'\\"' * 500_000,
        b"[" + b'"",' * 300_000,
        b"[" + b"[]," * 300_000,
        b'[{"' + b'a":"' * 250_000,
    ):
        began = time.process_time()
        check_json(hostile, 1000, 1_000_000)
        assert time.process_time() - began < 1.0


def test_a_body_must_say_that_it_is_json(server: Running, client: httpx.Client) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        headers = {**server.headers, "Content-Type": media_type}
        found = client.post("/api/runs", headers=headers, content=b'{"goal": "Spend it all."}')
        assert (found.status_code, found.json()["code"]) == (415, "not_json_type"), media_type
        assert found.headers["content-type"] == "application/problem+json"
    for media_type in ("application/json", "application/json; charset=utf-8", "application/merge-patch+json"):
        headers = {**server.headers, "Content-Type": media_type}
        assert client.post("/api/runs", headers=headers, content=b'{"team": 7}').status_code == 422, media_type


def _connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def _is_open(line: socket.socket) -> bool:
    line.settimeout(0.02)
    try:
        return line.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def _asks_who(line: socket.socket, url: str) -> bytes:
    host = url.removeprefix("http://")
    line.sendall(f"GET /who HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    told = b""
    while not told.endswith(b"}"):
        told += line.recv(65536)
    return told.partition(b"\r\n")[0]


def test_strangers_of_one_address_cannot_keep_others_out(tmp_path: Path) -> None:
    limits = ServerLimits(stranger_connections=8)
    with guarded(ServerSettings(tmp_path, token=TOKEN, limits=limits)) as url:
        with_token = _connected(url)
        assert _asks_who(with_token, url) == b"HTTP/1.1 200 OK"
        strangers = [_connected(url) for _ in range(20)]
        late = _connected(url)
        assert _asks_who(late, url) == b"HTTP/1.1 200 OK", "who has a token gets in"
        assert _asks_who(with_token, url) == b"HTTP/1.1 200 OK", "and stays in"
        assert [_is_open(line) for line in strangers] == [False] * 13 + [True] * 7, "the oldest are closed"
        for line in (with_token, late, *strangers):
            line.close()


def test_where_all_connections_are_taken_the_next_is_told_when_to_come_again(tmp_path: Path) -> None:
    limits = ServerLimits(runs=1, waiting=0, streams=0, connections=2)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with guarded(ServerSettings(tmp_path, token=TOKEN, limits=limits)) as url:
        clients = [httpx.Client(base_url=url, headers=headers) for _ in range(4)]
        *first, last = [client.get("/who") for client in clients]
        assert [found.status_code for found in first] == [200] * 3
        assert (last.status_code, last.text.partition(";")[0]) == (503, "too many connections are open")
        assert int(last.headers["retry-after"]) > 0
        for client in clients:
            client.close()


def test_a_target_that_is_no_path_is_refused_like_any_other() -> None:
    assert APIS.owner({"path": "*", "headers": []}).name == "index"
