"""Notifies followers of a run about entries that other processes write: one notice a commit, and a regular query."""

from collections.abc import Callable, Sequence

from chargehand.engine.policy import Seconds
from chargehand.journal.postgres_listener import Followers, PostgresListener
from chargehand.journal.postgres_writer import CHANNEL, run_digest
from chargehand.postgres.driver import Connection

_ALL = "*"
"""The key of more runs than a notification can name."""
_SEQS = "SELECT run, seq FROM runs WHERE tenant = current_tenant() AND run = ANY ($1::text[])"


class PostgresNotices:
    """One for each opened journal.

    `is_own` says of a process of the server whether it writes for this journal, whose entries are known here.
    """

    def __init__(self, listener: PostgresListener, is_own: Callable[[int], bool]) -> None:
        self._listener = listener
        self._is_own = is_own
        self._followers = Followers()
        self._followers_of_own = Followers()
        self._followers_of_all = Followers()
        self._seqs: dict[str, int] = {}
        self.name = CHANNEL
        listener.add(self)

    def subscribe(self, run: str, on_entries: Callable[[], None], *, own: bool = False) -> Callable[[], None]:
        followers = self._followers_of_own if own else self._followers
        unsubscribe = followers.add(run_digest(run), run, on_entries)
        self._listener.start()
        return unsubscribe

    def subscribe_all(self, on_entries: Callable[[], None]) -> Callable[[], None]:
        unsubscribe = self._followers_of_all.add(_ALL, "every run", on_entries)
        self._listener.start()
        return unsubscribe

    @property
    def lag(self) -> Seconds:
        return self._listener.lag

    @property
    def runs(self) -> set[str]:
        """Return the runs that are followed."""
        return self._followers.topics | self._followers_of_own.topics

    async def query(self, connection: Connection) -> None:
        """Notify the followers of runs that were written since the last query."""
        self._followers_of_all.notify([_ALL])
        runs = self.runs
        before = self._seqs
        rows = await connection.fetch(_SEQS, list(runs)) if runs else []
        self._seqs = {run: seq for run, seq in rows}  # noqa: C416 - rows are sequences, not tuples
        written = [run_digest(run) for run, seq in self._seqs.items() if before.get(run) != seq]
        for followers in (self._followers, self._followers_of_own):
            followers.notify(written)

    def on_notice(self, keys: Sequence[str], process: int) -> None:
        self._notify(self._followers_of_own, keys)
        if not self._is_own(process):
            self._followers_of_all.notify([_ALL])
            self._notify(self._followers, keys)

    def _notify(self, followers: Followers, keys: Sequence[str]) -> None:
        followers.notify(keys if list(keys) != [_ALL] else followers.keys)
