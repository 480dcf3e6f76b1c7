"""`chargehand eval --jsonl`: each result as a line of JSON as soon as it is known, and nothing else."""

import json
from pathlib import Path

import pytest

from chargehand.cli.main import main
from chargehand.config.source import TEMPLATES

SHOP = TEMPLATES / "shop"


def test_each_result_is_a_line_with_how_far_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("eval", "--team", str(SHOP), "--kind", "routing", "--jsonl", "-q", "-o", str(tmp_path / "report.json"))
    assert main(words) == 0
    lines = [json.loads(one) for one in capfd.readouterr().out.splitlines()]
    count = len(lines) - 1
    assert count > 1
    assert lines[0] == {"tried": 0, "passed": 0, "cases": count}
    assert [(one["tried"], one["cases"]) for one in lines] == [(number, count) for number in range(count + 1)]
    parts = json.loads((tmp_path / "report.json").read_text())["sections"]
    kept = [score for part in parts for score in part["scores"]]
    told = [one["score"] for one in lines[1:]]
    assert sorted(map(json.dumps, told)) == sorted(map(json.dumps, kept))
    assert {one["dataset"] for one in lines[1:]} == {part["dataset"] for part in parts}
    assert lines[-1]["passed"] == sum(one["passed"] for one in kept)


def test_it_is_lines_or_the_report_and_not_both(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("eval", "--json", "--jsonl"))
    assert ended.value.code == 2
    assert "not allowed with" in capfd.readouterr().err
