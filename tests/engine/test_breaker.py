"""The breaker as pure data."""

from hypothesis import given
from hypothesis import strategies as st

from chargehand.engine.breaker import Breaker, forget_probe, lease, next_change, note, stand
from chargehand.engine.policy import Breaking

NUMBERS = Breaking(consecutive=3, share=0.5, sample=6, window=60.0, open=30.0, open_ceiling=70.0, lease=60.0)


def failed(breaker: Breaker, *times: float) -> None:
    for now in times:
        note(breaker, now, NUMBERS, good=False)


def test_it_opens_at_the_threshold_and_not_before() -> None:
    breaker = Breaker()
    failed(breaker, 1.0, 2.0)
    assert stand(breaker, 2.0) == "closed"
    failed(breaker, 3.0)
    assert (stand(breaker, 3.0), stand(breaker, 32.9), stand(breaker, 33.0)) == ("open", "open", "half-open")


def test_it_opens_when_half_of_enough_calls_fail() -> None:
    breaker = Breaker()
    for number in range(6):
        assert stand(breaker, number) == "closed"
        note(breaker, number, NUMBERS, good=number % 2 == 0)
    assert stand(breaker, 6.0) == "open"


def test_failures_long_ago_do_not_count() -> None:
    breaker = Breaker()
    for number in range(12):
        note(breaker, 100.0 * number, NUMBERS, good=number % 2 == 0)
    assert stand(breaker, 1200.0) == "closed"


def test_one_probe_at_a_time_and_its_lease_runs_out() -> None:
    breaker = Breaker()
    failed(breaker, 0.0, 0.0, 0.0)
    lease(breaker, 30.0, NUMBERS)
    assert stand(breaker, 31.0) == "probing"
    assert next_change(breaker) == 90.0
    assert stand(breaker, 90.0) == "half-open"
    forget_probe(breaker)
    assert stand(breaker, 31.0) == "half-open"


def test_a_failed_probe_opens_it_for_longer_up_to_a_ceiling() -> None:
    breaker = Breaker()
    failed(breaker, 0.0, 0.0, 0.0)
    waits: list[float] = []
    now = 30.0
    for _ in range(3):
        lease(breaker, now, NUMBERS)
        failed(breaker, now)
        waits.append(breaker.until - now)
        now = breaker.until
    assert waits == [60.0, 70.0, 70.0]


def test_a_success_closes_it_for_good() -> None:
    breaker = Breaker()
    failed(breaker, 0.0, 0.0, 0.0)
    lease(breaker, 30.0, NUMBERS)
    note(breaker, 31.0, NUMBERS, good=True)
    assert stand(breaker, 31.0) == "closed"
    failed(breaker, 32.0, 33.0)
    assert stand(breaker, 33.0) == "closed"


@given(st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60))
def test_it_is_never_stuck(story: list[tuple[float, bool]]) -> None:
    breaker = Breaker()
    now = 0.0
    for wait, good in story:
        now += wait
        if stand(breaker, now) == "half-open":
            lease(breaker, now, NUMBERS)
        elif stand(breaker, now) != "closed":
            continue
        note(breaker, now, NUMBERS, good=good)
    assert stand(breaker, max(now, next_change(breaker))) in ("closed", "half-open")
    assert next_change(breaker) <= now + max(NUMBERS.open_ceiling, NUMBERS.lease) or stand(breaker, now) == "closed"
