"""Figures about all processes that share a database, for operators: what waits for a worker, and how long."""

import asyncio
import logging
import time
from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from chargehand.engine.policy import Seconds
from chargehand.errors import StoreError
from chargehand.journal.postgres_status import Backlog, QueueBacklog, read_backlog
from chargehand.server.settings import FIRST
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant

logger = logging.getLogger(__name__)
_KEPT: Seconds = 5.0
"""For how long an answer of the database is used again, however often the metrics are read."""


class ClusterBacklog:
    """The backlog of the whole database, for `/metrics` of the first tenant, which is the operator's."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._store = tenant.settings.store if tenant.name == FIRST else None
        self._gate = asyncio.Lock()
        self._read_at = -_KEPT
        self._backlog: Backlog | None = None

    async def read(self) -> Backlog | None:
        """What waits; None for other tenants, without a database, and while it does not answer.

        The queues of the teams here have a line even if nothing waits there: else an autoscaler loses its metric.
        """
        if self._store is None:
            return None
        async with self._gate:
            if time.monotonic() - self._read_at >= _KEPT:
                try:
                    self._backlog = await read_backlog(self._store)
                    for queue in self._tenant.part(Teams).queues:
                        self._backlog.queues.setdefault(queue, QueueBacklog())
                except StoreError as error:
                    logger.warning("the backlog could not be read: %s", error)
                    self._backlog = None
                self._read_at = time.monotonic()
        return self._backlog


def backlog_metrics(backlog: Backlog) -> Iterator[Metric]:
    """For autoscaling and alerts."""
    waiting = GaugeMetricFamily(
        "chargehand_backlog_runs", "Open runs that no process drives, all tenants.", labels=("queue",)
    )
    age = GaugeMetricFamily(
        "chargehand_backlog_seconds", "Since the oldest of them was written to, all tenants.", labels=("queue",)
    )
    driven = GaugeMetricFamily("chargehand_driven_runs", "Open runs that a process drives.", labels=("queue",))
    for queue, line in sorted(backlog.queues.items()):
        waiting.add_metric((queue,), line.undriven)
        age.add_metric((queue,), line.seconds)
        driven.add_metric((queue,), line.driven)
    yield from (waiting, age, driven)
    yield GaugeMetricFamily("chargehand_open_commands", "Commands that were not answered yet.", backlog.commands)
    description = "The age of the oldest command that was not answered yet."
    yield GaugeMetricFamily("chargehand_open_command_seconds", description, backlog.command_seconds)
