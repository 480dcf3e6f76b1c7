"""What becomes of scores: gates, comparisons, pages, JUnit files. Hostile words stay words."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from chargehand.errors import Invalid
from chargehand.evals import report as report_module
from chargehand.evals.cases import Case, Expect
from chargehand.evals.measures import compare_with_baseline, metrics_of
from chargehand.evals.report import EvalReport, ReportTable, Score, Section, read_report, render_junit, render_markdown
from chargehand.evals.run import evaluate
from tests.evals.samples import dataset, desk, store

TONGS = Case("How many tongs are in stock?", name="tongs", expect=Expect(numbers=31))
WRONG = Case("How many anvils are in stock?", name="anvils", expect=Expect(numbers=13))
EVIL = '<script>alert("x")</script> & \x00\x1b[31m \ud800'


def scores(passed: str, seconds: float = 1.0) -> tuple[Score, ...]:
    return tuple(Score(f"c{at}", "run", one == "+", seconds=seconds, usd=1e-05) for at, one in enumerate(passed))


def changed(before: str, now: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    old = EvalReport("t", (Section("d", "run", scores(before)),))
    first = compare_with_baseline(EvalReport("t", (Section("d", "run", scores(now)),)), old).changes[0]
    assert first.measure == "accuracy"
    assert first.low <= first.now - first.before <= first.high
    return first.verdict, first.lost, first.won


async def test_a_gate_that_is_not_reached_does_not_hold() -> None:
    for wanted, held in ((0.5, True), (0.51, False)):
        report = await evaluate([dataset(TONGS, WRONG)], store, gate={"accuracy": wanted})
        assert report.passed is held
        assert report.gates[0].value == 0.5


async def test_less_is_better_where_it_costs_something() -> None:
    report = await evaluate([dataset(TONGS, gate={"seconds": 60, "gaps": 0})], store, gate={"seconds": 0.0})
    assert {one.measure: one.passed for one in report.gates} == {"seconds": False, "gaps": True}


async def test_a_gate_may_be_for_one_kind_of_cases() -> None:
    cases = (TONGS, WRONG, Case("How many tongs are in stock?", worker="keeper"))
    report = await evaluate([dataset(*cases)], store, gate={"accuracy": 1.0, "run.accuracy": 0.5})
    assert report.passed
    assert {one.kind: one.wanted for one in report.gates} == {"run": 0.5, "routing": 1.0}
    with pytest.raises(Invalid, match=r"nothing here measures 'plan\.accuracy'"):
        await evaluate([dataset(*cases)], store, gate={"plan.accuracy": 0.5})


async def test_a_gate_of_a_dataset_is_its_own() -> None:
    two = [dataset(WRONG, gate={"accuracy": 0.0}), dataset(TONGS, name="other", gate={"accuracy": 1.0})]
    report = await evaluate(two, store)
    assert [(one.dataset, one.wanted, one.passed) for one in report.gates] == [
        ("some", 0.0, True),
        ("other", 1.0, True),
    ]


@pytest.mark.parametrize("name", ["acuracy", "caught", "out_of_scope"])
async def test_a_gate_on_what_nobody_measures_is_refused(name: str) -> None:
    cases = (TONGS,) if name != "out_of_scope" else (Case("How many tongs are there?", worker="keeper"),)
    with pytest.raises(Invalid, match=f"nothing here measures '{name}'"):
        await evaluate([dataset(*cases)], store, gate={name: 0.9})
    with pytest.raises(Invalid, match=f"dataset some: nothing here measures '{name}'"):
        await evaluate([dataset(*cases, gate={name: 0.9})], store)


async def test_every_measure_there_is_can_have_a_gate() -> None:
    cases = (
        TONGS,
        Case("Count them", worker="keeper", expect=Expect(numbers=1)),
        Case("My invoice", worker="billing"),
        Case("Refund invoices", worker=None),
        Case("Count apples", right="12", source="12 apples"),
    )
    for part in (await evaluate([dataset(*cases)], desk)).sections:
        assert {one.name for one in part.measures} <= set(metrics_of(part.kind))


def test_a_change_is_one_only_where_chance_does_not_explain_it() -> None:
    assert changed("++++++++++", "++++++++++") == ("no difference shown", (), ())
    assert changed("----------", "++++++++++")[0] == "better"
    assert changed("++++++++++", "---------+")[0] == "worse"
    assert changed("+++++-----", "++++-+----") == ("no difference shown", ("c4",), ("c5",))
    assert changed("---", "+++")[0] == "no difference shown"  # three cases are too few to say
    assert changed("++++++", "---+++")[0] == "no difference shown"  # one in four times by chance alone
    assert changed("+" * 20, "-" * 5 + "+" * 15)[0] == "no difference shown"
    assert changed("+" * 20, "-" * 6 + "+" * 14)[0] == "worse"


def test_a_case_that_asks_for_something_else_is_not_compared() -> None:
    old = EvalReport("t", (Section("d", "run", (Score("a", "run", passed=True, request="How many tongs?"),)),))
    now = Section("d", "run", (Score("a", "run", passed=False, request="How many anvils?"),))
    report = compare_with_baseline(EvalReport("t", (now,)), old)
    assert report.changes == ()
    assert "0 of 1 cases are compared" in report.warnings[0]
    other = Section("e", "run", (Score("a", "run", passed=True),))
    assert compare_with_baseline(EvalReport("u", (other,)), old).warnings == (
        "the baseline is of team t, not u",
        "e run is not in the baseline",
        "d run of the baseline was not tried",
    )


def test_cost_and_time_are_compared_over_the_same_cases() -> None:
    old = EvalReport("t", (Section("d", "run", scores("++++++++", seconds=3.0)),))
    new = Section("d", "run", (*scores("++++++++", seconds=1.0), Score("new", "run", passed=False, seconds=99)))
    found = {one.measure: one for one in compare_with_baseline(EvalReport("t", (new,)), old).changes}
    assert (found["seconds"].verdict, found["seconds"].now, found["seconds"].count) == ("better", 1.0, 8)
    assert found["usd"].verdict == "no difference shown"


async def test_a_case_that_was_lost_can_close_a_gate() -> None:
    before = await evaluate([dataset(TONGS)], store)
    lost = structs.replace(TONGS, expect=Expect(numbers=13))
    now = await evaluate([dataset(lost)], store, baseline=before, gate={"regressions": 0})
    assert not now.passed
    assert (now.gates[0].value, now.gates[0].why) == (1.0, "")
    again = await evaluate([dataset(TONGS)], store, baseline=before, gate={"regressions": 0})
    assert again.passed


def test_what_is_no_report_cannot_be_compared_with(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(Invalid, match="is no report"):
        read_report(tmp_path / "x.json")
    with pytest.raises(Invalid, match="cannot be read"):
        read_report(tmp_path / "y.json")


def test_an_endless_report_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "MAX_REPORT_BYTES", 1_000_000)
    with pytest.raises(Invalid, match="larger than 1,000,000 bytes"):
        read_report(Path("/dev/zero"))


def test_a_report_may_be_large(tmp_path: Path) -> None:
    many = tuple(Score(f"c{at}", "run", passed=True, got="x" * 2000) for at in range(1000))
    report = EvalReport("t", (Section("d", "run", many),))
    (tmp_path / "x.json").write_bytes(msgspec.json.encode(report))
    assert read_report(tmp_path / "x.json") == report


async def test_cases_without_names_are_told_apart() -> None:
    cases = (Case("How many tongs are in stock?"), Case("How many tongs are in stock?"))
    report = await evaluate([dataset(*cases)], store)
    assert [one.case for one in report.sections[0].scores] == [cases[0].request, f"{cases[0].request} (2)"]


async def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = await evaluate([dataset(TONGS, WRONG)], store, gate={"accuracy": 0.9})
    (tmp_path / "x.json").write_bytes(msgspec.json.encode(report))
    assert read_report(tmp_path / "x.json") == report


async def test_two_evaluations_of_the_same_cases_say_the_same() -> None:
    def told(report: EvalReport) -> list[tuple[str, float, float]]:
        kept = [one for part in report.sections for one in part.measures if not one.name.startswith("seconds")]
        return [(one.name, one.low, one.high) for one in kept]

    cases = (TONGS, WRONG, Case("Count the apples.", source="12 apples, 7 pears", right="12 apples, 7 pears"))
    assert told(await evaluate([dataset(*cases)], store)) == told(await evaluate([dataset(*cases)], store))


def hostile() -> EvalReport:
    score = Score(EVIL, "run", passed=False, why=(EVIL,), request=EVIL, got=EVIL, wanted=EVIL, notes=(EVIL,))
    return EvalReport(
        EVIL, (Section(EVIL, "run", (score, Score("b", "run", passed=False, error=True))),), warnings=(EVIL,)
    )


async def test_junit_has_a_suite_a_part_and_a_test_a_case() -> None:
    report = await evaluate([dataset(TONGS, WRONG)], store, gate={"accuracy": 0.9})
    suites = ElementTree.fromstring(render_junit(report))
    first, gates = suites.findall("testsuite")
    assert (first.get("name"), first.get("tests"), first.get("failures")) == ("some.run", "2", "1")
    assert [case.get("name") for case in first] == ["tongs", "anvils"]
    assert [failure.get("message") for failure in first.iter("failure")] == ["there is no 13 in it"]
    assert (gates.get("failures"), gates.get("tests")) == ("1", "1")


def test_junit_can_be_read_whatever_was_said() -> None:
    (suite,) = ElementTree.fromstring(render_junit(hostile()).encode("utf-8"))
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert "<script>" in (suite[0].get("name") or "")


async def test_markdown_has_gates_measures_and_what_failed() -> None:
    report = await evaluate([dataset(TONGS, WRONG)], store, gate={"accuracy": 0.9})
    lines = render_markdown(report).splitlines()
    assert lines[0] == "# Evaluation of store"
    assert "- some run: accuracy 50.0% >= 0.9: NOT passed" in lines
    assert any(line.startswith("| accuracy | 50.0% | ") for line in lines)
    assert "- anvils: there is no 13 in it" in lines


def test_markdown_shows_hostile_text_as_text() -> None:
    text = render_markdown(hostile())
    assert "<script" not in text
    assert "&lt;script>" in text
    assert "\x1b" not in text
    cell = Section("d", "run", (), tables=(ReportTable("t", ("a", "b"), (("x | y", "[z](http://x)\n# head"),)),))
    assert "| x \\| y | \\[z\\](http://x) # head |" in render_markdown(EvalReport("t", (cell,)))
