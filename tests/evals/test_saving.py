"""Cases from runs: the same again passes, files keep what stands in them, and nothing is saved twice."""

import os
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.engine.policy import Policy
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import Case, read_dataset
from chargehand.evals.run import evaluate
from chargehand.evals.saving import append_case, case_of_run
from tests.evals.samples import Till, store

REQUEST = "How many anvils are in stock? How many hammers are in stock?"


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


async def saved() -> Case:
    result = await store().run(REQUEST, run="may")
    return case_of_run("may", result.entries)


@pytest.mark.parametrize("name", ["cases.yaml", "deep/er/cases.jsonl"])
async def test_what_a_run_did_passes_when_it_is_done_again(tmp_path: Path, name: str) -> None:
    case = await saved()
    assert (case.request, case.name, case.ending, case.workers) == (REQUEST, "may", "partial", ("keeper",))
    assert append_case(case, tmp_path / name) == 1
    found = read_dataset(tmp_path / name)
    assert found.cases[0].expect == case.expect
    assert found.cases[0].answer == case.answer
    report = await evaluate([found], store)
    assert report.sections[0].scores[0].passed, report.sections[0].scores[0].why


async def test_what_stands_in_a_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    before = "# ours\nname: mine\ngate: {accuracy: 0.5}\ncases:\n  - request: one  # the first\n    worker: x"
    file.write_text(before)
    assert append_case(await saved(), file) == 2
    assert file.read_text().startswith(before + "\n")
    assert [one.name for one in read_dataset(file).cases] == ["one", "may"]
    with pytest.raises(Refused, match="has a case 'may' already"):
        append_case(await saved(), file)
    assert append_case(structs.replace(await saved(), name="june"), file) == 3


@pytest.mark.parametrize("name", ["cases.yaml", "cases.jsonl"])
@pytest.mark.parametrize("start", ["", "\n", "# ours\n\n"])
async def test_a_file_without_a_case_gets_its_first(tmp_path: Path, name: str, start: str) -> None:
    file = tmp_path / name
    file.write_text(start)
    assert append_case(await saved(), file) == 1
    assert file.read_text().startswith(start)
    assert [case.name for case in read_dataset(file).cases] == ["may"]


@pytest.mark.parametrize("start", ["cases:\n- request: one\n", "cases:\r\n    - request: one\r\n"])
async def test_a_case_stands_as_far_in_as_the_others(tmp_path: Path, start: str) -> None:
    file = tmp_path / "cases.yaml"
    file.write_bytes(start.encode())
    assert append_case(await saved(), file) == 2
    assert file.read_bytes().startswith(start.encode())


async def test_a_run_that_waits_for_leave_is_a_case_and_passes_again(tmp_path: Path) -> None:
    till = Till(approval=True)
    result = await till.team().bounded(policy=Policy()).run("Refund order A17.", run="pay")
    case = case_of_run("pay", result.entries)
    assert (case.ending, case.workers) == ("needs_input", ("cashier",))
    append_case(case, tmp_path / "a.yaml")
    report = await evaluate([read_dataset(tmp_path / "a.yaml")], till.team)
    assert report.sections[0].scores[0].passed, report.sections[0].scores[0].why
    assert till.paid == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "cases:\n  - request: one\nname: last\n"),
        ("a.yaml", "cases: [{request: one}]\n"),
        ("a.csv", ""),
        ("a.yaml", "cases:\n  - request: one\njudge: |\n  demo\n"),
    ],
)
async def test_a_file_that_cannot_be_added_to_is_left_alone(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(Invalid, match=name):
        append_case(await saved(), file)
    assert file.read_text() == text
    assert names(tmp_path) == [name]
    file.write_bytes(b"cases:\n- request: \xff\n")
    with pytest.raises(Invalid):
        append_case(await saved(), file)


async def test_a_run_that_is_under_way_is_no_case() -> None:
    result = await store().run(REQUEST, run="may")
    with pytest.raises(Refused, match="has not come to an end"):
        case_of_run("may", result.entries[:-1])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cases.yaml")
    with pytest.raises(Invalid, match="is no regular file"):
        append_case(Case("What is in stock?"), tmp_path / "cases.yaml")
