"""`chargehand plan`: findings with codes and places, the tree, the forecast."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import EXAMPLES, chargehand, script, task


def test_a_good_plan_is_drawn_and_forecast(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "plan", "--from", EXAMPLES / "gaps.json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "plan: 5 tasks, merged into one answer"
    assert "    └── T5  analyst" in done.stdout
    assert "needs T4, T3 (optional)" in done.stdout
    assert "critical: T1 → T3 → T5 (1.1 s)" in done.stdout
    assert sorted(one.name for one in tmp_path.iterdir()) == []


def test_a_plan_that_cannot_run_names_every_reason(tmp_path: Path) -> None:
    circle = [task("a", "b"), task("b", "a"), task("c", "zz"), task("d")]
    done = chargehand(tmp_path, "plan", "--from", script(tmp_path, *circle))
    assert done.returncode == 2
    assert "error: tasks[2] (c).after: Task 'c' waits for 'zz', which does not exist." in done.stdout
    assert "[unknown_task]" in done.stdout
    assert "[cycle]" in done.stdout
    assert "\na  ann" in done.stdout  # it has no place in the tree, and is not left out
    assert done.stderr == "chargehand: the plan cannot run: 2 errors\n"


def test_warnings_do_not_stop_a_plan(tmp_path: Path) -> None:
    file = script(tmp_path, {**task("a"), "instruction": "do it"})
    done = chargehand(tmp_path, "plan", "--from", file)
    assert done.returncode == 0
    assert "warning: tasks[0] (a).instruction: Task 'a' is vague." in done.stdout
    assert "[vague_instruction]" in done.stdout


def test_a_bare_plan_comes_from_anywhere_without_a_roster(tmp_path: Path) -> None:
    bare = json.dumps({"tasks": [task("a", worker="zoe"), {**task("b"), "worker": "", "match": {"all": ["x"]}}]})
    done = chargehand(tmp_path, "plan", "--from", "-", given=bare)
    assert done.returncode == 0
    assert "zoe" in done.stdout
    assert "#x" in done.stdout


def test_quorums_and_repetition_are_marked(tmp_path: Path) -> None:
    votes = [{"task": name, "need": "quorum"} for name in "abc"]
    tasks = [task("a"), task("b"), task("c"), task("d", *votes, quorum=2), task("e", for_each="a")]
    done = chargehand(tmp_path, "plan", "--from", script(tmp_path, *tasks))
    assert "needs 2 of (a, b, c)" in done.stdout
    assert "needs each of a" in done.stdout


def test_a_plan_can_be_had_as_json(tmp_path: Path) -> None:
    facts = json.loads(chargehand(tmp_path, "plan", "--from", EXAMPLES / "cascade.json", "--json").stdout)
    assert facts["runs"] is True
    assert facts["forecast"]["critical_path"] == ["shortlist", "quotes", "landed", "memo"]


@pytest.mark.parametrize("count", [61, 5000])
def test_a_long_plan_is_cut_short_on_the_page(tmp_path: Path, count: int) -> None:
    tasks = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, count))]
    limits = {"limits": {"max_tasks": count, "max_depth": count}}
    done = chargehand(tmp_path, "plan", "--from", script(tmp_path, *tasks, policy=limits))
    assert done.returncode == 0
    assert f"… and {count - 60} more" in done.stdout
