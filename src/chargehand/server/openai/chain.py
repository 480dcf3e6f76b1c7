"""Conversations of responses: which runs went on from a run, and so hold what was said in it."""

import msgspec

from chargehand.journal.protocol import Journal
from chargehand.server.openai.parts import parse_response_id
from chargehand.server.openai.request import recorded_request

_PAGE = 500
_NEWEST = 2**63 - 1


async def runs_after(journal: Journal, run: str) -> tuple[str, ...]:
    """Return the later runs of the conversation that a run belongs to, the first of them first.

    The request of each holds the turns before it, also after the runs of those turns were deleted.
    """
    previous: dict[str, str] = {}  # of each later run, the latest first: the run it went on from
    before = _NEWEST
    while page := await journal.latest(before=before, limit=_PAGE):
        for row in page:
            if row.run == run:
                return _chain_from(run, previous)
            try:
                request = None if row.request is None else recorded_request(row.request)
            except msgspec.MsgspecError:
                continue
            response = None if request is None else parse_response_id(request.previous)
            if response is not None:
                previous[row.run] = response.run
        before = page[-1].number
    return _chain_from(run, previous)


def _chain_from(run: str, previous: dict[str, str]) -> tuple[str, ...]:
    chain = [run]
    for later, earlier in reversed(previous.items()):
        if earlier in chain:
            chain.append(later)
    return tuple(chain[1:])
