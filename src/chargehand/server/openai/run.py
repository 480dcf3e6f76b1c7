"""A conversation carried out as a run: begun once however often the call is made, and followed to where it stops."""

import asyncio
import time

from msgspec import Struct, structs
from starlette.requests import Request

from chargehand.agents.messages import PERSON, addressed, message_request
from chargehand.engine.events import Entry
from chargehand.engine.roster import Match
from chargehand.engine.state import Work
from chargehand.errors import RunBusy
from chargehand.runtime.runner import checked
from chargehand.server.idempotency import Repeats, RunKey, is_repeated, key_of, mark_of
from chargehand.server.openai.request import Conversation, Target, TeamRequest
from chargehand.server.problem import Problem
from chargehand.server.run_control import RecordedRun, read_run, resume_run
from chargehand.server.streams import Output
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant

_TRIES = 600
_SOON = 0.1


class Call(Struct, frozen=True):
    """A call: of whom, about what, and what is noted of it."""

    target: Target
    conversation: Conversation
    request: TeamRequest


class Listener:
    """Hears the words of a run while they are written. It must listen before the run begins, to miss none of them.

    One that never listens, because the run was begun before, hears nothing: half an answer is no beginning of it.
    `answering_work` is the kind of work whose words become the answer.
    """

    def __init__(self, tenant: Tenant, answering_work: str) -> None:
        self._tenant = tenant
        self._run = ""
        self.answering_work = answering_work
        self.output = Output[Entry | tuple[Work, str]]()

    def listen(self, run: str) -> None:
        self._run = run
        self._tenant.word_listeners.setdefault(run, []).append(self._on_words)

    def leave(self) -> None:
        listeners = self._tenant.word_listeners.get(self._run, [])
        if self._on_words in listeners:
            listeners.remove(self._on_words)
        if not listeners:
            self._tenant.word_listeners.pop(self._run, None)

    def _on_words(self, work: Work, words: str) -> None:
        self.output.add((work, words))


async def run_call(request: Request, tenant: Tenant, sent: Struct, call: Call, listener: Listener | None = None) -> str:
    """The run of a call: a new one, on disk, whose words are listened to, or the one that the same call began."""
    key = key_of(request, tenant, sent)
    if key is not None:
        begun = await key.begin(tenant, lambda: _begin(tenant, call, listener, key))
        return begun.run
    mark = await mark_of(request)
    repeats = tenant.part(Repeats)
    if is_repeated(request) and (run := await repeats.begun_by(mark)):
        return run
    return await repeats.begin(mark, lambda: _begin(tenant, call, listener, None, mark))


async def _begin(tenant: Tenant, call: Call, listener: Listener | None, key: RunKey | None, mark: str = "") -> str:
    tenant.runs.check()
    target = call.target
    now = time.time()
    served = await tenant.part(Teams).of(target.team.name)
    team = await served.keep_budget()
    heeds_wishes = not target.reads_facts
    goal = call.conversation.goal(heeds_wishes=heeds_wishes)
    material = call.conversation.material()
    request = team.request(goal, now, seed=None if key is None else key.seed)
    request = structs.replace(request, inputs=material, outside=bool(material))
    if target.worker:
        message = addressed(
            agents=team.members, text=goal, match=Match(), names=(target.worker,), sender=PERSON, timeout=None
        )
        # with the name of its team it goes on after a restart, and can be spoken to, like any other run
        request = structs.replace(message_request(request, message), team=team.name)
    request = structs.replace(request, client=call.request.to_record(mark))
    run = served.new_name() if key is None else key.run
    if listener is not None:
        listener.listen(run)
    try:
        outcome = await served.start(team, checked(request, now), run)
    except BaseException:
        if listener is not None:
            listener.leave()
        raise
    if listener is not None:
        outcome.add_done_callback(lambda _: listener.leave())  # also where the client never fetched its stream
    return run


async def wait_for_run(tenant: Tenant, run: str) -> RecordedRun:
    """The run where it stops: it has ended, or waits for a person. One that nobody carries is resumed."""
    for _ in range(_TRIES):
        outcome = await tenant.runs.outcome(run)
        recorded = await read_run(tenant, run)
        state = recorded.state
        if outcome is not None or state.ended is not None or state.input is not None or state.paused:
            return recorded
        try:
            await resume_run(tenant, recorded)
        except RunBusy:  # somebody was faster: it is carried soon, or over
            await asyncio.sleep(_SOON)
    raise Problem(503, "busy", f"run {run!r} is carried by another process; ask for it again soon", after=5.0)
