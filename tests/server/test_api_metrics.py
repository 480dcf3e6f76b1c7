"""Figures for Prometheus: counted as things happen, under names that nobody outside can multiply."""

import re
from pathlib import Path

import httpx

from chargehand.engine import events as ev
from chargehand.engine.plan import TaskId
from chargehand.runtime.stats import OTHER, Histogram, Stats
from tests.server.api import BOTH, garden, key_for

LINE = re.compile(r"(?:# (?:HELP|TYPE) chargehand_\w+ .+|(chargehand_\w+)(?:\{([^}]*)\})? ([0-9.e+-]+))\Z")


def figures(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        matched = LINE.match(line)
        assert matched, line
        if matched[1]:
            found[f"{matched[1]}{{{matched[2] or ''}}}"] = float(matched[3])
    return found


def test_a_run_is_counted_with_its_tasks_attempts_tokens_and_tools(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        home.wait(home.begin(BOTH))
        home.wait(home.begin())  # what is on disk is counted a moment later: by the end of this one, the first is
        reply = home.client.get("/metrics")
        found = figures(reply.text)
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert found['chargehand_runs_total{ending="complete",team="garden"}'] >= 1
    assert found['chargehand_tasks_total{ending="done",team="garden"}'] >= 2
    assert found['chargehand_attempts_total{ending="succeeded",team="garden"}'] >= 2
    assert found['chargehand_tokens_total{kind="input",model="demo"}'] > 0
    assert found['chargehand_tool_duration_seconds_count{tool="seedling_price"}'] >= 1
    assert found['chargehand_run_duration_seconds_bucket{le="+Inf",team="garden"}'] >= 1
    assert found['chargehand_http_requests_total{api="api",status="201"}'] == 2
    assert found["chargehand_runs_under_way{}"] <= 1
    assert found["chargehand_queue_depth{}"] == 0


def test_a_tenant_sees_its_own_figures_and_calls_without_a_token_are_the_operators(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        home.wait(home.begin())
        other = key_for(tmp_path, "lab")
        assert httpx.get(f"{home.server.url}/metrics").status_code == 401
        assert "garden" not in home.client.get("/metrics", headers=other).text
        assert figures(home.client.get("/metrics").text)['chargehand_http_requests_total{api="index",status="401"}']


def test_no_label_says_which_run_or_task_it_was(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        run = home.begin(BOTH)
        home.wait(run)
        assert run not in home.client.get("/metrics").text
        assert '"t1"' not in home.client.get("/metrics").text


def test_names_beyond_so_many_are_counted_together() -> None:
    stats = Stats(max_names=2)
    for number, worker in enumerate(("a", "b", "c", "a", "d"), 1):
        stats.record("run", [ev.Entry(number, 1.0, ev.AttemptStarted(TaskId(f"t{number}"), 1, worker, 9.0))])
    assert {name: worker.calls for name, worker in stats.calls["worker"].items()} == {"a": 2, "b": 1, OTHER: 2}


def test_a_histogram_counts_a_value_in_the_first_bucket_that_holds_it() -> None:
    times = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        times.add(("x",), seconds)
    assert times.rows["x",] == [2, 1, 1, 7.65, 4]


def test_a_run_that_this_process_did_not_begin_is_counted_all_the_same() -> None:
    stats = Stats()
    stats.record("old", [ev.Entry(9, 5.0, ev.RunResumed(2)), ev.Entry(10, 6.0, ev.RunEnded("complete", "done"))])
    assert dict(stats.runs) == {(OTHER, "complete"): 1}
