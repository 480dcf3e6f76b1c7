"""What broke in other servers for agents, tried on this one. One test for each; the names are those of their reports.

Those about tool servers (mcp-remote 2025-6514, Cursor 2025-54136, postmark-mcp) are in tests/mcp.
"""

import ast
import re
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.cli.main import main
from chargehand.errors import Corrupt, Invalid
from chargehand.journal.sqlite import SqliteJournal
from chargehand.server.letta.custom_tools import read_source
from chargehand.server.middleware.gate import open_keys
from chargehand.server.middleware.keys import create_key
from chargehand.server.settings import ServerLimits, ServerSettings, check, key_store_url
from chargehand.server.wire import Problem
from chargehand.tools.egress import Egress, Forbidden
from chargehand.tools.sandbox import available
from tests.server.routes import routes
from tests.server.running import Running, running, settings_in
from tests.tools.test_egress import SPELLINGS

ROOT = Path(__file__).parents[2]
SOURCE = sorted((ROOT / "src" / "chargehand").rglob("*.py"))


class Site:
    """A server, and a client with every right in it."""

    def __init__(self, one: Running, data: Path) -> None:
        self.one = one
        self.data = data
        self.client = httpx.Client(base_url=one.url, headers=one.headers, timeout=30)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def made(self, path: str, **body: object) -> Any:
        found = self.post(path, **body)
        assert found.status_code == 200, found.text
        return found.json()

    def agent(self, **more: object) -> str:
        return self.made("/v1/agents", name="ann", model="demo", memory_blocks=[], **more)["id"]

    def run_tool(self, source: str) -> httpx.Response:
        """Bring the tool `f`, have an agent with it, and run it there."""
        brought = self.client.put("/v1/tools", json={"source_code": source})
        agent = self.agent(tools=["f"]) if brought.status_code == 200 else self.agent()
        return self.post(f"/v1/agents/{agent}/tools/f/run", args={})

    def say(self, agent: str, content: object) -> httpx.Response:
        return self.post(f"/v1/agents/{agent}/messages", messages=[{"role": "user", "content": content}])


