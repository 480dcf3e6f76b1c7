"""Two dates for the same thing contradict each other; what may be about something else does not."""

import pytest

from chargehand.agents.audit.contradictions import find_contradictions
from chargehand.models.request_facts import Given


def values(first: str, second: str) -> list[tuple[str, ...]]:
    results = [Given("t1", "Find out about Acme.", "ann", first), Given("t2", "Find out about Acme.", "bob", second)]
    return [tuple(value for _, value in one.values) for one in find_contradictions(results)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Acme was founded in 1998.", "Acme was founded in 2001.", [("1998", "2001")]),
        (
            "The contract with Acme ends on 31 March 2025.",
            "The contract with Acme ends on 2025-04-30.",
            [("31 March 2025", "2025-04-30")],
        ),
    ],
)
def test_two_dates_for_the_same_are_a_contradiction(first: str, second: str, expected: list[tuple[str, ...]]) -> None:
    assert values(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Acme was not founded in 1998.", "Acme was not founded in 2001."),
        ("Order 1042 was shipped.", "Order 1043 was shipped."),
        ("The contract with Acme ends on 31 March 2025.", "The contract with Acme ends on 2025-03-31."),
        ("The contract with Acme ends on 31 March 2025.", "The contract with Acme ends in March 2025."),
        ("Acme was founded in 1998.", "Acme was sold in 2001."),
    ],
)
def test_what_agrees_or_is_about_something_else_is_none(first: str, second: str) -> None:
    assert values(first, second) == []
