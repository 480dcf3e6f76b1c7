"""Graders: each kind passes what is right and says what is wrong with the rest."""

from pathlib import Path

import pytest

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.evals.cases import CaseNumber, Expect
from chargehand.evals.graders import (
    GRADER_TIMEOUT,
    answer_of,
    find_figures,
    grade_answer,
    holds_number,
    judge_rubric,
)
from chargehand.models.testing.scripted import ScriptedModel

RUBRIC = Expect(rubric="It names a source.")
ANSWER = "Revenue in May 2026: **12,223.40 EUR**, a loss of 3.5 % [t1]."


async def wrong_with(expect: Expect, value: object, folder: str = "", seconds: float = GRADER_TIMEOUT) -> list[str]:
    return list((await grade_answer(expect, answer_of(value), folder=folder, seconds=seconds)).problems)


@pytest.mark.parametrize(
    "expect",
    [
        Expect(exact="Revenue in May 2026:  **12,223.40 EUR**, a loss of 3.5 % [t1]."),
        Expect(contains="REVENUE in  may"),
        Expect(any_of=("profit", "revenue")),
        Expect(excludes="profit"),
        Expect(matches=r"\d+ %|3\.5 %"),
        Expect(numbers=12223.4),
        Expect(numbers=(12223.4, -3.5)),
        Expect(numbers=CaseNumber(12000, percent=2)),
        Expect(numbers=CaseNumber(12223, within=0.5)),
    ],
)
async def test_what_is_right_passes(expect: Expect) -> None:
    assert await wrong_with(expect, ANSWER) == []


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (Expect(exact="12,223.40"), "it is not '12,223.40'"),
        (Expect(contains=("revenue", "June")), "'June' is not in it"),
        (Expect(any_of=("profit", "June")), "none of these"),
        (Expect(excludes="revenue"), "must not be"),
        (Expect(matches="^Profit"), "Profit"),
        (Expect(numbers=12223), "there is no 12,223 in it"),
        (Expect(numbers=CaseNumber(12000, percent=1)), "there is no 12,000 within 1 %"),
    ],
)
async def test_what_is_wrong_is_said(expect: Expect, words: str) -> None:
    (said,) = await wrong_with(expect, ANSWER)
    assert words in said


async def test_only_numbers_that_are_stated_count() -> None:
    text = "There are twelve boats [t3], by `SELECT x LIMIT 5`, on 7 May 2026; berth B9 is `40`."
    for wanted, there in ((12, True), (40, True), (3, False), (5, False), (7, False), (9, False), (2026, False)):
        assert (await wrong_with(Expect(numbers=wanted), text) == []) is there, wanted


async def test_a_schema_is_held_against_the_json_of_an_answer() -> None:
    wanted = Expect(schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert await wrong_with(wanted, {"n": 3}) == []
    assert await wrong_with(wanted, '{"n": 3}') == []
    assert len(await wrong_with(wanted, {"n": "three"})) == 1


async def test_a_function_beside_the_cases_grades(tmp_path: Path) -> None:
    even = "def even(answer): return int(answer) % 2 == 0 or 'it is odd'\n"
    (tmp_path / "graders.py").write_text(f"{even}def torn(answer): raise KeyError('x')\nTEN = 10\n")
    assert await wrong_with(Expect(python="graders.py:even"), "4", str(tmp_path)) == []
    assert await wrong_with(Expect(python="graders.py:even"), "5", str(tmp_path)) == ["graders.py:even: it is odd"]
    for name, words in (("torn", "a grader does not work"), ("TEN", "not a function"), ("none", "has no 'none'")):
        with pytest.raises(Invalid, match=words):
            await wrong_with(Expect(python=f"graders.py:{name}"), "5", str(tmp_path))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("don't know", "I don\u2019t know."),
        ("A-B", "route A\u2011B"),
        ("31 tongs", "There are **31** tongs."),
        ("stock list", "the `stock` _list_"),
        ("caf\u00e9", "CAFE\u0301"),
        ("find", "\ufb01nd"),
        ("snake_case", "it is snake_case"),
    ],
)
async def test_quotes_dashes_and_emphasis_do_not_hide_a_text(wanted: str, text: str) -> None:
    assert await wrong_with(Expect(contains=wanted), text) == []
    assert await wrong_with(Expect(any_of=(wanted, "x")), text) == []
    assert len(await wrong_with(Expect(excludes=wanted), text)) == 1


async def test_a_schema_may_refer_to_itself() -> None:
    tree: dict[str, object] = {
        "$defs": {"t": {"type": "object", "properties": {"k": {"$ref": "#/$defs/t"}}}},
        "$ref": "#/$defs/t",
    }
    assert await wrong_with(Expect(schema=tree), '{"k": {"k": {}}}') == []
    assert len(await wrong_with(Expect(schema=tree), '{"k": {"k": 3}}')) == 1


