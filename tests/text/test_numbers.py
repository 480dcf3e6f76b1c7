"""Numbers and dates in prose."""

from decimal import Decimal

import pytest

from chargehand.text.dates import find_dates
from chargehand.text.numbers import find_numbers, find_quantities


def read(text: str) -> list[tuple[str, list[Decimal]]]:
    return [(number.kind, list(number.values)) for number in find_numbers(text)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12", ["12"]),
        ("1,200.50", ["1200.50"]),
        ("1.200,50", ["1200.50"]),
        ("1.234.567", ["1234567"]),
        ("1'200", ["1200"]),
        ("1,200", ["1200", "1.200"]),
        ("3,5", ["3.5"]),
        ("3 million", ["3", "3000000"]),
        ("4k", ["4", "4000"]),
    ],
)
def test_a_number_is_read_in_every_way_it_can_be_meant(text: str, values: list[str]) -> None:
    assert read(text) == [("number", [Decimal(value) for value in values])]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A-1042", "name"),
        ("B12", "name"),
        ("the 3rd", "name"),
        ("10:30", "time"),
        ("version 1.2.3", "time"),
        ("2024-03-05", "date"),
        ("5 March 2024", "date"),
        ("seven", "word"),
        ("12 kg", "number"),
    ],
)
def test_it_is_known_what_a_number_is_part_of(text: str, kind: str) -> None:
    assert [number.kind for number in find_numbers(text)] == [kind]


def test_numbers_that_stand_together_come_apart() -> None:
    assert [number.text for number in find_numbers("5-10, 900,2026-07-01")] == ["2026-07-01", "5", "10", "900"]


def test_numbers_in_words_reach_ninety_nine() -> None:
    assert [number.values[0] for number in find_numbers("two, twenty-three and forty five or sixty")] == [2, 23, 45, 60]


def test_a_quantity_has_its_unit_and_its_exactness() -> None:
    (share,) = find_quantities("It grew by 12.5 %.")
    assert share.unit == "%"
    assert share.readings == ((Decimal("12.5"), Decimal("0.1")), (Decimal("0.125"), Decimal("0.001")))
    price, orders = find_quantities("EUR 40 for 3 orders")
    assert (price.unit, orders.unit) == ("eur", "order")


def test_dates_times_and_short_names_are_no_quantities() -> None:
    text = "web-1 and order A-104 at 10:30 on 2024-03-05, 5 May, May 2024, the 3rd of 7"
    assert [quantity.text for quantity in find_quantities(text)] == ["104", "7"]


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("2024-03-05", [(2024, 3, 5)]),
        ("2024-03-05T10:30:00Z", [(2024, 3, 5)]),
        ("05.03.2024", [(2024, 3, 5)]),
        ("13/03/2024", [(2024, 3, 13)]),
        ("03/05/2024", [(2024, 3, 5), (2024, 5, 3)]),
        ("5th of March 2024", [(2024, 3, 5)]),
        ("5. März", [(0, 3, 5)]),
        ("March 5th, 2024", [(2024, 3, 5)]),
        ("(March 2024)", [(2024, 3, 0)]),
        ("Sept. 9", [(0, 9, 9)]),
    ],
)
def test_a_date_is_read_however_it_is_written(text: str, readings: list[tuple[int, int, int]]) -> None:
    (date,) = find_dates(text)
    assert date.readings == readings
    assert text.strip("()") == date.text


@pytest.mark.parametrize("text", ["2024-13-05", "may 12,000", "40 March", "x2024-03-05", "12 months", "1.2.3"])
def test_other_numbers_are_no_dates(text: str) -> None:
    assert list(find_dates(text)) == []
