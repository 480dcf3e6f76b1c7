"""How the runs of a tenant stand now, for `/metrics`: what they wait for, what is out of order, what is spent."""

import time
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from chargehand.engine.breaker import stand
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import RunState
from chargehand.runtime.stats import report
from chargehand.server.tenants import Tenant


def run_gauges(tenant: Tenant) -> Iterator[Metric]:
    """The gauges of the runs that this process drives for a tenant."""
    now = time.time()
    states = [state for runner in tenant.runners for state in runner.under_way.values()]
    yield _gauge("queue_age_seconds", "How long the run that waits longest for a slot has.", tenant.runs.longest_wait)
    yield _gauge(
        "run_idle_seconds", "The longest time since a run wrote that waits for no person.", _longest_idle(states, now)
    )
    yield _gauge("runs_waiting_for_input", "Runs that wait for a person.", sum(map(_waits_for_person, states)))
    yield _budgets(states)
    yield _breakers(tenant, states, now)


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(f"chargehand_{name}", description, value)


def _waits_for_person(state: RunState) -> bool:
    return state.input is not None


def _longest_idle(states: Sequence[RunState], now: Instant) -> Seconds:
    driven = [state for state in states if not _waits_for_person(state) and not state.paused]
    return max((now - state.at for state in driven), default=0.0)


def _budgets(states: Sequence[RunState]) -> Metric:
    """The share of its dollars that the run of each team has spent which has spent most."""
    shares: dict[str, float] = {}
    for state in states:
        usd = state.ledger.budget.usd
        if usd:
            team = state.requested.team
            shares[team] = max(shares.get(team, 0.0), state.ledger.spent.usd / usd)
    family = GaugeMetricFamily(
        "chargehand_budget_spent_ratio", "The largest share of its dollars that a run has spent.", labels=("team",)
    )
    for team, share in sorted(shares.items()):
        family.add_metric((team,), share)
    return family


def _breakers(tenant: Tenant, states: Sequence[RunState], now: Instant) -> Metric:
    """1 for each worker, model and tool that is not called because it failed too often."""
    is_open: dict[tuple[str, str], bool] = {}
    for line in report(tenant.stats.runs, now, ""):
        if line.what == "tool" and line.state != "closed":
            is_open["tool", line.name] = line.state == "open"
    for state in states:
        for breaker in state.breakers.values():
            guarded = ("model", breaker.model) if breaker.model else ("worker", breaker.worker)
            is_open[guarded] = is_open.get(guarded, False) or stand(breaker, now) == "open"
    family = GaugeMetricFamily(
        "chargehand_breaker_open", "1: it failed too often and is not called.", labels=("what", "name")
    )
    for labels, value in sorted(is_open.items()):
        family.add_metric(labels, float(value))
    return family
