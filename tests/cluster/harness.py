"""A cluster of real processes: PostgreSQL, Temporal, servers, workers, and a model that writes down every call."""

import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx

from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.driver import Row, connect
from chargehand.store_url import postgres_url
from tests.cli.forked import Forked, has_fork_server
from tests.cluster.judge import Verdict, judge
from tests.cluster.outside import Call, CallLog
from tests.cluster.proxy import TcpProxy, tcp_proxy
from tests.postgres import PostgresServer, postgres_server
from tests.temporal import TemporalServer, free_port, temporal_server

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds until something that must happen counts as missing: the machine may be busy."""
TOKEN = f"ch_cluster_{secrets.token_hex(16)}"
_CHARGEHAND = (sys.executable, "-m", "chargehand")
_EXECUTE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: SIGKILL when the tests end, however they end
os.execv(sys.argv[1], sys.argv[1:])
"""
_TEAM = """
version: 1
name: errands
defaults:
  model: openai+http://127.0.0.1:{port}/${{PROCESS_NAME}}/v1#work-{milliseconds}-{tool_calls}
timeout: 15m
policy:
  limits: {{width: 200, max_tasks: 1000, fan_out: 1000}}
supervisor: {{combine: none}}
workers:
  runner: {{description: Runs errands., tools: [note]{queue}}}
tools:
  note: {{python: "tools.py:note", effect: idempotent}}
"""
_TOOLS = '''
import os, re, time
from pathlib import Path
from tests.cli.forked import Forked, has_fork_server
from tests.cluster.judge import Verdict, judge
from tests.cluster.outside import Call, CallLog

LOG = CallLog(Path({log!r}))
SECONDS = {seconds}
PROCESS = os.environ["PROCESS_NAME"]


def note(about: str) -> str:
    """Note what an errand is about."""
    errand, part, turn = re.findall(r"errand (\\S+) part p(\\d+) turn t(\\d+)", about)[0]
    for phase in ("begin", "end"):
        LOG.write(Call("tool", errand, int(part), int(turn), phase, time.time(), PROCESS))
        time.sleep(SECONDS if phase == "begin" else 0)
    return about
'''
_DRIVERS = """
    SELECT runs.run, owners.pid FROM chargehand.runs JOIN chargehand.owners ON owners.number = runs.owner
"""
Found = TypeVar("Found")


def wait_for(what: str, look: Callable[[], Found | None], seconds: float = PATIENCE) -> Found:
    """What `look` finds, asked again and again; AssertionError when it finds nothing in time."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)


def _start_process(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes] | Forked":
    """Start a command that ends with the tests, by a fork where that is the same."""
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        if has_fork_server() and (*command[:3],) == _CHARGEHAND:
            streams = (nothing.fileno(), file.fileno(), file.fileno())
            return Forked(command[3:], folder=ROOT, environment=environment, streams=streams)
        return subprocess.Popen(
            [sys.executable, "-c", _EXECUTE, *command],
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=environment,
            cwd=ROOT,
        )


class Process:
    """A process of the cluster. `port` is that of its HTTP."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, port: int) -> None:
        self.name = name
        self.log = log
        self.port = port
        self.is_frozen = False
        self.returns: list[float] = []
        """When it was let go on after it had been frozen, or its network was back."""
        self._command = command
        self._environment = environment
        self._process = _start_process(command, {**os.environ, **environment}, log)
        self.pid = self._process.pid

    def start_again(self) -> "Process":
        """Another process with the same command."""
        process = Process(self.name, self._command, self._environment, self.log, self.port)
        process.returns = self.returns
        return process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Back when it answers."""

        def look() -> bool:
            assert self.is_alive, f"{self.name} ended:\n{self.text()[-3000:]}"
            return self.is_ready()

        wait_for(f"{self.name} is ready", look)

    def is_ready(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=5).is_success
        return False

    def send(self, what: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, what)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def terminate(self) -> float:
        """SIGTERM; how many seconds it took to end."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        self._process.wait(PATIENCE)
        return time.monotonic() - began

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)
        self.is_frozen = True

    def note_return(self) -> None:
        """From now on it goes on, and does not know yet that another has taken its runs."""
        self.returns.append(time.time())

    def thaw(self) -> None:
        if self.is_frozen:
            self.note_return()
        self.send(signal.SIGCONT)
        self.is_frozen = False


