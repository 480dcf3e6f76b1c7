"""Cases that would always pass, or never, are refused with their line before anything is tried."""

from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.evals.cases import Case, CaseNumber, Expect, read_dataset
from chargehand.evals.run import evaluate
from tests.evals.samples import dataset, store, written


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("worker: x, ending: partial", "`ending` is not read in a case of the kind routing"),
        ("kind: routing, worker: x, expect: {exact: y}", "`expect` is not read"),
        ("kind: run, worker: x", "`worker` is not read in a case of the kind run"),
        ("plan: {width: 1}, expect: {exact: y}", "`expect` is not read in a case of the kind plan"),
        ("expect: {contains: ''}", r"\$\.expect\.contains: must be str of length >= 1"),
        ("expect: {excludes: [a, '']}", r"\$\.expect\.excludes\[1\]: "),
        ("expect: {matches: '['}", "is no regular expression"),
        ("expect: {schema: {type: sting}}", "type is 'sting'"),
        ("expect: {schema: {properties: {a: {patern: x}}}}", "'patern' of a schema is no keyword"),
        ("expect: {schema: {allOf: [{least: 3}]}}", "'least' of a schema is no keyword"),
        ("expect: {schema: {items: {$ref: '#/$defs/none'}}}", "refers to '#/\\$defs/none', which is not in it"),
        ("expect: {numbers: {value: 3, within: -1}}", r"\$\.expect\.numbers\.within: must be float >= 0.0"),
        ("coverage: 90", r"\$\.coverage: must be float <= 1.0"),
        ("max_usd: -1", r"\$\.max_usd: must be float >= 0.0"),
        ("worker: x, expect: {}", "nothing is expected of the worker"),
        ("right: a, wrong: {right: b}", "the wrong result 'right' is called right"),
        ("right: a, wrong: {number: a}", "'number' is called right, or is one of the right ones"),
        ("right: [a, '']", r"\$\.right\[1\]: "),
    ],
)
def test_a_case_that_says_nothing_is_refused_with_its_line(tmp_path: Path, case: str, words: str) -> None:
    with pytest.raises(Invalid, match=f"line 2: .*{words}"):
        written(tmp_path, "a.yaml", f"cases:\n  - {{request: q, {case}}}\n")


async def test_cases_from_python_are_looked_at_too() -> None:
    for expect in (Expect(numbers=float("nan")), Expect(numbers=CaseNumber(3, percent=float("inf")))):
        with pytest.raises(Invalid, match=r"dataset some, case 'q': this is not a case: .*must be float"):
            await evaluate([dataset(Case("q", expect=expect))], store)


def test_lines_of_json_end_only_where_lines_of_json_end(tmp_path: Path) -> None:
    text = '\ufeff{"request": "a\u2028b\x85c", "worker": "x"}\r\n{"request": "d", "worker": null}\r\n'
    found = written(tmp_path, "A.JSONL", text)
    assert [one.name for one in found.cases] == ["a b c", "d"]
    (tmp_path / "a.jsonl").write_text(text + "nonsense\n")
    with pytest.raises(Invalid, match="line 3: this is not JSON"):
        read_dataset(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text("[" * 100_000)
    with pytest.raises(Invalid, match="line 1: this is not JSON"):
        read_dataset(tmp_path / "a.jsonl")
