"""Reserve, settle, and what a nested run may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger, check
from chargehand.errors import Invalid

AMOUNTS = st.builds(Amount, st.integers(0, 50), st.integers(0, 50), st.integers(0, 5))


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(usd=-1.0), "budget.usd is -1.0"),
        (Budget(seconds=float("nan")), "budget.seconds is nan"),
        (Budget(tokens=5, floor=Amount(tokens=6)), "keeps 6 of a cap of 5"),
        (Budget(floor=Amount(calls=-1)), "budget.floor.calls is -1"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_with_the_reason(budget: Budget, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check(budget)


def test_no_cap_covers_everything_and_zero_covers_only_what_is_free() -> None:
    assert Ledger(Budget()).covers(Amount(10**9, 10**9, 10**9))
    assert not Ledger(Budget(usd=0.0)).covers(Amount(micros=1))
    assert Ledger(Budget(usd=0.0)).covers(NOTHING)


@given(st.lists(st.tuples(AMOUNTS, st.none() | AMOUNTS)), AMOUNTS)
def test_what_is_spent_and_reserved_never_passes_the_cap(
    calls: list[tuple[Amount, Amount | None]], keep: Amount
) -> None:
    ledger = Ledger(Budget(tokens=100, usd=0.0001, calls=10))
    held: list[tuple[Amount, Amount | None]] = []
    for wanted, used in calls:
        if ledger.covers(wanted, keep=keep):
            ledger.reserve(wanted)
            assert ledger.micros + ledger.held_micros <= 100
            assert ledger.calls + ledger.held_calls <= 10
            held.append((wanted, used))
        elif held:
            reserved, spent = held.pop(0)
            fair = None if spent is None or spent.micros > reserved.micros or spent.calls > reserved.calls else spent
            ledger.settle(reserved, fair if fair is None or fair.tokens <= reserved.tokens else None)
    for reserved, _ in held:
        ledger.settle(reserved, None)
    assert ledger.reserved == NOTHING
    assert ledger.spent.tokens <= 100


@given(AMOUNTS, AMOUNTS)
def test_amounts_add_up(one: Amount, other: Amount) -> None:
    assert one + other - other == one
    assert sum([one, other, other], NOTHING) == one + other * 2
    assert one.within(one.max(other))
    assert other.within(one.max(other))
    assert one.beyond(other) == one.max(other) - other
    assert one.within(other) == (one.beyond(other) == NOTHING)


def test_unknown_use_is_charged_as_reserved() -> None:
    ledger = Ledger(Budget())
    ledger.reserve(Amount(5, 6, 7))
    ledger.settle(Amount(5, 6, 7), None)
    assert ledger.spent == Amount(5, 6, 7)


def test_a_nested_run_never_gets_more_than_what_is_left() -> None:
    ledger = Ledger(Budget(usd=0.0001, calls=10, floor=Amount(micros=20)), micros=30, held_micros=10)
    room = ledger.room(ledger.budget.floor)
    assert Amount(micros=25, calls=3).min(room) == Amount(micros=25, calls=3)
    assert Amount(micros=90, calls=90).min(room) == Amount(micros=40, calls=10)
    assert Budget(usd=1.0, floor=Amount(micros=50)).limited(room) == Budget(
        usd=4e-05, calls=10, floor=Amount(micros=40)
    )
    assert Ledger(Budget(usd=1e-06), micros=5).room(NOTHING).micros == 0
