"""Notices when an attempt goes round in circles: the same calls with the same results, and nothing new in between.

What is done about it is the caller's business, and so is how long a tool may be polled.
"""

import msgspec
from msgspec import Struct

MOST = 3
_SHOWN = 200


class Seen(Struct, frozen=True, gc=False):
    """What a call means for the attempt. `warning` is for the model; `stuck` says that going on is pointless."""

    warning: str = ""
    stuck: bool = False


NOT_SEEN = Seen()


class Repetition:
    """Fed with every call of one attempt, in order.

    A call is a repeat when tool, arguments and result are those of an earlier one. Repeats are counted from the last
    call that was not one: work that leads to new calls or new results is no circle, however often it looks at the same
    thing in between, and two calls that alternate without end are one. Polling is never counted.
    """

    __slots__ = ("_known", "_times")

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[str]] = {}
        self._times: dict[tuple[str, str, int], int] = {}

    def feed(self, tool: str, arguments: str, result: str, *, poll: bool = False) -> Seen:
        """Note one call and what came of it: a warning at the second time, stuck at the third."""
        if poll:
            return NOT_SEEN
        alike = self._known.get((tool, result))
        if alike is None:  # arguments are only looked at where tool and result are the same: mostly they are not
            self._known[tool, result] = [arguments]
            self._times.clear()
            return NOT_SEEN
        number = next((index for index, earlier in enumerate(alike) if _same(earlier, arguments)), len(alike))
        if number == len(alike):
            alike.append(arguments)
            self._times.clear()
            return NOT_SEEN
        mark = (tool, result, number)
        times = self._times[mark] = self._times.get(mark, 1) + 1
        shown = result if len(result) <= _SHOWN else result[:_SHOWN] + "..."
        words = f"{tool} was already called with these arguments and gave the same result: {shown}"
        if times < MOST:
            return Seen(f"{words}\nUse that result, or do something else.")
        return Seen(f"{words}\nThat was call {times} of the same kind, with nothing new in between.", stuck=True)


def _same(one: str, other: str) -> bool:
    """Whether two calls mean the same: the order of keys and white space do not count."""
    return one == other or _plain(one) == _plain(other)


def _plain(arguments: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments or "{}"), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return arguments.strip().encode(errors="surrogatepass")
