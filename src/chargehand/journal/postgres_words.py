"""Text of runs as it comes, in PostgreSQL: notifications on a channel of their own, sent only while a process listens.

Who listens to a run says so at once, when it is asked, and every five seconds.
"""

import asyncio
import logging
import secrets
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.engine.state import TextKind, Work
from chargehand.errors import StoreError
from chargehand.journal.postgres_listener import QUERY_INTERVAL, PostgresListener
from chargehand.journal.postgres_writer import run_digest
from chargehand.journal.words import OnWords
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection

logger = logging.getLogger(__name__)
WORDS_CHANNEL = "chargehand_words"
_JOINED: Seconds = 0.05
"""How long pieces of text are collected before they are sent."""
_GRACE: Seconds = 0.5
"""For how long a run counts as heard when no reader has answered yet."""
_KEPT: Seconds = 2.5 * QUERY_INTERVAL
"""For how long a run counts as heard after a listener has said so."""
_MAX_CHARS = 1000
"""Of one notification, which has 8,000 bytes."""
_MAX_RUNS = 10_000
_NOTIFY = "SELECT pg_notify($1, notice) FROM unnest($2::text[]) AS notice"


class _Piece(Struct, frozen=True, array_like=True):
    """What a notification carries."""

    work: Work
    text: str
    kind: TextKind = "answer"


class _Listener(Struct, frozen=True, eq=False):
    on_words: OnWords
    loop: asyncio.AbstractEventLoop


class PostgresWords:
    """One for each opened journal, which does not hear itself."""

    def __init__(self, database: PostgresDatabase, listener: PostgresListener) -> None:
        self._database = database
        self._listener = listener
        self._sender = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._listeners: dict[str, set[_Listener]] = {}
        self._heard_until: dict[str, float] = {}
        self._unsent: dict[tuple[str, Work, TextKind], list[str]] = {}
        self._sending = asyncio.Lock()
        self.name = WORDS_CHANNEL
        listener.add(self)

    # --- listening

    def subscribe(self, run: str, on_words: OnWords) -> Callable[[], None]:
        digest = run_digest(run)
        listener = _Listener(on_words, asyncio.get_running_loop())
        with self._lock:
            self._listeners.setdefault(digest, set()).add(listener)
        self._listener.start()
        self._notify_soon("listening", digest)
        return partial(self._forget, digest, listener)

    def _forget(self, digest: str, listener: _Listener) -> None:
        with self._lock:
            listeners = self._listeners.get(digest, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(digest, None)

    def _hear(self, digest: str, body: str) -> None:
        with self._lock:
            listeners = list(self._listeners.get(digest, ()))
        if not listeners:
            return
        piece = msgspec.json.decode(b64decode(body), type=_Piece)
        for listener in listeners:
            try:
                listener.loop.call_soon_threadsafe(listener.on_words, piece.work, piece.text, piece.kind)
            except RuntimeError:
                logger.debug("the event loop of a listener is closed")

    # --- speaking

    def is_heard(self, run: str) -> bool:
        digest = run_digest(run)
        now = time.monotonic()
        with self._lock:
            until = self._heard_until.get(digest)
            if until is not None:
                return now < until
            if len(self._heard_until) >= _MAX_RUNS:
                self._heard_until = {key: until for key, until in self._heard_until.items() if now < until}
            self._heard_until[digest] = now + _GRACE
        self._listener.start()
        self._notify_soon("asking", digest)
        return True

    def publish(self, run: str, work: Work, text: str, kind: TextKind = "answer") -> None:
        with self._lock:
            is_first = not self._unsent
            self._unsent.setdefault((run_digest(run), work, kind), []).append(text)
        if is_first:
            client_thread().spawn(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(_JOINED)
        async with self._sending:
            with self._lock:
                unsent = self._unsent
                self._unsent = {}
            notices: list[str] = []
            for (digest, work, kind), pieces in unsent.items():
                text = "".join(pieces)
                for start in range(0, len(text), _MAX_CHARS):
                    body = msgspec.json.encode(_Piece(work, text[start : start + _MAX_CHARS], kind))
                    notices.append(self._notice("words", digest, b64encode(body).decode()))
            await self._send(notices)

    # --- notifications

    def on_notice(self, keys: Sequence[str], process: int) -> None:  # noqa: ARG002 - all that is needed is said
        sender, kind, *rest = keys
        if sender == self._sender:
            return
        if kind == "words":
            self._hear(*rest)
            return
        with self._lock:
            if kind == "listening":
                until = time.monotonic() + _KEPT
                self._heard_until |= {digest: until for digest in rest if digest in self._heard_until}
            wanted = [digest for digest in rest if digest in self._listeners] if kind == "asking" else []
        if wanted:
            self._notify_soon("listening", *wanted)

    async def query(self, connection: Connection) -> None:
        """Say again what is listened to."""
        with self._lock:
            digests = list(self._listeners)
        notices = [self._notice("listening", digest) for digest in digests]
        if notices:
            await connection.fetch(_NOTIFY, WORDS_CHANNEL, notices)

    def _notify_soon(self, *keys: str) -> None:
        client_thread().spawn(self._send([self._notice(*keys)]))

    def _notice(self, *keys: str) -> str:
        return " ".join((str(self._database.tenant), self._sender, *keys))

    async def _send(self, notices: Sequence[str]) -> None:
        try:
            await self._database.fetch(_NOTIFY, WORDS_CHANNEL, notices)
        except StoreError as error:  # words may be lost
            logger.debug("words were not sent: %s", error)
