"""The calculator: right numbers, clear refusals, and always an end."""

import json
import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.models.artifacts import Figure
from chargehand.tools.calculator import NotComputable, calculator, compute, format_number
from chargehand.tools.tool import ToolFailed


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("2 ** 3 ** 2", "512"),
        ("2 ^ 10", "1024"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("--5", "5"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("7 % (-3)", "-2"),
        ("12%", "0.12"),
        ("50 * 12%", "6"),
        ("100 / 50%", "200"),
        ("4 ** 50%", "2"),
        ("007 + 1", "8"),
        ("+".join(["1"] * 250), "250"),
        ("-" * 60 + "1", "1"),
        ("12% of 250", "30"),
        ("100 + 10%", "100.1"),
        ("1,234.5 * 2", "2469"),
        ("1,234,567", "1234567"),
        ("1_000 + .5", "1000.5"),
        ("max(1,234)", "234"),
        ("min(3, 1, 2) + avg(1, 2, 6)", "4"),
        ("sum(1, 2, 3) / abs(-4)", "1.5"),
        ("SQRT(16)", "4"),
        ("sqrt(2) ** 2", "2"),
        ("1 / 3 * 3", "1"),
        ("0.1 + 0.2", "0.3"),
        ("round(2.345, 2)", "2.35"),
        ("round(2.5) + round(-2.5)", "0"),
        ("round(1234567, -3)", "1235000"),
        ("6 × 7 ÷ 2 − 1", "20"),  # noqa: RUF001
        ("1e3", "1000"),
        ("2 ** 150", str(2**150)),
        ("2 ** 200", "1.606938044258990275541962092E+60"),
        ("10 / 4", "2.5"),
        ("-0", "0"),
    ],
)
def test_expressions_have_the_value_one_expects(expression: str, value: str) -> None:
    assert format_number(compute(expression)) == value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("9**9**9", "larger"),
        ("*".join(["9**999999"] * 20), "larger"),
        ("1e10000", "larger"),
        ("10 ** -9999 / 3", "smaller"),
        ("1 / 0", "division by zero"),
        ("1 // 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0 / 0", "not defined"),
        ("0 ** -1", "division by zero"),
        ("0 ** 0", "not defined"),
        ("sqrt(-1)", "not defined"),
        ("(-8) ** 0.5", "not defined"),
        ("10 ** 60 // 3", "more than 50 digits"),
        ("(" * 240 + "1" + ")" * 240, "too many"),
        ("2" + "**2" * 60, "larger"),
        ("1+" * 300 + "1", "500 is the most"),
        ("1" * 51, "more than 50 digits"),
        ("", "no whole expression"),
        ("1 +", "no whole expression"),
        ("(1 + 2", "never closed"),
        ("1 2", "no whole expression"),
        ("3(4)", "only numbers, operators"),
        ("1,23", "commas"),
        ("2)", "no whole expression"),
        ("(1 + 2)%", "no whole expression"),
        ("max(*2)", "only numbers, operators"),
        ("sqrt", "in brackets"),
        ("$5", "'$' at character 1"),
        ("٣ + 1", "character 1"),
        ("sqroot(4)", "did you mean 'sqrt'"),
        ("revenue * 2", "no 'revenue'"),
        ("__import__('os')", "character 12"),
        ("sqrt 4", "no whole expression"),
        ("sqrt(1, 2)", "does not take 2 numbers"),
        ("max()", "does not take 0 numbers"),
        ("round(1, 2, 3)", "it takes 1 to 2"),
        ("round(1, 0.5)", "whole number of places"),
        ("round(1, 1e30)", "whole number of places"),
    ],
)
def test_what_cannot_be_computed_is_said_at_once(expression: str, words: str) -> None:
    began = time.thread_time()
    with pytest.raises(NotComputable) as caught:
        compute(expression)
    assert words in str(caught.value)
    assert time.thread_time() - began < 0.1


async def test_the_tool_returns_the_number_with_how_it_was_worked_out() -> None:
    found = await calculator().call('{"expression": "  (1204.5 - 980)\\n / 980 * 100 "}', "k")
    assert found == Figure("22.90816326530612244897959184", "(1204.5 - 980) / 980 * 100")


async def test_the_tool_says_which_expression_it_could_not_compute() -> None:
    with pytest.raises(ToolFailed, match=r"cannot compute '1 / 0': division by zero"):
        await calculator().call('{"expression": "1 / 0"}', "k")


soup = st.text(alphabet="0123456789.,%+-*/()^eE _sqrtmaxround", max_size=120)
tokens = st.lists(
    st.sampled_from("9 999999 0.1 1e99 ** * / // % - ( ) , sqrt( round( max(".split()),  # noqa: SIM905
    max_size=60,
).map("".join)


@settings(deadline=None, max_examples=400)
@given(soup | tokens | st.text(max_size=60))
def test_any_text_ends_soon_in_a_number_or_a_reason(expression: str) -> None:
    began = time.thread_time()
    try:
        assert Decimal(format_number(compute(expression))).is_finite()
    except NotComputable as problem:
        assert str(problem)  # noqa: PT017
    assert time.thread_time() - began < 0.25


sums = st.recursive(
    st.integers(0, 999).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=8,
)


@given(sums)
def test_whole_numbers_agree_with_python(expression: str) -> None:
    assert compute(expression) == eval(expression)  # built above from digits and three signs


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6).filter(bool))
def test_quotient_and_remainder_agree_with_python(left: int, right: int) -> None:
    assert compute(f"({left}) // ({right})") == left // right
    assert compute(f"({left}) % ({right})") == left % right


@given(st.decimals(-(10**9), 10**9, places=3), st.decimals(1, 10**6, places=2))
def test_shown_numbers_are_right_to_28_digits(left: Decimal, right: Decimal) -> None:
    found = Fraction(format_number(compute(f"{left:f} / {right:f}")))
    exact = Fraction(left) / Fraction(right)
    assert abs(found - exact) <= abs(exact) * Fraction(1, 10**26)


def test_the_description_tells_the_rules_a_model_needs() -> None:
    spec = calculator("work_out").spec
    assert spec.name == "work_out"
    assert "Halves are rounded up" in spec.description
    assert list(json.loads(bytes(spec.parameters))["properties"]) == ["expression"]
