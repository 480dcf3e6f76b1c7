"""How often somebody may call: so many a minute, as many at once. Who somebody is, is not known here."""

from collections.abc import Callable

from chargehand.terms.policy import Seconds

_MINUTE = 60.0
_MOST = 10_000
"""Callers that are remembered at once."""


class Rates:
    """Calls a minute, by caller. One that has not called for a minute is forgotten."""

    def __init__(self, most: int, clock: Callable[[], Seconds]) -> None:
        self._each = _MINUTE / max(1, most)
        self._clock = clock
        self._due: dict[str, Seconds] = {}
        """When all that a caller has used up so far will have come back."""

    def wait(self, who: str) -> Seconds:
        """Count one call; 0 if it may be made, else how long to wait before the next, and nothing is counted."""
        now = self._clock()
        due = max(now, self._due.get(who, 0.0)) + self._each
        over = due - now - _MINUTE
        if over > 1e-9:  # sums of fractions are not exact
            return over
        if who not in self._due and len(self._due) >= _MOST:
            self._forget(now)
        self._due[who] = due
        return 0.0

    def _forget(self, now: Seconds) -> None:
        """Those who owe nothing; failing that, all: to remember too many costs more than to let some call again."""
        self._due = {who: due for who, due in self._due.items() if due > now}
        if len(self._due) >= _MOST:
            self._due.clear()
