"""Datasets: what is read, what a case is about, and what is wrong with a file, by line."""

from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.evals.cases import CaseNumber, find_datasets, kind_of, read_dataset
from tests.evals.samples import written

WHOLE = """\
name: all kinds
judge: demo
gate: {accuracy: 0.5}
cases:
  - {request: Pay the bill, worker: billing}
  - {request: What is the weather, worker: null}
  - {request: How many tongs are there, worker: keeper, expect: {numbers: 31}}
  - {request: How many tongs are there, expect: {numbers: [{value: 31, within: 1}], contains: tongs}}
  - {request: Count and draw, plan: {workers: [a, b], edges: [[a, b]], width: 2}}
  - {request: Report the harvest, source: 12 apples, right: There are 12 apples}
"""


def test_what_a_case_holds_says_what_it_is_about(tmp_path: Path) -> None:
    found = written(tmp_path, "all.yaml", WHOLE)
    assert [kind_of(one) for one in found.cases] == ["routing", "routing", "worker", "run", "plan", "verifier"]
    assert (found.name, found.judge, found.gate) == ("all kinds", "demo", {"accuracy": 0.5})
    assert found.cases[1].labels == ()
    assert found.cases[0].labels == ("billing",)
    expect = found.cases[3].expect
    assert expect is not None
    assert expect.numbers == (CaseNumber(31, within=1),)


def test_a_file_may_say_what_its_cases_are_about(tmp_path: Path) -> None:
    text = "kind: verifier\ncases:\n  - {request: a, worker: x, right: y}\n  - {request: b, kind: run}\n"
    assert [one.kind for one in written(tmp_path, "a.yaml", text).cases] == ["verifier", "run"]


def test_json_lines_are_cases_and_remarks_are_not(tmp_path: Path) -> None:
    lines = '# who gets what\n{"request": "a b", "worker": "x"}\n\n{"request": "a b", "worker": null}\n'
    found = written(tmp_path, "routes.jsonl", lines)
    assert [one.name for one in found.cases] == ["a b", "a b (2)"]
    assert [one.labels for one in found.cases] == [("x",), ()]
    assert found.name == "routes"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"request": "x", "worker": "y"}\n{"request":', "line 2: this is not JSON"),
        ("a.jsonl", '{"reqest": "x"}', "line 1: this is not a case"),
        ("a.jsonl", '{"request": ""}', r"\$\.request: must be str of length >= 1"),
        ("a.jsonl", "", "holds no cases"),
        (
            "a.yaml",
            "cases:\n  - request: x\n    kind: routing\n",
            "line 2: a case of routing says which worker",
        ),
        ("a.yaml", "cases:\n  - request: x\n    kind: worker\n    worker: y\n", "nothing is expected of the worker"),
        ("a.yaml", "cases:\n  - request: x\n    kind: verifier\n", "a result that is right"),
        ("a.yaml", "kind: poems\ncases: [{request: x}]\n", "'poems' is not allowed; it must be one of plan, routing"),
        ("a.yaml", "cases: 3\n", r"is no dataset: \$\.cases: must be array"),
        ("a.yaml", "gates: 3\ncases: []\n", "there is no field 'gates'; did you mean 'gate'"),
        ("a.yaml", "gate: {accuracy: high}\ncases: [{request: x}]\n", "gate.*: must be float, not str"),
        ("a.yaml", "cases: [", "line"),
        ("a.csv", "x", "is no dataset"),
    ],
)
def test_what_is_wrong_with_a_dataset_is_said(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        written(tmp_path, name, text)


def test_the_datasets_of_a_team_lie_beside_its_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="holds no datasets"):
        find_datasets(tmp_path / "team.yaml")
    (tmp_path / "evals").mkdir()
    written(tmp_path / "evals", "b.jsonl", '{"request": "x"}')
    written(tmp_path / "evals", "a.yaml", "cases: [{request: x}]")
    (tmp_path / "evals" / "graders.py").touch()
    assert [one.name for one in find_datasets(tmp_path / "team.yaml")] == ["a.yaml", "b.jsonl"]


def test_a_file_that_is_not_there_or_not_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_dataset(tmp_path / "none.yaml")
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="not text in UTF-8"):
        read_dataset(tmp_path / "bad.jsonl")
