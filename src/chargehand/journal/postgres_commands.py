"""Commands in PostgreSQL: a row each, a notification when it is sent and one when it is settled."""

from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import msgspec

from chargehand.engine.events import Event
from chargehand.errors import Refused, RunUnknown
from chargehand.journal.codec import TAGS, decode, encode, version_of
from chargehand.journal.commands import Command, CommandRefusal, CommandStatus, with_command
from chargehand.journal.postgres_listener import Followers, PostgresListener
from chargehand.journal.postgres_writer import LIVING, run_digest
from chargehand.journal.protocol import check_name
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection, Row
from chargehand.postgres.grouped import GroupedCalls

COMMAND_CHANNEL = "chargehand_commands"
_KEPT = "1 day"
"""For how long a command is kept when nothing is to be done with it any more."""

_SEND = f"""
    WITH target AS (
        SELECT number FROM runs WHERE tenant = current_tenant() AND run = $2 AND seq > 0 AND NOT ended
    ), sent AS (
        INSERT INTO commands (id, run, type, version, body) SELECT $1, number, $3, $4, $5 FROM target
        ON CONFLICT (id) DO NOTHING
    ), old AS (
        DELETE FROM commands WHERE at < clock_timestamp() - interval '{_KEPT}'
            AND (settled IS NOT NULL OR run IN (SELECT number FROM runs WHERE ended))
    )
    SELECT pg_notify($6, $7) FROM target
"""  # noqa: S608 - of our own words
_OPEN = """
    SELECT runs.run, id, type, version, body FROM commands JOIN runs ON runs.number = commands.run
    WHERE commands.tenant = current_tenant() AND settled IS NULL AND runs.run = ANY ($1::text[])
    ORDER BY commands.number
"""
_OPEN_RUNS = """
    SELECT DISTINCT runs.run FROM commands JOIN runs ON runs.number = commands.run
    WHERE commands.tenant = current_tenant() AND settled IS NULL AND runs.run = ANY ($1::text[])
"""
_SETTLE = """
    WITH changed AS (
        UPDATE commands SET settled = clock_timestamp(), refusal = $2 WHERE id = $1 AND settled IS NULL RETURNING id
    )
    SELECT pg_notify($3, $4) FROM changed
"""
_STATUS = f"""
    SELECT settled IS NOT NULL, refusal, runs.ended, coalesce(runs.owner IN ({LIVING}), false)
    FROM commands JOIN runs ON runs.number = commands.run WHERE commands.id = $1
"""  # noqa: S608 - of our own words


class PostgresCommands:
    """One for each opened journal."""

    def __init__(self, database: PostgresDatabase, listener: PostgresListener) -> None:
        self._database = database
        self._listener = listener
        self._opening = GroupedCalls(self._open_all)
        self._receivers = Followers()
        self._senders = Followers()
        self.name = COMMAND_CHANNEL
        listener.add(self)

    async def send(self, run: str, event: Event) -> str:
        check_name(run)
        command = uuid4()
        sent = with_command(event, str(command))
        row = (TAGS[type(sent)], version_of(sent), encode(sent))
        notice = self._notice(run_digest(run))
        if not await self._database.fetch(_SEND, command, run, *row, COMMAND_CHANNEL, notice):
            known = await self._database.fetch("SELECT FROM runs WHERE tenant = current_tenant() AND run = $1", run)
            if not known:
                raise RunUnknown(run)
            raise Refused(f"run {run!r} has ended")
        return str(command)

    async def open(self, run: str) -> list[Command]:
        rows = await self._opening.submit(run)
        return [
            Command(str(command), decode(kind, version, body, run=run, seq=0))
            for _, command, kind, version, body in rows
        ]

    async def _open_all(self, runs: Sequence[str]) -> list[list[Row]]:
        by_run: dict[str, list[Row]] = {run: [] for run in runs}
        for row in await self._database.fetch(_OPEN, list(by_run)):
            by_run[row[0]].append(row)
        return [by_run[run] for run in runs]

    async def settle(self, command: str, refusal: CommandRefusal | None = None) -> None:
        body = None if refusal is None else msgspec.json.encode(refusal)
        await self._database.fetch(_SETTLE, UUID(command), body, COMMAND_CHANNEL, self._notice(command))

    async def status(self, command: str) -> CommandStatus | None:
        rows = await self._database.fetch(_STATUS, UUID(command))
        if not rows:
            return None
        is_settled, body, has_ended, is_held = rows[0]
        refusal = None if body is None else msgspec.json.decode(body, type=CommandRefusal)
        return CommandStatus(is_settled, refusal, has_ended, is_held)

    def subscribe(self, run: str, on_command: Callable[[], None]) -> Callable[[], None]:
        unsubscribe = self._receivers.add(run_digest(run), run, on_command)
        self._listener.start()
        return unsubscribe

    def subscribe_settled(self, command: str, on_settled: Callable[[], None]) -> Callable[[], None]:
        unsubscribe = self._senders.add(command, command, on_settled)
        self._listener.start()
        return unsubscribe

    async def query(self, connection: Connection) -> None:
        """Notify who receives the commands of a run that has open ones, and all who sent one: they are few."""
        runs = self._receivers.topics
        rows = await connection.fetch(_OPEN_RUNS, list(runs)) if runs else []
        self._receivers.notify(run_digest(row[0]) for row in rows)
        self._senders.notify(self._senders.keys)

    def on_notice(self, keys: Sequence[str], process: int) -> None:  # noqa: ARG002 - from every process
        self._receivers.notify(keys)
        self._senders.notify(keys)

    def _notice(self, key: str) -> str:
        return f"{self._database.tenant} {key}"
