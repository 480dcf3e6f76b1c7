"""How the latest run of an agent ended, as its client asks for it: why it stopped, when, and how long it took."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from chargehand.memory.catalog import Profile
from chargehand.server.letta.book_rows import run_told
from chargehand.server.letta.message_shapes import RunTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.shapes import moment
from chargehand.server.tenants import Tenant

_MILLION = 1_000_000


class _Ended(Struct):
    """What is read of a run in the book."""

    completed_at: str | None = None
    stop_reason: str | None = None
    total_duration_ns: int | None = None


_DECODER = msgspec.json.Decoder(_Ended)


async def with_last_runs(tenant: Tenant, profiles: Sequence[Profile]) -> list[Profile]:
    """Agents with what is known of their latest runs. What a client wrote since then stays."""
    office = tenant.part(Office)
    bodies = await office.book.last([one.id for one in profiles])
    ended: dict[str, _Ended | RunTold] = {which: _DECODER.decode(body) for which, body in bodies.items()}
    for talk in office.talks.values():  # those that are over and not in the book yet
        if talk.speech.over:
            ended[talk.agent] = run_told(talk.speech)
    return [_with(one, ended[one.id]) if one.id in ended else one for one in profiles]


def _with(profile: Profile, run: _Ended | RunTold) -> Profile:
    if run.completed_at is None or ("last_run_completion" in profile.settings and _is_newer(profile, run.completed_at)):
        return profile
    facts = {
        "last_stop_reason": run.stop_reason,
        "last_run_completion": run.completed_at,
        "last_run_duration_ms": None if run.total_duration_ns is None else run.total_duration_ns // _MILLION,
    }
    return structs.replace(profile, settings={**profile.settings, **facts})


def _is_newer(profile: Profile, completed: str) -> bool:
    return moment(profile.updated) > completed
