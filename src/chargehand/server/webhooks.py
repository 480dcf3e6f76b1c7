"""Webhooks of team files: the events of runs, sent as CloudEvents that are signed after the Standard Webhooks.

What is owed follows from the store: before a run begins, a row is written for each webhook of its team, which says up
to which entry the webhook was told. Whichever process claims the row reads the journal and sends the rest, in order and
at least once. An event has the same id each time it is sent.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct, structs

from chargehand.agents.webhooks import Webhook, WebhookEvent
from chargehand.concurrency import first_error
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import ChargehandError, Corrupt, RunUnknown
from chargehand.journal.deliveries import Deliveries, Delivery
from chargehand.server.teams import Teams, webhook_key
from chargehand.server.tenants import Tenant

_UNBEGUN_FOR: Seconds = 3600.0
_BATCH = 32
_GONE = 410
_MAX_ERROR = 300
_EVENTS: dict[type[ev.Event], WebhookEvent] = {
    ev.RunRequested: "run.started",
    ev.InputRequested: "run.needs_input",
    ev.RunEnded: "run.ended",
}

logger = logging.getLogger(__name__)


async def start_webhooks(tenant: Tenant) -> None:
    """Have the webhooks of all teams called for a tenant, until it is closed."""
    deliveries = tenant.journal.deliveries
    teams = tenant.part(Teams).teams.values()
    if deliveries is None or not any(team.webhooks for team in teams):
        return
    await deliveries.remove_unbegun(time.time() - _UNBEGUN_FOR)
    for team in teams:
        for webhook in team.webhooks:
            sender = WebhookSender(tenant, team.name, webhook, deliveries)
            tenant.entry_listeners.append(sender.hear)
            tenant.start_background(sender.run())


class WebhookSender:
    """Sends one webhook the events of the runs of its team. One that does not answer holds up no other."""

    def __init__(self, tenant: Tenant, team: str, webhook: Webhook, deliveries: Deliveries) -> None:
        self._tenant = tenant
        self._team = team
        self._webhook = webhook
        self._secret = webhook.secret(tenant.lookup)
        self._deliveries = deliveries
        self._times = tenant.settings.webhooks
        self._key = webhook_key(team, webhook)
        self._woken: set[str] = set()
        self._wakeup = asyncio.Event()

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Told of all that is written by this process."""
        if any(type(entry.event) in _EVENTS for entry in entries):
            self._wake(run)

    def _wake(self, run: str) -> None:
        self._woken.add(run)
        self._wakeup.set()

    async def run(self) -> None:
        """Send what is owed, until cancelled."""
        session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._times.timeout), cookie_jar=aiohttp.DummyCookieJar()
        )
        async with session:
            looked_at = float("-inf")
            while True:
                runs: set[str] | None = set(self._woken)
                self._woken.clear()
                self._wakeup.clear()
                if time.monotonic() - looked_at >= self._times.look:
                    runs = None
                    looked_at = time.monotonic()
                try:
                    await self._deliver_all(session, runs)
                except* ChargehandError as group:  # the next look finds what was not sent
                    logger.warning("webhook %s waits for the store: %s", self._key, first_error(group))
                await self._wait(looked_at + self._times.look)

    async def _wait(self, until: Seconds) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def _deliver_all(self, session: aiohttp.ClientSession, runs: set[str] | None) -> None:
        claimed = _BATCH
        while claimed == _BATCH:
            now = time.time()
            batch = await self._deliveries.claim(self._key, runs, now=now, until=now + self._times.claim, limit=_BATCH)
            claimed = len(batch)
            async with asyncio.TaskGroup() as jobs:
                for delivery in batch:
                    jobs.create_task(self._deliver(session, delivery))

    async def _deliver(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        """Send the events of one run that are owed, up to the first that is not taken."""
        try:
            entries = await self._tenant.journal.read(delivery.run)
        except (Corrupt, RunUnknown) as error:
            await self._deliveries.update(structs.replace(delivery, given_up=True, error=str(error)), 0.0)
            return
        for entry in entries[delivery.seq :]:
            if _EVENTS.get(type(entry.event)) not in self._webhook.events:
                continue
            body = await asyncio.to_thread(self._body, delivery.run, entries[: entry.seq])
            problem, is_gone = await self._send(session, event_id(delivery.run, entry.seq), body)
            if problem:
                await self._put_off(delivery, problem, is_gone=is_gone)
                return
            delivery = Delivery(delivery.run, delivery.webhook, seq=entry.seq)
            await self._deliveries.update(delivery, time.time() + self._times.claim)
        if isinstance(entries[-1].event, ev.RunEnded):
            await self._deliveries.remove(delivery)
        else:
            await self._deliveries.update(structs.replace(delivery, seq=len(entries)), 0.0)

    async def _put_off(self, delivery: Delivery, problem: str, *, is_gone: bool) -> None:
        tries = delivery.tries + 1
        given_up = is_gone or tries > len(self._times.pauses)
        failed = structs.replace(delivery, tries=tries, given_up=given_up, error=problem[:_MAX_ERROR])
        pause = 0.0 if given_up else self._times.pauses[tries - 1]
        logger.warning("webhook %s was not told of run %s (try %d): %s", self._key, delivery.run, tries, problem)
        await self._deliveries.update(failed, time.time() + pause)
        if not given_up:
            asyncio.get_running_loop().call_later(pause, self._wake, delivery.run)

    async def _send(self, session: aiohttp.ClientSession, event: str, body: bytes) -> tuple[str, bool]:
        """Why an event was not taken, and whether the address wants no more; an empty text if it was taken."""
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "User-Agent": "chargehand",
            "webhook-id": event,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secret, event, timestamp, body),
        }
        try:
            async with session.post(self._webhook.url, data=body, headers=headers, allow_redirects=False) as response:
                status = response.status
        except TimeoutError:
            return f"no answer within {self._times.timeout:g} s", False
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__, False
        return ("" if 200 <= status < 300 else f"the answer was {status}"), status == _GONE

    def _body(self, run: str, entries: Sequence[ev.Entry]) -> bytes:
        """The CloudEvent of the last of these entries."""
        entry = entries[-1]
        event = CloudEvent(
            id=event_id(run, entry.seq),
            source=f"/chargehand/{self._tenant.name}/{quote(self._team)}",
            type=f"chargehand.{_EVENTS[type(entry.event)]}",
            subject=run,
            time=datetime.fromtimestamp(entry.at, UTC),
            data=summarise(run, self._tenant.name, entries),
        )
        return msgspec.json.encode(event)


