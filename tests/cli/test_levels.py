"""Teams in teams on the command line: exit codes, what is shown and exported of every level, and Ctrl-C."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.commands import Underway, chargehand
from tests.config.files import write

TOOLS = '''
"""Tools of the inner team."""
import asyncio
import os
from pathlib import Path


def stock(product: str) -> int:
    """How many of a product are in stock: anvils or tongs."""
    return {"anvils": 12, "tongs": 31}[product]


def orders(product: str) -> int:
    """How many of a product are in stock at suppliers: anvils or tongs."""
    raise RuntimeError("the book of orders is lost")


async def wait(product: str) -> int:
    """How many of a product are in stock in the yard: anvils or tongs."""
    process = await asyncio.create_subprocess_exec("sleep", "60")
    Path(os.environ["STARTED"]).write_text(str(process.pid))
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return 1
'''
BOTTOM = """\
version: 1
name: cellar
description: Knows what is in stock.
policy: {retry: {attempts: 1}, refine: false}
supervisor: {strategy: broadcast}
workers:
  keeper: {description: Counts stock., tools: [stock]}
  buyer: {description: Counts orders., tools: [orders]}
tools:
  stock: {python: "tools:stock"}
  orders: {python: "tools:orders"}
  wait: {python: "tools:wait"}
"""
ABOVE = """\
version: 1
name: NAME
supervisor: {strategy: broadcast}
workers: {BELOW: {team: ../BELOW}}
"""
ASKED = "How many anvils are in stock?"


def teams(root: Path, bottom: str = BOTTOM) -> Path:
    """A house above an office above a cellar."""
    write(root / "cellar", bottom)
    write(root / "cellar", TOOLS, "tools.py")
    for name, below in (("office", "cellar"), ("house", "office")):
        write(root / name, ABOVE.replace("NAME", name).replace("BELOW", below))
    return root / "house"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three teams, of which the innermost found out only a part, and what came of a run."""
    folder = teams(tmp_path_factory.mktemp("levels"))
    done = chargehand(folder, "run", ASKED, "--run", "r")
    assert done.returncode == 3, done.stdout + done.stderr
    (folder / "told.txt").write_text(done.stdout + done.stderr)
    return folder


def test_a_gap_on_the_lowest_level_is_told_and_gives_exit_code_3(house: Path) -> None:
    told = (house / "told.txt").read_text()
    assert "ending: partial (gaps)" in told
    assert "gaps: 1" in told
    assert "without a part of office > cellar: t2 in r/" in told
    assert "the book of orders is lost" in told
    assert "once more:" in told
    quiet = chargehand(house, "run", ASKED, "--quiet")
    assert quiet.returncode == 3
    assert "gap: t1 without a part of office > cellar" in quiet.stderr


def test_as_a_document_a_gap_says_worker_run_and_task(house: Path) -> None:
    done = chargehand(house, "run", ASKED, "--json")
    assert done.returncode == 3
    told = json.loads(done.stdout)
    (gap,) = told["gaps"]
    assert told["ending"] == "partial"
    assert (gap["task"], gap["worker"], gap["inner"]) == ("t1", "office > cellar", "t2")
    assert gap["run"].count("/") == 8


def test_runs_are_listed_as_what_they_are_on_all_levels(house: Path) -> None:
    listed = json.loads(chargehand(house, "runs", "--json").stdout)
    mine = {one["run"]: one["state"] for one in listed if one["run"].split("/")[0] == "r"}
    assert list(mine.values()) == ["partial"] * 3


def test_a_run_is_shown_with_the_tree_of_its_levels_and_what_each_cost(house: Path) -> None:
    shown = chargehand(house, "runs", "show", "r").stdout
    lines = shown.partition("levels:\n")[2].splitlines()[:3]
    assert lines[0].startswith("r: partial, 1 task")
    assert lines[1].startswith("└── t1 office in r/t1/1/1/")
    assert lines[2].startswith("    └── t1 cellar in r/t1/1/1/")
    costs = [int(line.partition("cost: ")[2].split(" token")[0].replace(",", "")) for line in lines]
    assert costs == sorted(costs, reverse=True)
    assert "ending: partial (gaps)" in shown


def test_the_export_holds_the_runs_inside_under_their_task(house: Path) -> None:
    told = json.loads(chargehand(house, "runs", "export", "r").stdout)
    (office,) = told["tasks"][0]["attempts"][0]["runs"]
    (cellar,) = office["tasks"][0]["attempts"][0]["runs"]
    assert [one["worker"] for one in cellar["tasks"]] == ["keeper", "buyer"]
    assert [one["name"] for one in cellar["tasks"][0]["attempts"][0]["steps"]] == ["model", "stock", "model"]


def test_ctrl_c_stops_every_level_at_once_and_one_cancel_ends_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "pid.txt"
    monkeypatch.setenv("STARTED", str(started))
    folder = teams(tmp_path, BOTTOM.replace("tools: [orders]", "tools: [wait]"))
    under_way = Underway(folder, "run", ASKED, "--run", "r")
    try:
        for _ in range(1000):
            if started.exists() and started.read_text():
                break
            time.sleep(0.02)
        pid = int(started.read_text())
        before = time.monotonic()
        under_way.interrupt()
        assert under_way.end() == 130
        assert time.monotonic() - before < 10, "it waited for what was under way"
    finally:
        if under_way.process.poll() is None:
            under_way.process.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    listed = json.loads(chargehand(folder, "runs", "--json").stdout)
    assert [run["state"] for run in listed] == ["interrupted"] * 3
    assert chargehand(folder, "runs", "cancel", "r").returncode == 0
    listed = json.loads(chargehand(folder, "runs", "--json").stdout)
    assert [run["state"] for run in listed] == ["cancelled"] * 3


def test_too_little_money_inside_gives_the_exit_code_of_a_budget(tmp_path: Path) -> None:
    folder = teams(tmp_path, BOTTOM.replace("description: Knows", "budget: {calls: 2}\ndescription: Knows"))
    done = chargehand(folder, "run", ASKED)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "(budget)" in done.stdout + done.stderr
