"""`chargehand serve` as a real process: it says where it is, answers, stops in order, and says why where it cannot."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from chargehand.journal.store import list_runs, prune_runs
from tests.cli.commands import chargehand
from tests.server.model_server import FakeModel, Question, fake_model
from tests.support.server_process import ForkedCommand

TOKEN = "ch_serve_0123456789abcdef0123456789"


class Process:
    """A server, from its start to its end. `told` is what it printed by the time it answered."""

    def __init__(self, data: Path, *options: str, token: str = TOKEN, forked: bool = True) -> None:
        words = ["serve", "--data", str(data), "--port", "0", *options]
        environment = {name: value for name, value in os.environ.items() if name != "CHARGEHAND_TOKEN"}
        if token:
            environment["CHARGEHAND_TOKEN"] = token
        self.popen = _fork(words, environment) if forked else _start(words, environment)
        assert self.popen.stdout is not None
        self.told = ""
        while "OPENAI_BASE_URL" not in self.told and (line := self.popen.stdout.readline()):
            self.told += line
        found = re.search(r"http://127\.0\.0\.1:(\d+)$", self.told, re.MULTILINE)
        self.url = found[0] if found else ""
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    def agent(self, model: str) -> str:
        return self.client.post("/v1/agents", json={"name": "one", "model": model}).json()["id"]

    def say(self, agent: str) -> httpx.Response:
        sent = {"messages": [{"role": "user", "content": "What is the figure?"}]}
        with httpx.Client(base_url=self.url, headers=self.client.headers, timeout=30) as client:
            return client.post(f"/v1/agents/{agent}/messages", json=sent)

    def later(self, agent: str) -> str:
        sent = {"messages": [{"role": "user", "content": "What is the figure?"}]}
        return self.client.post(f"/v1/agents/{agent}/messages/async", json=sent).json()["id"]

    def stopping(self) -> bool:
        return self.client.get("/readyz").status_code == 503

    def stop(self) -> tuple[int, str]:
        """Its exit code, and what it complained of."""
        if self.popen.poll() is None:
            self.popen.terminate()
        _, errors = self.popen.communicate(timeout=30)
        self.client.close()
        return self.popen.wait(), errors


def _fork(words: Sequence[str], environment: Mapping[str, str]) -> ForkedCommand:
    return ForkedCommand(*words, folder=Path.cwd(), environment=environment)


def _start(words: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "chargehand", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@contextmanager
def served(data: Path, *options: str, token: str = TOKEN, forked: bool = True) -> Generator[Process]:
    """Serve in a process of its own: a fork, or a new interpreter."""
    process = Process(data, *options, token=token, forked=forked)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.communicate()
        process.client.close()


@contextmanager
def calling(process: Process, agent: str) -> Generator[list[httpx.Response]]:
    """A call that is under way within, and its answer afterwards."""
    found: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: found.append(process.say(agent)))
    thread.start()
    soon(lambda: process.client.get("/readyz").json().get("runs"))
    yield found
    thread.join(30)


def test_it_says_what_somebody_needs_to_call_it_and_shows_a_token_once(tmp_path: Path) -> None:
    with served(tmp_path, token="") as first:
        said = re.search(r"token\s+(ch_\S+)", first.told)
        assert said, first.told
        assert re.search(r"^teams +shop$", first.told, re.MULTILINE)
        assert f"LETTA_BASE_URL=http://:{said[1]}@{first.url[7:]}\n" in first.told
        assert f"OPENAI_BASE_URL={first.url}/v1  OPENAI_API_KEY={said[1]}\n" in first.told
        assert f"more: chargehand tokens create --data {tmp_path})" in first.told
        assert f"chargehand runs --journal {tmp_path}/main/runs.db\n" in first.told
        with httpx.Client(base_url=first.url) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/agents").status_code == 401
            good = client.get("/v1/agents", headers={"Authorization": f"Bearer {said[1]}"})
            assert (good.status_code, good.json()) == (200, [])
            assert "server" not in good.headers
        assert first.stop()[0] == 0
    with served(tmp_path, token="") as again:
        assert said[1] not in again.told
        with httpx.Client(base_url=again.url, headers={"Authorization": f"Bearer {said[1]}"}) as client:
            assert client.get("/v1/agents").status_code == 200


def test_a_fresh_folder_is_served_within_seconds_and_in_little_memory(tmp_path: Path) -> None:
    with served(tmp_path, forked=False) as one:
        assert one.client.get("/healthz").status_code == 200
        look = psutil.Process(one.popen.pid)
        spent = look.cpu_times()
        assert spent.user + spent.system < 5  # 0.7 s on an idle machine; CPU, because tests share theirs
        assert look.memory_info().rss < 120e6


def test_a_port_that_is_taken_is_said_in_words(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        served(tmp_path, "--port", str(taken.getsockname()[1])) as one,
    ):
        code, errors = one.stop()
    assert code == 2
    assert "cannot be used: Address already in use; name another with --host or --port" in errors
    assert "Traceback" not in errors


def test_a_folder_that_another_server_has_is_said_in_words(tmp_path: Path) -> None:
    with served(tmp_path) as first, served(tmp_path) as second:
        code, errors = second.stop()
        assert code == 2
        assert f"is in use by process {first.popen.pid}" in errors
        assert "Traceback" not in errors
        assert first.client.get("/healthz").status_code == 200


def test_a_team_that_cannot_be_loaded_is_said_before_anybody_calls(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--team", str(tmp_path / "nobody.yaml")) as one:
        code, errors = one.stop()
    assert code == 2
    assert "nobody.yaml" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("options", "said"), [(("--model", "nosuch:model"), "nosuch"), (("--data", "/dev/null/x"), "--data")]
)
def test_a_model_or_a_folder_that_there_cannot_be_is_said_before_anybody_calls(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    with served(tmp_path / "data", *options) as one:
        code, errors = one.stop()
    assert (code, one.told) == (2, "")
    assert said in errors
    assert "Traceback" not in errors


def test_an_address_for_everybody_without_a_token_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, "--host", "0.0.0.0", "--no-token") as one:
        code, errors = one.stop()
    assert code == 2
    assert "--no-token" in errors


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; from chargehand.cli.main import main; "
        f"sys.exit(main(['serve', '--data', {str(tmp_path)!r}]))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 2
    assert "[server]'" in found.stderr


@contextmanager
def modelling() -> Generator[tuple[FakeModel, threading.Event]]:
    """A model that answers once it is let."""
    free = threading.Event()

    def thinks(_question: Question) -> str:
        free.wait(40)
        return "Found it."

    with fake_model(thinks) as model:
        try:
            yield model, free
        finally:
            free.set()


def soon(check: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not check():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)


def test_runs_are_pruned_and_backed_up_while_it_serves(tmp_path: Path) -> None:
    data = tmp_path / "data"
    journal = str(data / "main" / "runs.db")

    def runs(*words: str) -> str:
        done = chargehand(tmp_path, "runs", *words, "--journal", journal)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with modelling() as (model, free), served(data, "--model-urls", "--model-host", "127.0.0.1") as server:
        agent = server.agent(model.handle)
        free.set()
        assert [server.say(agent).status_code for _ in range(3)] == [200, 200, 200]
        free.clear()
        under_way = server.later(agent)
        soon(lambda: len(list_runs(journal)) == 4)
        assert "deleted 2 of 4 runs" in runs("prune", "--keep", "1")
        runs("backup", str(tmp_path / "copy.db"))
        driven, ended = list_runs(journal)
        assert (driven.held, ended.ended is None) == (True, False)
        assert prune_runs(journal, [driven.run]).held == (driven.run,)
        free.set()
        soon(lambda: server.client.get(f"/v1/runs/{under_way}").json()["status"] == "completed")
        assert server.say(agent).status_code == 200
        assert [row.damage for row in list_runs(journal)] == ["", "", ""]
        assert [row.run for row in list_runs(tmp_path / "copy.db")] == [driven.run, ended.run]
        code, errors = server.stop()
        assert code == 0, errors


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_what_is_under_way_end_and_answers_it(tmp_path: Path, name: signal.Signals) -> None:
    with (
        modelling() as (model, free),
        served(tmp_path, "--model-urls", "--model-host", "127.0.0.1", "--grace", "20s") as one,
    ):
        agent = one.agent(model.handle)
        with calling(one, agent) as found:
            one.popen.send_signal(name)
            soon(one.stopping)
            free.set()
            _, errors = one.popen.communicate(timeout=30)
        assert one.popen.returncode == 0, errors
        assert found[0].status_code == 200
        assert "Found" in found[0].text


def test_while_it_stops_new_work_is_refused_with_503_and_what_is_cut_goes_on_after_a_restart(tmp_path: Path) -> None:
    with modelling() as (model, free):
        with served(tmp_path, "--model-urls", "--model-host", "127.0.0.1", "--grace", "0.6s") as one:
            agent = one.agent(model.handle)
            run = one.later(agent)
            with calling(one, one.agent(model.handle)) as found:
                os.kill(one.popen.pid, signal.SIGTERM)
                soon(one.stopping)
                refused = one.say(agent)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
                assert one.client.get("/healthz").status_code == 200
            assert one.popen.wait(20) == 0
            assert found[0].status_code == 503
        (book,) = tmp_path.rglob("letta.db")  # what it knew is lost, and has to be read off the journal
        book.unlink()
        free.set()
        with served(
            tmp_path, "--model-urls", "--model-host", "127.0.0.1"
        ) as again:  # from the first moment on it knows the run
            soon(lambda: again.client.get(f"/v1/runs/{run}").json()["status"] == "completed")


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        modelling() as (model, _),
        served(tmp_path, "--model-urls", "--model-host", "127.0.0.1", "--grace", "60s") as one,
    ):
        agent = one.agent(model.handle)
        with calling(one, agent) as found:
            os.kill(one.popen.pid, signal.SIGTERM)
            soon(one.stopping)
            assert one.popen.poll() is None
            began = time.monotonic()
            code, errors = one.stop()
            assert time.monotonic() - began < 15
        assert code == 0, errors
        assert found[0].status_code == 503


def test_when_the_disk_is_full_runs_wait_and_new_ones_are_told_and_nothing_is_lost(tmp_path: Path) -> None:
    with modelling() as (model, free), served(tmp_path, "--model-urls", "--model-host", "127.0.0.1") as one:
        agent = one.agent(model.handle)
        look = psutil.Process(one.popen.pid)
        run = one.later(agent)
        soon(lambda: model.questions)
        usual = look.rlimit(psutil.RLIMIT_FSIZE)
        look.rlimit(psutil.RLIMIT_FSIZE, (1, usual[1]))  # no file may grow any more
        refused = one.say(one.client.get("/v1/agents").json()[0]["id"])
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        free.set()
        soon(lambda: (found := one.client.get("/readyz")).status_code == 503 and "store" in found.text)
        time.sleep(0.3)  # what the model said has come by now, and cannot be written
        assert one.client.get(f"/v1/runs/{run}").json()["status"] in ("created", "running")
        look.rlimit(psutil.RLIMIT_FSIZE, usual)
        soon(lambda: one.client.get(f"/v1/runs/{run}").json()["status"] == "completed")
        soon(lambda: one.client.get("/readyz").status_code == 200)
        assert one.say(agent).status_code == 200