# --- what is sent


class RunReport(Struct, frozen=True, kw_only=True):
    """A run as webhooks are told of it: how it stands and what it cost, and no content."""

    run: str
    team: str
    tenant: str
    status: str
    """`running`, `needs_input`, or how it ended: `complete`, `partial`, `failed`, `cancelled` ..."""
    reason: str = ""
    """Why it ended so."""
    question: int | None = None
    """The number of the question that a person is asked."""
    asks: str | None = None
    """What for: `plan`, `tool`, `effect` or `question`."""
    task: str | None = None
    labels: dict[str, str]
    usd: float
    tokens: int
    calls: int
    gaps: int = 0
    """How many things the answer has to do without."""
    started: Instant
    seconds: Seconds
    """Since it was begun."""
    url: str
    """Where this server has all of it."""


class CloudEvent(Struct, frozen=True, kw_only=True):
    """An event in the structured mode of CloudEvents 1.0."""

    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: datetime
    datacontenttype: str = "application/json"
    data: RunReport


def summarise(run: str, tenant: str, entries: Sequence[ev.Entry]) -> RunReport:
    """A run as it stood after the last of these entries."""
    state = replay(entries)
    last = entries[-1]
    spent = state.ledger.spent
    report = RunReport(
        run=run,
        team=state.requested.team,
        tenant=tenant,
        status="running",
        labels=dict(state.requested.labels),
        usd=spent.micros / 1_000_000,
        tokens=spent.tokens,
        calls=spent.calls,
        started=entries[0].at,
        seconds=round(last.at - entries[0].at, 3),
        url=f"/api/runs/{quote(run)}",
    )
    event = last.event
    if isinstance(event, ev.RunEnded):
        return structs.replace(report, status=event.ending, reason=event.reason, gaps=len(event.gaps))
    if isinstance(event, ev.InputRequested):
        return structs.replace(
            report, status="needs_input", question=event.number, asks=event.what, task=event.task or None
        )
    return report


def event_id(run: str, seq: int) -> str:
    """The id of an event, the same each time it is sent. Without a dot, which separates what is signed."""
    return f"{quote(run).replace('.', '%2E')}/{seq}"


def sign(secret: bytes, event: str, timestamp: int, body: bytes) -> str:
    """The signature after the Standard Webhooks."""
    signed = f"{event}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}"
