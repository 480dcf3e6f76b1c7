"""Messages that a worker sends: a run inside its attempt, named after the call that sends it.

Whoever repeats the call after a crash finds the run it began. The run has the money the call has reserved, and less
time than its sender. What such a run looks like is not decided here.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from chargehand.agents.letters import Letter, Replies, WorkerReply
from chargehand.agents.mail import MAIL, Carried
from chargehand.errors import Invalid
from chargehand.runtime.front import checked_goal
from chargehand.runtime.messaging import Drives, as_message, carry_out, replies_of
from chargehand.runtime.nesting import Call, had_effects, open_call, within
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.plan import digest
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster
from chargehand.tools.calling import ToolFailed

_JOINED = "it joined the team only after the message was sent"


class Messenger:
    """Carries the messages that workers send in the runs of one driver."""

    def __init__(self, driver: Drives) -> None:
        self._driver = driver

    def sender(self, key: str) -> str:
        found = open_call(self._driver, key)
        return found.worker if found is not None else ""

    async def sent(self, key: str) -> int:
        """Messages of the same task, in earlier attempts and before this call. What was refused does not count."""
        sending = open_call(self._driver, key)
        if sending is None:
            return 0
        steps = (sending.progress.steps or {}).items()
        now = sum(number < sending.step and one.name in MAIL and one.good for number, one in steps)
        earlier = await self._driver.journal.read(sending.run) if sending.progress.attempt > 1 else ()
        return now + _begun_before(sending, earlier)

    async def carry(self, key: str, letter: Letter) -> Carried:
        sending = open_call(self._driver, key)
        if sending is None:
            raise ToolFailed("The attempt that sends this is no longer under way.")
        barred = {one.name: why for one in letter.to if (why := _barred(sending, one))}
        rest = structs.replace(letter, to=tuple(one for one in letter.to if one.name not in barred))
        run = ""
        used = NOTHING
        replies = Replies()
        if rest.to:
            asked = digest(letter.text, letter.wanted)[:8]
            if run := await self._acted_before(sending, asked):
                replies = replies_of(run, await self._driver.journal.read(run))
            else:
                run = f"{key}/{asked}"
                replies, used = await self._nested(run, sending, rest)
        by_name = {one.worker: one for one in replies.replies}
        skipped = {name: WorkerReply(name, "skipped", failure=why) for name, why in barred.items()}
        joined = {name: WorkerReply(name, "skipped", failure=_JOINED) for name in (one.name for one in letter.to)}
        ordered = tuple({**joined, **by_name, **skipped}.values())
        return Carried(structs.replace(replies, run=run, replies=ordered), used)

    async def _acted_before(self, sending: Call, asked: str) -> str:
        """The run of the same message from an earlier attempt, if it had effects: it is read back, not done again."""
        if sending.progress.attempt == 1:
            return ""
        journal = self._driver.journal
        start = f"{sending.run}/{sending.progress.task.id}/"
        sent = re.compile(rf"{re.escape(start)}(\d+)/\d+/{asked}")
        found = [one for row in await journal.runs() if (one := sent.fullmatch(row.run))]
        for name in [one[0] for one in found if int(one[1]) < sending.progress.attempt]:
            entries = await journal.read(name)
            if isinstance(entries[-1].event, ev.RunEnded) and await had_effects(journal, name, entries):
                return name
        return ""

    async def _nested(self, run: str, sending: Call, letter: Letter) -> tuple[Replies, Amount]:
        held = sending.held
        try:
            checked_goal(letter.text)
            known = await carry_out(self._driver, run, _request(run, sending, letter, held), quiet=True)
        except Invalid as error:  # said before anything was begun
            raise ToolFailed(f"The message could not be sent: {error}") from error
        replies = replies_of(run, await self._driver.journal.read(run))
        if replies.question is not None:  # nobody can be asked from inside an attempt, and the sender has heard so
            await self._driver.resume(run, ev.CancelRequested("nobody can be asked"), quiet=True)
        # a call that was begun before has been charged with all it had reserved, and the run had no more than that
        used = NOTHING if known and held != NOTHING else replies.spent
        return replies, used


def _begun_before(sending: Call, entries: Sequence[ev.Entry]) -> int:
    """How many messages the earlier attempts of a task sent, as far as they were not refused."""
    task = sending.progress.task.id
    attempt = sending.progress.attempt
    begun: set[tuple[int, int]] = set()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.task == task and event.attempt < attempt and event.name in MAIL:
            begun.add((event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and event.task == task and not event.good:
            begun.discard((event.attempt, event.step))
    return len(begun)


def _barred(sending: Call, agent: Agent) -> str:
    """Why somebody does not get a message."""
    most = sending.state.requested.policy.limits.nesting
    if agent.name in sending.waiting:
        return f"{agent.name} is itself waiting for this answer"
    if sending.nesting > most:
        return f"messages are nested {sending.nesting - 1} deep already, and at most {most} are allowed"
    return ""


def _request(run: str, sending: Call, letter: Letter, held: Amount) -> ev.RunRequested:
    requested = sending.state.requested
    policy: Policy = structs.replace(requested.policy, uncertain="fail")  # nobody can be asked
    parent = sending.parent(sending.chain)
    base = ev.RunRequested(
        goal=letter.text,
        roster=Roster(),
        policy=policy,
        budget=within(requested.budget, held),
        deadline=sending.deadline,
        seed=sending.seed(run),
        parent=parent,
    )
    return as_message(base, letter)
