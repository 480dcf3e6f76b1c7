"""What results hold besides words is written to files, and what could do harm there is not."""

import csv
from pathlib import Path

import pytest

from chargehand.cli.diagrams import file_name, save_artifacts
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.runtime.trace import TaskTrace, Trace

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="3" height="4"/></svg>'


def a_run(*artifacts: object, name: str = "t1", run: str = "run", answer: object = "fine") -> Trace:
    task = TaskTrace(TaskId(name), "draw it", "ann", result={"text": "see", "artifacts": list(artifacts)})
    return Trace(run, "goal", 0.0, tasks=[task], answer=answer)


def chart(svg: str = SVG) -> dict[str, object]:
    return {"kind": "chart", "title": "A chart", "svg": svg}


TABLE = {"kind": "table", "columns": ["name", "=x"], "rows": [["=1+1", 2], ["plain", -3], ["-4", None], ["é, \n", 1.5]]}


def test_charts_and_tables_are_written_into_the_folder(tmp_path: Path) -> None:
    found = a_run(chart(), TABLE, chart())
    saved = save_artifacts(found, tmp_path / "own")
    assert [path.name for path in saved] == ["t1-1.svg", "t1-2.csv", "t1-3.svg"]
    assert saved[0].read_text() == SVG
    with (tmp_path / "own" / "t1-2.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["name", "'=x"],
            ["'=1+1", "2"],
            ["plain", "-3"],
            ["'-4", ""],
            ["é, \n", "1.5"],
        ]


@pytest.mark.parametrize(
    "body",
    [
        "<script>alert(1)</script>",
        '<rect ONLOAD="x()"/>',
        '<a xlink:href="http://x"/>',
        "<foreignObject/>",
        '<!DOCTYPE svg [<!ENTITY x "y">]>',
        '<image width="1"/>',
    ],
)
def test_a_picture_that_could_do_something_is_not_written(tmp_path: Path, body: str) -> None:
    assert save_artifacts(a_run(chart(f"<svg>{body}</svg>")), tmp_path / "own") == []
    assert list(tmp_path.iterdir()) == []


def test_names_cannot_lead_anywhere_else(tmp_path: Path) -> None:
    (saved,) = save_artifacts(a_run(chart(), name="../../x/y"), tmp_path / "deep" / file_name("../r"))
    assert saved.resolve().is_relative_to(tmp_path / "deep")


@pytest.mark.parametrize("result", [None, 7, "text", [1, 2], {"artifacts": 3}, {"artifacts": [{"kind": "what"}]}])
def test_results_of_other_shapes_hold_nothing_to_save(tmp_path: Path, result: object) -> None:
    found = a_run(answer=None)
    found.tasks[0].result = result
    assert save_artifacts(found, tmp_path / "own") == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=r"cannot be written.*--save"):
        save_artifacts(a_run(chart()), tmp_path / "file" / "own")
