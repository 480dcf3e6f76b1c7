"""What is true of a breaker whoever uses it, told from outside: who was called when, what came of it, who was refused.

It reads a list of things that happened, in order. It knows the rules in words and nothing of how they are kept.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from chargehand.engine.policy import Breaking

Outcome: TypeAlias = Literal["good", "bad", "other"]


class Began(Struct, frozen=True):
    """A call went out."""

    at: float
    call: int


class Ended(Struct, frozen=True):
    """It came back. `bad` counts against the line; `other` says nothing of it, or is cut off."""

    at: float
    call: int
    outcome: Outcome


class Refused(Struct, frozen=True):
    """Somebody was told that nobody is called now."""

    at: float


Happened: TypeAlias = Began | Ended | Refused


class Watch(Struct):
    """What is known so far. `row` are failures since it last answered, `probes` calls that went out while it was open.

    `probing`: one went out, and nothing has failed since. `doubtful` is when it may have opened already, at the
    earliest: also half of many calls, and what says little of the line, may open it.
    """

    numbers: Breaking
    broken: Callable[[str], None]
    row: int = 0
    vague: int = 0  # since it last answered: what may be held against it as well
    opened: int = 0
    until: float = 0.0
    probing: bool = False
    doubtful: float | None = None
    last: float = 0.0
    recent: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    flying: dict[int, float] = field(default_factory=dict[int, float])
    probes: list[int] = field(default_factory=list[int])

    def see(self, one: Happened) -> None:
        match one:
            case Began():
                self._began(one)
            case Ended():
                self._ended(one)
            case Refused():
                self._refused(one)

    def _began(self, one: Began) -> None:
        if self.opened:
            if one.at < self.until:
                self.broken(f"called at {one.at:.2f} after {self.row} failures in a row; not before {self.until:.2f}")
            lease = self.numbers.lease
            beside = [call for call in self.probes if call in self.flying and one.at < self.flying[call] + lease]
            if beside:
                self.broken(f"a second probe at {one.at:.2f} beside that of {self.flying[beside[0]]:.2f}")
            self.probes.append(one.call)
            self.probing = True
        self.flying[one.call] = one.at

    def _ended(self, one: Ended) -> None:
        self.flying.pop(one.call, None)
        if one.outcome == "good":
            self.row = 0
            self.vague = 0
            self.opened = 0
            self.until = 0.0
            self.doubtful = None
            self.probing = False
            self.probes = []
            self.recent.append((one.at, True))
            return
        self.vague += 1
        self.last = one.at
        self.recent.append((one.at, False))
        self.recent = [two for two in self.recent[-4 * self.numbers.sample :] if two[0] >= one.at - self.numbers.window]
        lately = [good for _, good in self.recent]
        ends = range(self.numbers.sample, len(lately) + 1)  # nobody knows where it began to count
        many = any(lately[-size:].count(False) >= self.numbers.share * size for size in ends)
        if self.doubtful is None and (many or self.vague >= self.numbers.consecutive):
            self.doubtful = one.at
        if one.outcome != "bad":
            self.probing = False  # whatever it says: somebody may have taken it for the probe's
            return
        self.row += 1
        if (self.opened and self.probing) or (not self.opened and self.row >= self.numbers.consecutive):
            self._open(one.at)

    def _open(self, at: float) -> None:
        begun = at if self.opened or self.doubtful is None else self.doubtful
        self.opened += 1
        self.probing = False
        self.until = begun + min(self.numbers.open * self.opened, self.numbers.open_ceiling)

    def _refused(self, one: Refused) -> None:
        if self.doubtful is None:
            self.broken(f"shut at {one.at:.2f} after {self.vague} failures since it last answered")
        probing = any(one.at <= began + self.numbers.lease for began in self.flying.values())
        if one.at > self.last + self.numbers.open_ceiling and not probing:
            self.broken(f"stuck: refused at {one.at:.2f}, and the last failure was at {self.last:.2f}")


def watched(happened: Sequence[Happened], numbers: Breaking) -> list[str]:
    """What was wrong, in words."""
    wrong: list[str] = []
    watch = Watch(numbers, wrong.append)
    for one in happened:
        watch.see(one)
    return wrong


def healed(happened: Sequence[Happened], since: float, patience: float) -> list[str]:
    """What was wrong after a provider was well again: it must be found out soon, by one call, and stay found out."""
    before = {one.call for one in happened if isinstance(one, Began) and one.at < since}
    last = max([since, *(one.at for one in happened if isinstance(one, Ended) and one.call in before)])
    later = [one for one in happened if one.at > last]
    found = next((at for at, one in enumerate(later) if isinstance(one, Ended) and one.outcome == "good"), None)
    if found is None:
        return [f"it was well from {last:.2f} on, and nobody found out"]
    wrong: list[str] = []
    if later[found].at > last + patience:
        wrong.append(f"it was well from {last:.2f} on, which took until {later[found].at:.2f} to be found out")
    shut = any(isinstance(one, Refused) for one in later[:found])
    calls = sum(isinstance(one, Began) for one in later[:found])
    if shut and calls > 1:
        wrong.append(f"{calls} calls were made to find out that it is well")
    if late := [one for one in later[found:] if isinstance(one, Refused)]:
        wrong.append(f"it was well and answered at {later[found].at:.2f}, and was shut at {late[0].at:.2f}")
    return wrong
