"""Graders: each kind passes what is right and says what is wrong with the rest."""

from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.evals.cases import Expect, Number
from chargehand.evals.graders import answer_of, wrong_with
from chargehand.evals.rubric import BY_WORDS, judged
from chargehand.models.find import Finder
from chargehand.models.scripted import ScriptedModel
from chargehand.terms.failure import Failure

ANSWER = "Revenue in May 2026: **12,223.40 EUR**, a loss of 3.5 % [t1]."


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
        Expect(numbers=Number(12000, percent=2)),
        Expect(numbers=Number(12223, within=0.5)),
    ],
)
async def test_what_is_right_passes(expect: Expect) -> None:
    assert await wrong_with(expect, answer_of(ANSWER), "") == []


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (Expect(exact="12,223.40"), "it is not '12,223.40'"),
        (Expect(contains=("revenue", "June")), "'June' is not in it"),
        (Expect(any_of=("profit", "June")), "none of these"),
        (Expect(excludes="revenue"), "must not be"),
        (Expect(matches="^Profit"), "Profit"),
        (Expect(numbers=12223), "there is no 12,223 in it"),
        (Expect(numbers=Number(12000, percent=1)), "there is no 12,000 within 1 %"),
    ],
)
async def test_what_is_wrong_is_said(expect: Expect, words: str) -> None:
    (said,) = await wrong_with(expect, answer_of(ANSWER), "")
    assert words in said


async def test_only_numbers_that_are_stated_count() -> None:
    text = "There are twelve boats [t3], by `SELECT x LIMIT 5`, on 7 May 2026; berth B9 is `40`."
    for wanted, there in ((12, True), (40, True), (3, False), (5, False), (7, False), (9, False), (2026, False)):
        assert (await wrong_with(Expect(numbers=wanted), answer_of(text), "") == []) is there, wanted


async def test_a_schema_is_held_against_the_json_of_an_answer() -> None:
    wanted = Expect(schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert await wrong_with(wanted, answer_of({"n": 3}), "") == []
    assert await wrong_with(wanted, answer_of('{"n": 3}'), "") == []
    assert len(await wrong_with(wanted, answer_of({"n": "three"}), "")) == 1


async def test_a_function_beside_the_cases_grades(tmp_path: Path) -> None:
    even = "def even(answer): return int(answer) % 2 == 0 or 'it is odd'\n"
    (tmp_path / "graders.py").write_text(f"{even}def torn(answer): raise KeyError('x')\nTEN = 10\n")
    assert await wrong_with(Expect(python="graders.py:even"), answer_of("4"), str(tmp_path)) == []
    assert await wrong_with(Expect(python="graders.py:even"), answer_of("5"), str(tmp_path)) == [
        "graders.py:even: it is odd"
    ]
    for name, words in (("torn", "a grader does not work"), ("TEN", "not a function"), ("none", "has no 'none'")):
        with pytest.raises(Invalid, match=words):
            await wrong_with(Expect(python=f"graders.py:{name}"), answer_of("5"), str(tmp_path))


async def test_a_judge_that_says_no_says_why_and_what_it_cost() -> None:
    model = ScriptedModel(['{"problems": ["no source"], "accepted": false}'], micros=70)
    found = await judged(model, "What was the revenue?", ["It names a source."], ANSWER)
    assert (found.problems, found.micros) == (("no source",), 70)
    asked = model.requests[0].messages[-1].text
    assert "It names a source." in asked
    assert ANSWER in asked


async def test_a_judge_that_says_yes_has_nothing_to_say() -> None:
    found = await judged(ScriptedModel(['{"problems": [], "accepted": true}']), "x", ["y"], ANSWER)
    assert found.problems == ()


@pytest.mark.parametrize("reply", ["I like it a lot!", Failure("network", "the line is dead")])
async def test_nothing_passes_that_nobody_could_judge(reply: str | Failure) -> None:
    found = await judged(ScriptedModel([reply]), "x", ["y"], ANSWER)
    assert len(found.problems) == 1


async def test_without_a_language_model_words_and_numbers_are_compared() -> None:
    offline = Finder(lambda _: None).find("offline")
    good = await judged(offline, "x", ["It names the revenue in May 2026", "12,223.40 EUR"], ANSWER)
    assert (good.problems, good.notes) == ((), (BY_WORDS,))
    bad = await judged(offline, "x", ["It has 14,000 EUR", "It explains supplier contracts"], ANSWER)
    assert "14,000 is not in it" in bad.problems[0]
    assert "contracts" in bad.problems[1]