async def test_a_function_that_hangs_is_given_up(tmp_path: Path) -> None:
    slow = "import time\ndef slow(answer): time.sleep(3)\nasync def late(answer):\n    import asyncio\n"
    (tmp_path / "hanging.py").write_text(f"{slow}    await asyncio.sleep(9)\n")
    for name in ("slow", "late"):
        with pytest.raises(Invalid, match=r"it was not done after 0\.05 s"):
            await wrong_with(Expect(python=f"hanging.py:{name}"), "4", str(tmp_path), 0.05)


async def test_only_a_truth_or_words_are_a_grade(tmp_path: Path) -> None:
    odd = "def one(a): return 1\ndef none(a): pass\ndef ends(a): raise SystemExit(3)\ndef two(a, b): return True\n"
    (tmp_path / "odd.py").write_text(f"{odd}def array(a):\n    import numpy\n    return numpy.float64(3) > 2\n")
    for name in ("one", "none", "ends", "two"):
        with pytest.raises(Invalid, match="a grader does not work"):
            await wrong_with(Expect(python=f"odd.py:{name}"), "4", str(tmp_path))
    pytest.importorskip("numpy")
    assert await wrong_with(Expect(python="odd.py:array"), "4", str(tmp_path)) == []


async def test_a_judge_that_says_no_says_why_and_what_it_cost() -> None:
    model = ScriptedModel(['{"problems": ["no source"], "accepted": false}'], micros=70)
    found = await judge_rubric(model, "What was the revenue?", RUBRIC, answer_of(ANSWER))
    assert (found.problems, found.usd) == (("no source",), 0.00007)
    asked = model.requests[0].messages[-1].text
    assert "It names a source." in asked
    assert ANSWER in asked


async def test_a_judge_that_says_yes_has_nothing_to_say() -> None:
    found = await judge_rubric(ScriptedModel(['{"problems": [], "accepted": true}']), "x", RUBRIC, answer_of(ANSWER))
    assert found.problems == ()


@pytest.mark.parametrize("reply", ["I like it a lot!", Failure("network", "the line is dead")])
async def test_nothing_passes_that_nobody_could_judge(reply: str | Failure) -> None:
    found = await judge_rubric(ScriptedModel([reply]), "x", RUBRIC, answer_of(ANSWER))
    assert len(found.problems) == 1


async def test_an_answer_that_was_not_read_to_its_end_has_not_passed() -> None:
    judge = ScriptedModel(['{"problems": [], "accepted": true}'])
    found = await judge_rubric(judge, "x", RUBRIC, answer_of("word " * 6000))
    assert found.problems == ("only the first 24,000 of its 30,000 characters were judged",)


# --- numbers


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It is 1.234,5 EUR", 1234.5),
        ("1e3 units", 1000),
        ("2.5E-3 g", 0.0025),
        ("3.2 \u00d7 10^4 km", 32000),
        ("1 234 567 EUR", 1234567),
        ("1\u202f234,50", 1234.5),
        ("1.234.567 people", 1234567),
        ("12'345.60 CHF", 12345.6),
        ("5\u201310 days", 10),
        ("5-10 days", 5),
        ("12 percent", 0.12),
        (".5 of it", 0.5),
        ("twenty-one boats", 21),
        ("Thirty boats", 30),
        ("a loss of 3", -3),
        ("\u22127 degrees", -7),
        ("EUR -3.20", -3.2),
        ("- 3 tents", 3),
        ("the figure 12345678901234567890", 12345678901234567890),
    ],
)
def test_a_number_is_read_however_it_is_written(text: str, wanted: float) -> None:
    assert holds_number(find_figures(text), CaseNumber(wanted))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1.5e6 units", 1.5),
        (".5 of it", 5),
        ("version 1.2.3", 123),
        ("a change of -3.5 %", 3.5),
        ("a change of (-3)", 3),
        ("a gain of +3", -3),
        ("-\u20ac3.20", 3.2),
        ("1e999", 1),
        ("on 2026-05-29", 29),
        ("112 tents", 12),
    ],
)
def test_another_number_is_not_taken_for_it(text: str, wanted: float) -> None:
    assert not holds_number(find_figures(text), CaseNumber(wanted))


def test_what_is_allowed_around_a_number_is_allowed_on_both_sides_of_nought() -> None:
    assert holds_number(find_figures("-0.01"), CaseNumber(0.0, within=0.05))
    assert holds_number(find_figures("-0.01"), CaseNumber(0.02, within=0.05))
    assert not holds_number(find_figures("-0.2"), CaseNumber(0.2, within=0.05))