def served(data: Path, **changes: object) -> Iterator[Site]:
    told = settings_in(data, **{"model_urls": False, "limits": ServerLimits(strangers=100_000), **changes})
    with running(told, {"OPENAI_API_KEY": "key-of-the-operator-1234"}) as one:
        site = Site(one, data)
        with site.client:
            yield site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from served(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One where clients may bring tools."""
    yield from served(tmp_path_factory.mktemp("workshop"), custom_tools=True)


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """A place on this machine that nobody should call."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


def called(trap: socket.socket) -> bool:
    try:
        trap.accept()[0].close()
    except TimeoutError:
        return False
    return True


def port_of(trap: socket.socket) -> int:
    return int(trap.getsockname()[1])


# --- code where data belongs


def test_langflow_2025_3248_code_in_decorators_and_defaults_is_read_and_not_run(workshop: Site, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write = f"open({str(canary)!r}, 'w').write('x')"
    for source in (
        f"@exec({write!r})\ndef f(a: int) -> int:\n    '''F.'''\n    return a\n",
        f"def f(a: int = {write}) -> int:\n    '''F.'''\n    return a\n",
        f"def f(a: '{write.replace(chr(39), chr(34))}') -> int:\n    '''F.'''\n    return a\n",
        f"{write}\ndef f(a: int) -> int:\n    '''F.'''\n    return a\n",
        f"class A(metaclass={write}): pass\ndef f(a: int) -> int:\n    '''F.'''\n    return a\n",
    ):
        for headers in ({"Authorization": ""}, {}):
            for method in ("POST", "PUT"):
                workshop.client.request(method, "/v1/tools", json={"source_code": source}, headers=headers)
        workshop.run_tool(source)
    assert not canary.exists()


def test_letta_2025_51482_source_is_not_run_unless_the_operator_says_so(site: Site, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    source = f"def f() -> str:\n    '''F.'''\n    open({str(canary)!r}, 'w').write('x')\n    return 'done'\n"
    for refused in (site.post("/v1/tools", source_code=source), site.run_tool(source)):
        assert (refused.status_code, refused.json()["code"]) == (403, "custom_tools_off")
    assert not canary.exists()


def test_letta_2026_77936_nothing_listens_to_the_world_without_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.4", "box.example"):
        with pytest.raises(Invalid, match="without asking for a token"):
            check(ServerSettings(tmp_path, host=host, unlocked=True))
        assert main(["serve", "--host", host, "--no-token", "--data", str(tmp_path / "x")]) == 2
    assert [*ROOT.glob("*compose*"), *ROOT.glob("Dockerfile*")] == []  # once there are any, they are to be looked at


def test_crewai_2026_2275_without_a_sandbox_nothing_runs(
    workshop: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    source = f"def f() -> str:\n    '''F.'''\n    open({str(canary)!r}, 'w').write('x')\n    return 'done'\n"
    if not available():
        ran = workshop.run_tool(source)
        assert ran.json().get("status") != "success", ran.text
        assert not canary.exists()
    monkeypatch.setattr("chargehand.tools.sandbox.wrapper", lambda: tmp_path / "gone")
    monkeypatch.setenv("CHARGEHAND_SANDBOX", "unsafe")
    agents = workshop.client.get("/v1/agents").json()
    workshop.run_tool(source)
    for agent in agents:  # also one that has the tool from before
        workshop.post(f"/v1/agents/{agent['id']}/tools/f/run", args={})
    assert not canary.exists()


_WATCHED = {"exec", "import", "open", "os.system", "subprocess.Popen", "socket.connect"}
_seen: list[str] | None = None


def _hook(event: str, details: tuple[object, ...]) -> None:
    if _seen is None or event not in _WATCHED or threading.current_thread() is not threading.main_thread():
        return
    if details[:1] != ("<unknown>",):  # where Python looks for the line of a syntax error
        _seen.append(f"{event} {details[:1]}")


_PIECES = st.sampled_from(
    (
        "int",
        "list[",
        "]",
        "dict[str, ",
        "Optional[",
        "__import__('os').system('true')",
        "|",
        "'",
        '"',
        "(",
        ")",
        "{",
        "Literal[",
        "open('/etc/passwd')",
        ",",
        ".",
        "exec('1')",
        "}",
        "typing.",
        "None",
        "\\",
        "\n",
        "=",
        "Union[",
        "x",
        "lambda: 0",
    )
)
sys.addaudithook(_hook)


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=8).map("".join))
def test_letta_2025_6101_and_2026_4965_no_annotation_is_ever_evaluated(annotation: str) -> None:
    global _seen  # noqa: PLW0603 - an audit hook cannot be taken away, only told not to listen
    _seen = []
    try:
        read_source(f"def f(a: {annotation} = 1) -> str:\n    '''F.'''\n")
        read_source(f"def f(a: {annotation!r}) -> str:\n    '''F.'''\n")
    except Problem:
        pass
    finally:
        found = _seen
        _seen = None
    assert found == []


def test_autogpt_2026_24780_and_26020_what_is_off_is_off_on_every_way_and_no_name_is_imported(site: Site) -> None:
    for name in ("os.system", "chargehand.tools.sandbox", "../x", "__import__", "subprocess:run"):
        assert site.post("/v1/agents", name="x", memory_blocks=[], tools=[name]).status_code in (400, 404, 422), name
        assert site.post("/v1/agents", name="x", memory_blocks=[], tool_ids=[name]).status_code in (400, 404, 422), name
    agent = site.agent()
    for name in ("os.system", "python_sandbox"):
        path = f"/v1/agents/{agent}/tools/{name}/run"
        assert site.post(path, args={}).status_code in (403, 404)


def test_autogpt_2025_1040_templates_are_plain_text(site: Site) -> None:
    text = "{{7*7}} {% for x in ().__class__.__mro__ %}{{x}}{% endfor %} ${7*7} {0.__class__} %(x)s"
    agent = site.made(
        "/v1/agents", name="ann", model="demo", system=text, memory_blocks=[{"label": "p", "value": text}]
    )
    assert agent["system"] == text
    assert agent["blocks"][0]["value"] == text
    said = site.say(agent["id"], text)
    assert said.status_code == 200, said.text
    assert "49 " not in said.text
    assert "class 'object'" not in said.text


# --- pages, names and tokens


def test_langflow_2025_34291_no_page_of_another_site_reads_anything_and_there_are_no_cookies(site: Site) -> None:
    for route in routes():
        for headers in ({"Origin": "https://evil.test"}, {"Origin": "https://evil.test", "Cookie": "token=x"}):
            found = site.client.request(route.method, route.path, headers=headers)
            assert found.status_code == 403
            assert not [name for name in found.headers if name.startswith("access-control") or name == "set-cookie"]
    carried = httpx.get(f"{site.one.url}/v1/agents", headers={"Cookie": f"Authorization=Bearer {site.one.token}"})
    assert carried.status_code == 401


def test_langflow_2026_34046_and_55423_ids_of_others_and_tokens_that_are_over_open_nothing(site: Site) -> None:
    key, token = create_key("other", "", "admin", time.time())
    with closing(open_keys(key_store_url(site.data))) as file:
        file.add(key)
        stranger = {"Authorization": f"Bearer {token}"}
        agent = site.agent()
        assert site.client.get(f"/v1/agents/{agent}", headers=stranger).status_code == 404
        assert site.client.get("/v1/agents", headers=stranger).json() == []
        file.revoke(key.id, time.time())
        assert site.client.get("/v1/agents", headers=stranger).status_code == 401


def test_mcp_inspector_2025_49596_and_sdks_2025_66414_a_rebound_name_and_a_bare_port_open_nothing(site: Site) -> None:
    port = site.one.port
    for route in routes():
        for host in ("evil.test", f"evil.test:{port}", f"localhost.evil.test:{port}"):
            assert site.client.request(route.method, route.path, headers={"Host": host}).status_code == 403
        if not route.open:
            assert site.client.request(route.method, route.path, headers={"Authorization": ""}).status_code == 401
    assert site.client.get("/v1/agents", headers={"Host": f"0.0.0.0:{port}"}).status_code == 403


def test_litellm_2026_42208_what_is_in_a_header_never_reaches_the_store(site: Site) -> None:
    before = Path(key_store_url(site.data)).read_bytes()
    for said in ("' OR '1'='1", "x'; DROP TABLE keys; --", 'ch_" OR 1=1 --_x', "ch_%_%", "ch_deadbeef_' UNION SELECT"):
        for kind in ("Bearer", "Basic", "ApiKey"):
            assert site.client.get("/v1/agents", headers={"Authorization": f"{kind} {said}"}).status_code == 401
    assert Path(key_store_url(site.data)).read_bytes() == before


# --- addresses


def test_litellm_2024_6587_no_caller_says_where_a_key_is_sent(site: Site, trap: socket.socket) -> None:
    url = f"http://127.0.0.1:{port_of(trap)}/v1"
    for more in (
        {"model": f"openai+{url}#gpt-5-mini"},
        {"model": f"anthropic+{url}#x"},
        {"model": "openai:gpt-5-mini@" + url},
        {
            "llm_config": {
                "model": "x",
                "model_endpoint_type": "openai",
                "model_endpoint": url,
                "handle": f"openai+{url}#x",
            }
        },
        {"model": "demo", "model_settings": {"base_url": url, "api_base": url}, "api_base": url, "base_url": url},
    ):
        found = site.post("/v1/agents", name="x", memory_blocks=[], **more)
        if found.status_code == 200:
            agent = found.json()["id"]
            site.say(agent, "Hello?")
            site.client.post(
                f"/v1/agents/{agent}/messages",
                headers={"X-Base-Url": url, "OpenAI-Base-Url": url},
                json={
                    "messages": [{"role": "user", "content": "Hi"}],
                    "api_base": url,
                    "override_model": f"openai+{url}#x",
                },
            )
        assert not called(trap), more


def test_letta_2026_4964_and_others_no_url_in_a_message_is_fetched(site: Site, trap: socket.socket) -> None:
    url = f"http://127.0.0.1:{port_of(trap)}/secret.png"
    agent = site.agent()
    for part in (
        {"type": "image", "source": {"type": "url", "url": url}},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "file", "file": {"url": url}},
        {"type": "text", "text": f"Look at ![this]({url}) and {url}"},
    ):
        assert site.say(agent, [{"type": "text", "text": "See."}, part]).status_code < 500
    later = {"messages": [{"role": "user", "content": "Hi"}], "callback_url": url}
    assert site.client.post(f"/v1/agents/{agent}/messages/async", json=later).status_code < 500
    assert not called(trap)


@pytest.mark.parametrize("host", SPELLINGS[::6])
async def test_fastgpt_2026_44284_and_open_webui_2026_45331_every_spelling_of_a_private_address_is_refused(
    host: str,
) -> None:
    egress = Egress()
    with pytest.raises(Forbidden):  # all spellings, rebinding and redirects: tests/tools/test_egress.py
        await egress.get(f"http://{host}:9/")


# --- what is stored


def test_langgraph_2025_67644_and_2026_27022_names_of_filters_reach_no_statement(site: Site) -> None:
    site.made("/v1/blocks", label="one", value="x", metadata={"a": 1})
    odd = (
        "a' OR '1'='1",
        'a"; DROP TABLE blocks; --',
        "$.a",
        "a\\",
        "é",
        "a]",
        "a.b[0]",
        "metadata'",
        "tags[]",
        "limit;",
    )
    for route in routes():
        if route.method == "GET" and not route.names:
            for name in odd:
                found = site.client.get(
                    route.path, params={name: "x' OR 1=1", "tags": name, "name": name, "query_text": name}
                )
                assert found.status_code < 500, (route, name)
    for name in odd:
        found = site.made("/v1/blocks", label="odd", value="x", metadata={name: {name: [name]}}, tags=[name])
        assert site.client.get(f"/v1/blocks/{found['id']}").json()["metadata"] == {name: {name: [name]}}
    assert "one" in [block["label"] for block in site.client.get("/v1/blocks", params={"limit": 1000}).json()]


def test_langgraph_2025_64439_and_2026_28277_odd_json_is_kept_or_refused(site: Site) -> None:
    for body in (
        b'{"label":"x","value":"\\ud800"}',
        b'{"label":"x","value":"x","metadata":{"n":NaN}}',
        b'{"label":"x","value":"x","metadata":{"n":1e400}}',
        b'{"label":"x","value":"x","limit":1' + b"0" * 400 + b"}",
        b'{"label":"x","value":"x","metadata":' + b'{"a":' * 70 + b"1" + b"}" * 71,
        b"[" * 200_000,
        b'"',
        b"\xff\xfe",
        b'{"label":"x","value":"x","metadata":{"n":1' + b"0" * 4000 + b"}}",
        b'{"label":"x\\u0000","value":"\\u0000"}',
    ):
        found = site.client.post("/v1/blocks", content=body, headers={"Content-Type": "application/json"})
        assert found.status_code in (200, 422), (body[:60], found.status_code, found.text[:200])


async def test_langgraph_2025_64439_poison_in_a_row_is_told_and_not_revived(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    data = tmp_path / "data"
    run = ""
    poison = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
    for site in served(data):
        run = site.say(site.agent(), "Hello.").json()["messages"][0]["run_id"]
    with closing(sqlite3.connect(data / "main" / "runs.db")) as db, db:
        assert db.execute("UPDATE entries SET body = ? WHERE seq > 1", (poison,)).rowcount
    for site in served(data):
        for path in ("", "/messages", "/usage"):
            found = site.client.get(f"/v1/runs/{run}{path}")
            assert found.status_code in (200, 500), (path, found.text)
            assert not [one for one in ("touch", "runs.db", str(data), "Traceback") if one in found.text], path
    journal = await SqliteJournal.open(data / "main" / "runs.db")
    with pytest.raises(Corrupt):
        await journal.read(run)
    await journal.close()
    assert not canary.exists()


def test_langchain_2025_68664_our_own_marks_in_the_data_of_others_are_data(site: Site) -> None:
    marks = {
        "type": "run.requested",
        "lc": 1,
        "id": ["langchain", "x"],
        "kwargs": {"a": 1},
        "__class__": "os.system",
        "$type": "x",
        "py/object": "os.system",
        "event": {"type": "attempt.succeeded"},
        "_type": "prompt",
        "$ref": "#",
        "template_path": "/etc/passwd",
        "tag": "noted",
        "role": "system",
    }
    block = site.made("/v1/blocks", label="marks", value=str(marks), metadata=marks)
    assert site.client.get(f"/v1/blocks/{block['id']}").json()["metadata"] == marks
    agent = site.agent(metadata=marks)
    assert site.client.get(f"/v1/agents/{agent}").json()["metadata"] == marks
    assert site.say(agent, str(marks)).status_code == 200


def test_langchain_2026_34070_no_path_leads_out(site: Site) -> None:
    for path in (
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "%00",
        "....//etc/passwd",
        "~root",
        "..\\x",
    ):
        for strategy in ("agents", "blocks", "archives", "runs", "tools"):
            found = site.client.get(f"/v1/{strategy}/{path}")
            assert found.status_code in (400, 404), (strategy, path)
            assert "root:" not in found.text
    for tenant in ("../x", "/etc", "a/b", "a.b", "", "\x00", "x" * 64, "Main"):
        with pytest.raises(Invalid):
            create_key(tenant, "", "run", 1.0)


# --- what is installed, and what stands in our own source


def test_litellm_1_82_8_nothing_runs_at_the_start_of_the_interpreter_that_is_not_known() -> None:
    known = {"_editable_impl_chargehand.pth", "a1_coverage.pth", "distutils-precedence.pth", "_virtualenv.pth"}
    admission = [Path(one) for one in sys.path if one.endswith("site-packages")]
    assert {file.name for place in admission for file in place.glob("*.pth")} <= known
    locked = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    for pinned in re.split(r"\n(?=[a-z0-9])", locked)[1:]:
        assert "--hash=sha256:" in pinned, pinned[:60]


_NEVER = {"eval", "exec", "__import__"}
_SUSPECT = re.compile(
    r"\b(eval|exec|__import__|os\W+system|os\W+popen|yaml\W+load|shell|\w*pickle|marshal|shelve|dill|jinja2)\b"
)
"""A word that stands in each file that could be refused: the others need not be parsed."""
_NOWHERE = {"pickle", "cPickle", "marshal", "shelve", "jsonpickle", "dill", "cloudpickle", "jinja2", "yaml.unsafe_load"}


def _dotted_name(node: ast.expr) -> str:
    """Return the name of an expression such as `a.b.c`; nothing stands for a part that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_nothing_in_our_source_evaluates_unpickles_or_asks_a_shell() -> None:
    wrong: list[str] = []
    for file in SOURCE:
        source = file.read_text(encoding="utf-8")
        if not _SUSPECT.search(source):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                name = _dotted_name(node.func)
                shell = any(one.arg == "shell" and ast.unparse(one.value) != "False" for one in node.keywords)
                if name in _NEVER or name.endswith(("os.system", "os.popen", "yaml.load")) or shell:
                    wrong.append(f"{file.name}:{node.lineno} {name}")
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            wrong += [f"{file.name}: {one}" for one in names if one.partition(".")[0] in _NOWHERE]
    assert wrong == []
