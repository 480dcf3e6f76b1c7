"""Tools of a made-up shop after an incident: one resets connections, one wants single queries, one is dead."""

import itertools
import os
import time

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

PACE = float(os.environ.get("INCIDENT_PACE", "0.2"))
_TURN = itertools.count()


def _work(seconds: float) -> None:
    time.sleep(seconds * PACE)


def read_logs(service: str, day: str) -> Table:
    """Error classes in a service's logs of a day, with counts and first occurrence."""
    _work(0.9)
    if service == "archive" or next(_TURN) % 2 == 0:
        _work(1.2)
        raise ConnectionError("connection reset by the log store (logs-2.internal:9200)")
    rows = (("PoolTimeout", 1914, "09:41:07"), ("UpstreamReset", 212, "09:43:55"), ("CardDeclined", 88, "00:02:13"))
    return Table(("class", "count", "first"), rows, source="logs/checkout")


def latency(route: str, day: str, minutes: int) -> Table:
    """p50 and p99 latency of a route per so many minutes."""
    _work(0.7)
    rows = (
        ("09:30", 204, 780),
        ("09:40", 288, 2480),
        ("10:00", 640, 7310),
        ("10:20", 1120, 11900),
        ("11:10", 199, 760),
    )
    return Table(("from", "p50_ms", "p99_ms"), rows, source="metrics/latency")


def affected(day: str, slower_than_s: float) -> Table:
    """Customers hit on a day."""
    _work(0.8)
    rows = (("C-1041", 1280), ("C-2210", 970), ("C-0073", 905))
    return Table(("customer", "order_eur"), rows, source="metrics/customers")


def deployments(services: list[str], since: str, until: str) -> Table:
    """Deployments of services between two days."""
    _work(0.5)
    if len(services) > 1:
        raise ToolFailed("the deployment log answers for one service per query; ask for each separately")
    rows = (
        ("checkout", "4.18.0", "2026-11-12 09:36", "mara", "pool.toml"),
        ("checkout", "4.17.3", "2026-11-12 11:02", "jo", "roll-back"),
    )
    return Table(("service", "version", "at", "by", "files"), rows, source="deploy log")


def status_page(vendor: str, day: str) -> str:
    """What a vendor's status page said on a day."""
    _work(1.4)
    raise ToolFailed("status.payline.example does not answer (TLS handshake timed out)", broken=True)


def refund(customers: list[str], cents: int) -> str:
    """Refund so many cents to each customer."""
    _work(0.6)
    return f"batch R-7731: {len(customers)} refunds of {cents / 100:.2f} EUR"
