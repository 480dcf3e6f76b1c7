"""Durations, sizes and money mean what people mean by them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.config.schema import parse_dollars, parse_size
from chargehand.engine.declared import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("2d", 172800),
        (7, 7),
        ("0s", 0),
    ],
)
def test_a_duration_is_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "90",
        "s",
        "9x",
        "-5s",
        "1e3s",
        "",
        "5 minutes",
        "five",
        True,
        None,
        [],
        -1,
        float("nan"),
        float("inf"),
        "9999999d",
        "1s..2s",
        "٣s",
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match=r"90s|between 0s and 366d"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("200k", 200_000),
        ("1.5M", 1_500_000),
        ("2g", 2 * 10**9),
        ("16KiB", 16384),
        ("1MiB", 1 << 20),
        ("12", 12),
        (0, 0),
    ],
)
def test_a_size_is_a_count(written: object, count: int) -> None:
    assert parse_size(written) == count


@pytest.mark.parametrize(
    "written", ["k", "1.5", "1.0001k", "-1", -1, 1.5, True, None, "200kb", "9" * 40, "1e3", 10**20]
)
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(written)


def test_money_is_a_number_from_nought_upwards() -> None:
    assert (parse_dollars(0.1), parse_dollars(2)) == (0.1, 2.0)
    for wrong in (-0.01, float("nan"), True, "0.5", None):
        with pytest.raises(ValueError, match=r"dollars|money"):
            parse_dollars(wrong)


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_a_complaint(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= 0
    with suppress(ValueError):
        assert parse_size(text) >= 0
