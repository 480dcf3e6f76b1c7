"""Over a session of requests the server unpickles nothing, evaluates nothing and asks no shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
from letta_client import Letta

ROOT = Path(__file__).parents[2]
TOKEN = "an-operators-own-token-0123456789"


def test_the_watch_sees_what_it_is_for(tmp_path: Path) -> None:
    report = tmp_path / "report"
    words = [sys.executable, "-m", "tests.security.audited", str(report), "--self-test"]
    subprocess.run(words, cwd=ROOT, check=True, timeout=30)
    assert "exec in " in report.read_text(encoding="utf-8")


def test_a_session_of_requests_does_nothing_that_a_server_must_never_do(tmp_path: Path) -> None:
    report = tmp_path / "report"
    words = [
        sys.executable,
        "-m",
        "tests.security.audited",
        str(report),
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path),
    ]
    around = {**os.environ, "CHARGEHAND_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=ROOT, env=around, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert found is not None
            session(found[0])
        finally:
            server.terminate()
            assert server.wait(20) == 0
    assert report.read_text(encoding="utf-8") == ""


def session(url: str) -> None:
    """Most of what a client does."""
    with Letta(base_url=url, api_key=TOKEN) as client:
        block = client.blocks.create(label="plan", value="one", metadata={"type": "noted", "lc": 1})
        archive = client.archives.create(name="findings")
        client.archives.passages.create(archive.id, text="The bridge is 312 m long.")
        lead = client.agents.create(name="lead", model="demo", tags=["supervisor"], block_ids=[block.id])
        client.agents.create(name="worker", model="demo", tags=["worker"], memory_blocks=[])
        client.agents.messages.create(lead.id, messages=[{"role": "user", "content": "How long is the bridge?"}])
        list(client.agents.messages.create(lead.id, input="And the tower?", streaming=True))
        client.passages.search(query="bridge", archive_id=archive.id)
        client.blocks.update(block.id, value="two")
        client.agents.delete(lead.id)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as plain:
        source = "@exec('1')\ndef f(a: 'eval(1)' = exec('1')) -> str:\n    '''F.'''\n"
        plain.post("/v1/tools", json={"source_code": source})
        agent = plain.post("/v1/agents", json={"tools": ["f"]}).json().get("id", "agent-none")
        plain.post(f"/v1/agents/{agent}/tools/f/run", json={"args": {}})
        plain.post("/v1/blocks", content=b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.")
        plain.post("/v1/chat/completions", json={"model": "x", "messages": [{"role": "user", "content": "Hi"}]})
        for path in ("/", "/healthz", "/readyz", "/metrics", "/api/runs", "/api/teams", "/v1/models", "/nothing"):
            plain.get(path)
