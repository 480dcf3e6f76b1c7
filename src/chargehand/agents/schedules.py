"""Schedules of a team file: requests that a server makes at certain times."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import Struct

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import Invalid

_SOON = datetime(2026, 1, 1, tzinfo=UTC)


class ScheduleKeys(Struct, frozen=True, kw_only=True):
    """What a schedule says in a team file as in Python."""

    cron: str
    """Minute, hour, day, month and weekday, as cron has them: `0 8 * * 1-5`."""
    request: str
    """What is asked."""
    timezone: str = "UTC"
    """Where it is that time, such as `Europe/Berlin`."""


class Schedule(ScheduleKeys, frozen=True):
    """A request, and when it is made."""

    name: str

    def check(self) -> None:
        """Raise Invalid for times that cannot be understood."""
        if len(self.cron.split()) != 5:
            raise Invalid(f"cron is {self.cron!r}; write minute, hour, day, month and weekday, such as 0 8 * * 1-5")
        try:
            next(CronSim(self.cron, _SOON.astimezone(ZoneInfo(self.timezone))))
        except (CronSimError, StopIteration) as error:
            raise Invalid(
                f"cron is {self.cron!r}, which never comes ({error}); write it such as 0 8 * * 1-5"
            ) from error
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise Invalid(f"there is no timezone {self.timezone!r}; write it such as Europe/Berlin") from error

    def next_time(self, after: Instant) -> Instant:
        """The first time after an instant."""
        start = datetime.fromtimestamp(after, ZoneInfo(self.timezone))
        return next(CronSim(self.cron, start)).timestamp()

    def latest_time(self, before: Instant, within: Seconds) -> Instant | None:
        """The last time that is not after an instant, and at most so long before it; None if there is none."""
        latest = None
        at = self.next_time(before - within - 1)
        while at <= before:
            latest = at
            at = self.next_time(at)
        return latest
