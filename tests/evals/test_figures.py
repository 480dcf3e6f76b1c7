"""Numbers in answers: however they are written they are read, and what is another number is not taken for one."""

import pytest

from chargehand.evals.cases import Number
from chargehand.evals.figures import figures, holds, told


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
    assert holds(figures(text), wanted)


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
    assert not holds(figures(text), wanted)


def test_what_is_allowed_around_a_number_is_allowed_on_both_sides_of_nought() -> None:
    assert holds(figures("-0.01"), Number(0.0, within=0.05))
    assert holds(figures("-0.01"), Number(0.02, within=0.05))
    assert not holds(figures("-0.2"), Number(0.2, within=0.05))


def test_figures_are_told_with_their_signs_and_once() -> None:
    assert told("It fell by -3.5 % to 12,223.40, and again by -3.5 %. See [t12].") == (-3.5, 12223.4)
