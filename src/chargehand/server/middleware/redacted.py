"""A journal into which no secret is written, and a crew that is handed none, so that what is used is what was written.

A resumed run reads what stands in the journal; had the first try used anything else, it would not ask for the same
again, and what it did might be done twice. So results are cleaned before they are recorded, and used as recorded.
"""

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from chargehand.agents.crew import Crew, Done, Hand, Proposal, Refined, WorkFailed
from chargehand.core.owed import Brief
from chargehand.models.code_errors import failure_of
from chargehand.models.find import Lookup
from chargehand.models.known import OTHERS, OWN, key_variable
from chargehand.server.middleware.guarded_hand import GuardedHand, as_done, clean_failure
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.settings import Settings
from chargehand.stores.journal import Lease
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms import events as ev

_Came = TypeVar("_Came", Done, Proposal, Refined)
_ENCODER = msgspec.json.Encoder()
_EVENTS: msgspec.json.Decoder[ev.Event] = msgspec.json.Decoder(ev.Event)
_PROPOSALS = msgspec.json.Decoder(Proposal)


class RedactedJournal(SqliteJournal):
    """`redactor` is set by who opens it."""

    redactor = Redactor(())

    def clean(self, event: ev.Event) -> ev.Event:
        """The event without secrets; the very same one where it holds none."""
        try:
            body = _ENCODER.encode(event)
        except (TypeError, ValueError, RecursionError):
            return event  # it cannot be written, and whoever tries will be told
        cleaned = self.redactor.clean(body)
        return event if cleaned is body else _EVENTS.decode(cleaned)

    def guarded(self, crew: Crew) -> Crew:
        """The crew, with clean hands."""
        return _GuardedCrew(crew, self.redactor)

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        """The last net: nearly all of it is clean already."""
        await super().append(lease, [self._cleaned(one) for one in entries])

    def _cleaned(self, entry: ev.Entry) -> ev.Entry:
        event = self.clean(entry.event)
        return entry if event is entry.event else structs.replace(entry, event=event)


async def redacted(path: Path, settings: Settings, lookup: Lookup) -> RedactedJournal:
    journal = await RedactedJournal.open(path)
    assert isinstance(journal, RedactedJournal)
    journal.redactor = redactor_of(settings, lookup)
    return journal


def redactor_of(settings: Settings, lookup: Lookup) -> Redactor:
    """One that knows the server's token, what the operator calls secret, and the keys of every provider."""
    variables = {one.key for one in OWN.values()} | {key_variable(name) for name in OTHERS}
    return Redactor((settings.token, *settings.secrets, *(lookup(name) or "" for name in sorted(variables))))


class _GuardedCrew:
    """Does what another does."""

    def __init__(self, crew: Crew, redactor: Redactor) -> None:
        self._crew = crew
        self._redactor = redactor

    async def plan(self, brief: Brief, hand: Hand) -> Proposal:
        clean = GuardedHand(hand, self._redactor)
        found = await self._done(self._crew.plan(brief, clean), clean)
        body = _ENCODER.encode(found)
        cleaned = self._redactor.clean(body)
        return found if cleaned is body else _PROPOSALS.decode(cleaned)

    async def attempt(self, brief: Brief, hand: Hand) -> Done:
        clean = GuardedHand(hand, self._redactor)
        return as_done(await self._done(self._crew.attempt(brief, clean), clean), self._redactor)

    async def refine(self, brief: Brief, hand: Hand) -> Refined:
        clean = GuardedHand(hand, self._redactor)
        found = await self._done(self._crew.refine(brief, clean), clean)
        return structs.replace(found, instruction=self._redactor.text(found.instruction))

    async def answer(self, brief: Brief, hand: Hand) -> Done:
        clean = GuardedHand(hand, self._redactor)
        return as_done(await self._done(self._crew.answer(brief, clean), clean), self._redactor)

    async def _done(self, work: Coroutine[Any, Any, _Came], hand: GuardedHand) -> _Came:
        """What came of it; what went wrong is told without secrets, too."""
        try:
            return await work
        except WorkFailed as error:
            failure = clean_failure(error.failure, self._redactor)
            findings = tuple(structs.replace(one, message=self._redactor.text(one.message)) for one in error.findings)
            raise WorkFailed(failure, error.used, findings) from error
        except Exception as error:
            failure = failure_of(error)
            cleaned = clean_failure(failure, self._redactor)
            if cleaned is not failure:
                raise WorkFailed(cleaned) from None
            raise
        finally:
            hand.flush()
