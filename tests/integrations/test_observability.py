"""The Grafana board and the alert rules: they name only what `/metrics` exports. Traces of HTTP callers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from chargehand.store_url import postgres_url
from tests.server.api import GOAL, garden

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
_METRIC = re.compile(r"chargehand_[a-z_]+")


def board_expressions() -> Iterator[str]:
    board = json.loads((FOLDER / "grafana-board.json").read_text())
    for panel in board["panels"]:
        assert panel["title"]
        for target in panel["targets"]:
            yield target["expr"]


def alert_expressions() -> Iterator[str]:
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            yield rule["expr"]


def exported(text: str) -> set[str]:
    """The names of all samples that the families of a page of metrics may have."""
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            names.add(name)
            if kind == "histogram":
                names.update(f"{name}_{part}" for part in ("bucket", "sum", "count"))
    return names


def test_every_metric_of_the_board_and_the_alerts_is_exported(tmp_path: Path, postgres_store: str) -> None:
    with garden(tmp_path, store=postgres_url(postgres_store)) as home:
        home.wait(home.begin())
        names = exported(home.client.get("/metrics").text)
    expressions = [*board_expressions(), *alert_expressions()]
    used = {name for expression in expressions for name in _METRIC.findall(expression)}
    assert len(used) > 12
    assert used <= names, used - names
    stuck = " ".join(alert_expressions())
    for metric in ("run_idle_seconds", "breaker_open", "budget_spent_ratio", "queue_age_seconds", "backlog_seconds"):
        assert f"chargehand_{metric}" in stuck


def test_a_run_of_an_http_caller_belongs_to_its_trace(tmp_path: Path) -> None:
    header = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with garden(tmp_path) as home:
        replies = [
            home.client.post("/api/runs", json={"goal": GOAL, "team": "garden"}, headers={"traceparent": sent})
            for sent in (header, "nonsense")
        ]
        for reply in replies:
            home.wait(reply.json()["run"])
        listed: dict[str, Any] = home.client.get("/api/runs").json()
    labels = {run["run"]: run["labels"] for run in listed["runs"]}
    assert [labels[reply.json()["run"]] for reply in replies] == [{"traceparent": header}, {}]