class Cluster:
    """Servers and workers on one PostgreSQL and one Temporal. `store` and `engine` are what processes are given."""

    def __init__(
        self, folder: Path, postgres: PostgresServer, store: str, temporal: TemporalServer, model_port: int
    ) -> None:
        self.folder = folder
        self.postgres = postgres
        self.temporal = temporal
        self.store = store
        self.database = store.partition("@/")[2].partition("?")[0]
        self.superuser = postgres.url(self.database, user="postgres")
        self.engine = temporal.url
        self.heartbeat = 2
        """Seconds after which a process that is silent counts as dead."""
        self.log = CallLog(folder / "calls.jsonl")
        self.servers: list[Process] = []
        self.workers: list[Process] = []
        self.acknowledged: dict[str, int] = {}
        """Runs that a server accepted, with the number of their tasks."""
        self.model_port = model_port
        self._count = 0
        self._errands = itertools.count(1)

    def write_team(
        self, *, milliseconds: int = 200, tool_calls: int = 2, tool_seconds: float = 0.05, queue: str = ""
    ) -> Path:
        """The team file: how long a reply takes, how many tool calls precede the last one, where its worker works."""
        folder = self.folder / "team"
        folder.mkdir(exist_ok=True)
        more = f", queue: {queue}" if queue else ""
        team = _TEAM.format(port=self.model_port, milliseconds=milliseconds, tool_calls=tool_calls, queue=more)
        (folder / "team.yaml").write_text(team)
        log = str(self.folder / "calls.jsonl")
        (folder / "tools.py").write_text(_TOOLS.format(log=log, seconds=tool_seconds))
        return folder

    def start_server(self, *options: str, store: str = "", engine: str = "") -> Process:
        process = self._start("serve", options, store or self.store, engine or self.engine)
        self.servers.append(process)
        return process

    def start_worker(self, *options: str, store: str = "", engine: str = "", prefix: Sequence[str] = ()) -> Process:
        """`prefix` is what its command begins with."""
        process = self._start("worker", options, store or self.store, engine or self.engine, prefix)
        self.workers.append(process)
        return process

    def _start(self, verb: str, options: Sequence[str], store: str, engine: str, prefix: Sequence[str] = ()) -> Process:
        self._count += 1
        name = f"{verb}{self._count}"
        port = free_port()
        command = [*prefix, *_CHARGEHAND, verb, "--team", str(self.folder / "team")]
        command += ["--store", store]
        command += ["--port", str(port), "--data", str(self.folder / name), *options]
        if engine != "local":
            command += ["--engine", engine, "--heartbeat", f"{self.heartbeat}s"]
        environment = {"CHARGEHAND_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "PROCESS_NAME": name}
        return Process(name, command, environment, self.folder / f"{name}.log", port)

    # --- runs

    def next_errand(self) -> str:
        """A name that no run has."""
        return f"e{next(self._errands)}"

    def begin(self, errand: str, tasks: int, server: Process | None = None) -> str:
        """Start a run of so many tasks that need nothing of each other."""
        plan = {
            "tasks": [
                {"id": f"t{number}", "instruction": f"errand {errand} part p{number}", "worker": "runner"}
                for number in range(tasks)
            ],
            "combine": "none",
        }
        body = {"team": "errands", "goal": f"errand {errand}", "plan": plan}
        run = str(self.call("POST", "/api/runs", body, server=server, headers={"Idempotency-Key": errand})["run"])
        self.acknowledged[run] = tasks
        return run

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        server: Process | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """Call a server, and the next one where it does not answer; the same key begins no second run."""
        sent = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}

        def look() -> dict[str, object] | None:
            for process in [server] if server is not None else self.servers:
                if not process.is_alive or process.is_frozen:
                    continue
                with suppress(httpx.TransportError):
                    reply = httpx.request(method, f"{process.url}{path}", json=body, headers=sent, timeout=20)
                    if reply.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text[:500]}"
                        return reply.json()
            return None

        return wait_for(f"{method} {path}", look)

    def state(self, run: str) -> str:
        summary = self.call("GET", f"/api/runs/{run}?lean=true")["summary"]
        assert isinstance(summary, dict)
        return str(summary["state"])  # pyright: ignore[reportUnknownArgumentType] - any JSON

    def wait_ended(self, run: str, seconds: float = PATIENCE) -> str:
        return wait_for(f"run {run} ends", lambda: self.ending(run), seconds)

    def ending(self, run: str) -> str | None:
        """How a run ended; None while it is open."""
        state = self.state(run)
        return state if state in ("complete", "partial", "failed", "cancelled") else None

    def calls(self) -> list[Call]:
        return self.log.read()

    def wait_calls(self, count: int, phase: str = "begin") -> list[Call]:
        """Back when so many calls have begun (or ended)."""

        def look() -> list[Call] | None:
            found = [call for call in self.calls() if call.phase == phase]
            return found if len(found) >= count else None

        return wait_for(f"{count} calls {phase}", look)

    def calls_until(self, errand: str) -> list[Call]:
        """The calls up to the first one of an errand, which is waited for."""

        def look() -> list[Call] | None:
            calls = self.calls()
            first = next((number for number, call in enumerate(calls) if call.errand == errand), None)
            return None if first is None else calls[: first + 1]

        return wait_for(f"a call of {errand}", look)

    def verdict(self) -> Verdict:
        """What the journal and the log of calls say of all runs so far."""
        returns = {process.name: process.returns for process in (*self.servers, *self.workers)}
        return judge(self.store, self.superuser, self.calls(), self.acknowledged, returns)

    def driver_of(self, run: str) -> Process | None:
        """The process that drives a run, by the store."""
        return self.drivers().get(run)

    def drivers(self) -> dict[str, Process]:
        """The process that drives each run, by the store."""

        async def look() -> list[Row]:
            connection = await connect(postgres_url(self.superuser))
            try:
                return await connection.fetch(_DRIVERS)
            finally:
                connection.terminate()

        processes = {process.pid: process for process in (*self.workers, *self.servers)}
        return {run: processes[pid] for run, pid in client_thread().wait(look()) if pid in processes}

    # --- networks

    @contextmanager
    def store_proxy(self, listening: socket.socket | None = None) -> Generator[tuple[TcpProxy, str]]:
        """A network between some processes and PostgreSQL, and the URL of the store behind it."""
        credentials = self.store.partition("//")[2].partition("@")[0]
        with tcp_proxy(self.postgres.folder / ".s.PGSQL.5432", listening) as proxy:
            yield proxy, f"postgresql://{credentials}@{proxy.address}/{self.database}"

    @contextmanager
    def engine_proxy(self, listening: socket.socket | None = None) -> Generator[tuple[TcpProxy, str]]:
        """A network between some processes and Temporal, and the URL of the engine behind it."""
        with tcp_proxy(("127.0.0.1", self.temporal.port), listening) as proxy:
            yield proxy, f"temporal://{proxy.address}"

    def start(self, servers: int = 1, workers: int = 2) -> None:
        """So many servers and workers, ready."""
        started = [self.start_server() for _ in range(servers)] + [self.start_worker() for _ in range(workers)]
        for process in started:
            process.wait_ready()

    def replace_dead(self) -> None:
        """Start a process for each that has ended, with the same options."""
        for processes in (self.servers, self.workers):
            for number, process in enumerate(processes):
                if not process.is_alive:
                    processes[number] = process.start_again()
        for process in (*self.servers, *self.workers):
            process.wait_ready()

    def stop(self) -> None:
        for process in (*self.servers, *self.workers):
            process.thaw()
            process.kill()


@contextmanager
def cluster(postgres: PostgresServer | None = None, temporal: TemporalServer | None = None) -> Generator[Cluster]:
    """A cluster without servers and workers yet, on a PostgreSQL and a Temporal that are there, or its own ones."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chargehand-cluster-")))
        postgres = postgres or stack.enter_context(postgres_server())
        store = stack.enter_context(postgres.database())
        temporal = temporal or stack.enter_context(temporal_server())
        program = [sys.executable, "-m", "tests.cluster.outside", str(folder / "calls.jsonl")]
        model = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", _EXECUTE, *program], stdout=subprocess.PIPE, cwd=ROOT)
        )
        stack.callback(model.kill)
        assert model.stdout is not None
        made = Cluster(folder, postgres, store, temporal, int(model.stdout.readline()))
        made.write_team()
        stack.callback(made.stop)
        yield made
