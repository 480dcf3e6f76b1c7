"""Listeners: functions that are told every entry once it is written, for tracing, metrics and audit logs."""

import logging
from collections.abc import Iterable, Sequence
from types import MethodType

from chargehand.concurrency import log_errors
from chargehand.engine import events as ev
from chargehand.engine.declared import argument_problem, is_async
from chargehand.errors import Invalid
from chargehand.runtime.executor import HistoryListener, Listener, TracingListener

logger = logging.getLogger(__name__)


def check_listener(listener: object) -> None:
    """Raise Invalid for what could not be called as a listener."""
    if not callable(listener):
        problem = f"{listener!r} is no function"
    elif is_async(listener):
        problem = "it is async, and a listener is not awaited"
    else:
        problem = argument_problem(listener, "run", ())
    if problem:
        raise Invalid(f"this cannot listen: {problem}; write a plain function: def listen(run, entries)")


class GuardedListener(HistoryListener):
    """A listener from outside. The first time it raises it is dropped, with a warning: it must not hurt a run."""

    def __init__(self, listener: Listener) -> None:
        check_listener(listener)
        self.listener = listener
        self._is_dropped = False

    def __call__(self, run: str, entries: Sequence[ev.Entry]) -> None:
        self._call(self.listener, run, entries)

    def recall(self, run: str, entries: Sequence[ev.Entry]) -> None:
        if isinstance(self.listener, HistoryListener):
            self._call(self.listener.recall, run, entries)

    def _call(self, listen: Listener, run: str, entries: Sequence[ev.Entry]) -> None:
        if self._is_dropped:
            return
        try:
            listen(run, entries)
        except Exception:
            self._is_dropped = True
            name = getattr(self.listener, "__qualname__", type(self.listener).__qualname__)
            logger.warning("the listener %s failed on run %s and is not called any more", name, run, exc_info=True)


def combine_listeners(listeners: Iterable[Listener]) -> Listener | None:
    """One listener that calls each of these; what one of them raises is logged and keeps nothing from the others."""
    members: list[Listener] = []
    for listener in listeners:
        # one that was added to a team and to a team inside it hears everything once
        if not any(_is_same(listener, member) for member in members):
            members.append(listener)
    if len(members) < 2:
        return members[0] if members else None

    def listen(run: str, entries: Sequence[ev.Entry]) -> None:
        for member in members:
            with log_errors("a listener of run %s failed", run):
                member(run, entries)

    return listen


def recall_history(listeners: Iterable[Listener], run: str, entries: Sequence[ev.Entry]) -> None:
    """Tell those listeners that must know it what a run wrote before it is resumed."""
    for listener in listeners:
        if isinstance(listener, HistoryListener):
            with log_errors("a listener of run %s failed", run):
                listener.recall(run, entries)


def find_tracer(listeners: Iterable[Listener]) -> TracingListener | None:
    """The first listener that makes traces."""
    for listener in map(_unguarded, listeners):
        if isinstance(listener, TracingListener):
            return listener
    return None


def _unguarded(listener: Listener) -> Listener:
    return listener.listener if isinstance(listener, GuardedListener) else listener


def _is_same(listener: Listener, other: Listener) -> bool:
    """Whether two are one and the same. A bound method is made anew each time it is named."""
    listener = _unguarded(listener)
    other = _unguarded(other)
    return listener is other or (isinstance(listener, MethodType) and listener == other)
