"""Text of runs as models write it, carried from the process that drives a run to processes that listen."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from chargehand.engine.state import TextKind, Work

OnWords: TypeAlias = Callable[[Work, str, TextKind], None]


class Words(Protocol):
    """Carries text that is not kept: what is under way when a connection breaks is lost."""

    def subscribe(self, run: str, on_words: OnWords) -> Callable[[], None]:
        """Have `on_words` called in this event loop with what another process says for a run; the result ends it."""
        ...

    def is_heard(self, run: str) -> bool:
        """Whether another process listens to a run; true as well for a moment in which that is not known yet."""
        ...

    def publish(self, run: str, work: Work, text: str, kind: TextKind = "answer") -> None:
        """Say a piece of text to all who listen to a run. Pieces of one moment travel together."""
        ...
