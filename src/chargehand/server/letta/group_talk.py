"""Talks of groups: begun, waited for, read again. Each is a run; sleeptime groups begin more, for nobody to wait."""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from chargehand.errors import ChargehandError, RunUnknown
from chargehand.memory.catalog import Group, Profile
from chargehand.runtime.driver import Driver, Outcome
from chargehand.server.house import House
from chargehand.server.letta.asked import Asked, Said
from chargehand.server.letta.group_crew import GroupCrew, supervised
from chargehand.server.letta.group_shapes import BEHIND
from chargehand.server.letta.mapping import items
from chargehand.server.letta.message_shapes import MessageTold, StopTold, TalkTold, UsageTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.resuming import patiently
from chargehand.server.letta.speech import Speech
from chargehand.server.letta.spoken import speech
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem
from chargehand.terms import events as ev
from chargehand.terms.budget import Budget
from chargehand.terms.plan import Task
from chargehand.terms.policy import Limits, Policy, Retry, Seconds
from chargehand.terms.roster import Roster

_POLICY = Policy(retry=Retry(attempts=1), limits=Limits(width=50, nesting=8, plans=100), refine=False, answer=0.0)
_LONGEST: Seconds = 6 * 3600.0
_MOST_BEGUN = 256
_MOST_GROUPS = 100_000
_MOST_RUNS = 1000  # that a group remembers
_STOPS = {"complete": "end_turn", "partial": "end_turn", "cancelled": "cancelled"}
_BEHIND = (
    "You work behind another agent, while nobody waits for you. Below is what was said just now. Keep what is worth "
    "keeping in your memory blocks, and tidy what stands there."
)

logger = logging.getLogger(__name__)


class Begun(Struct, frozen=True):
    """A talk on its way: when it is `done`, `told` says what came of it."""

    run: str
    done: "asyncio.Future[Any]"
    told: Callable[[], Awaitable[TalkTold]]


class GroupOffice:
    """Where groups of one house are talked to. `house.part(GroupOffice)` is it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._office = house.part(Office)
        self._crew = GroupCrew(house, self._office.crew)
        self._driver = Driver(house.journal, self._crew, listener=house.heard)
        house.drivers.append(self._driver)
        self._begun: dict[str, Begun] = {}
        """The latest calls, by their marks: one that is made again joins its talk."""

    async def begin(self, group: Group, asked: Asked, *, repeated: bool = False) -> Begun:
        """Begin a talk, or join the one that this very call began; back when it is on disk."""
        known = self._begun.get(asked.mark)
        if repeated and known is not None:
            return known
        if not group.members:
            raise Problem(422, "invalid", "there is no agent left in this group; add one first")
        begin = self._behind if group.kind in BEHIND else self._together
        found = self._begun[asked.mark] = await begin(group, asked)
        while len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        return found

    async def _together(self, group: Group, asked: Asked) -> Begun:
        run = f"run-{uuid.uuid4()}"
        request = await self._request(group, asked.text)
        await self._remember(group.id, run)
        self._crew.groups[run] = group
        done = await self._house.floor.begin(run, lambda: self._carried(run, request))
        return Begun(run, done, lambda: self.told(run))

    async def resume(self, group: Group) -> int:
        """Go on with what a crash cut off; how many there were."""
        taken = 0
        for run in runs_of(group)[-20:]:
            try:
                taken += await self._gone_on_with(group, run)
            except RunUnknown:
                continue  # it was to be begun, and never was
            except (ChargehandError, Problem) as error:  # the others must not be left over it
                logger.warning("run %s was not taken up: %s", run, error)
        return taken

    async def _gone_on_with(self, group: Group, run: str) -> bool:
        entries = await self._house.journal.read(run)
        if self._house.floor.carries(run) or any(isinstance(one.event, ev.RunEnded) for one in entries):
            return False
        if speech(run, entries).asked is not None:
            return False  # of the one who leads: as any talk with an agent, it is taken up by `resuming`
        self._crew.groups[run] = group
        return await patiently(lambda: self._house.floor.begin(run, lambda: self._carried(run, None)))

    async def told(self, run: str) -> TalkTold:
        entries = await self._house.journal.read(run)
        said = [one for each in speeches(run, entries) for one in each.told().messages]
        said.sort(key=lambda one: one.date)
        end = next((one.event for one in entries if isinstance(one.event, ev.RunEnded)), None)
        stop = _STOPS.get(end.ending, "error") if end is not None else "error"
        return TalkTold(await self._signed(said, entries, run), StopTold(stop), _usage(run, entries))

    async def _signed(self, said: list[MessageTold], entries: Sequence[ev.Entry], run: str) -> list[MessageTold]:
        """Messages with the name of whoever said them."""
        names: dict[str, tuple[str, str]] = {}
        for each in speeches(run, entries):
            profile = await self._house.memory.catalog.get(Profile, each.agent)
            for one in each.messages:
                names[one.id] = each.agent, each.agent if profile is None else profile.name
        return [structs.replace(one, sender_id=names[one.id][0], name=one.name or names[one.id][1]) for one in said]

    # --- inside

    async def _carried(self, run: str, request: ev.RunRequested | None) -> Outcome:
        try:
            if request is None:
                return await self._driver.resume(run)
            return await self._driver.start(run, request)
        finally:
            self._crew.groups.pop(run, None)
            try:
                await self._office.book.keep(speeches(run, await self._house.journal.read(run)), self._office.resets)
            except ChargehandError as error:
                logger.warning("run %s is not in the book: %s", run, error)

    async def _request(self, group: Group, text: str) -> ev.RunRequested:
        catalog, crew = self._house.memory.catalog, self._office.crew
        ids = dict.fromkeys((*group.members, str(group.settings.get("manager_agent_id") or "")))
        profiles = [one for which in ids if (one := await catalog.get(Profile, which)) is not None]
        there = {one.id for one in profiles}
        plan = None
        if group.kind == "supervisor":
            if group.settings["manager_agent_id"] not in there:
                raise Problem(422, "invalid", "the agent that leads this group is gone; name another manager_agent_id")
            plan = supervised(text, group)
        roster = Roster(tuple(crew.agent(one) for one in profiles))
        seed = uuid.uuid4().int & 0xFFFFFFFF
        return ev.RunRequested(text, roster, _POLICY, Budget(), time.time() + _LONGEST, seed, plan)

    async def _remember(self, which: str, run: str) -> None:
        catalog = self._house.memory.catalog
        async with changing(self._house, which):
            group = await catalog.get(Group, which)
            if group is not None:
                kept = {**group.settings, "runs": [*runs_of(group), run][-_MOST_RUNS:]}
                await catalog.change(structs.replace(group, settings=kept))

    # --- sleeptime

    async def _behind(self, group: Group, asked: Asked) -> Begun:
        """Whoever leads answers at once; every so many turns the members are set to work behind it."""
        leader = await self._house.memory.catalog.get(Profile, str(group.settings["manager_agent_id"]))
        if leader is None:
            raise Problem(422, "invalid", "the agent that leads this group is gone; name another manager_agent_id")
        talk = await self._office.say(leader, structs.replace(asked, agent=leader.id))
        await self._remember(group.id, talk.run)
        gate, behind = asyncio.Lock(), dict[str, None]()

        async def told() -> TalkTold:
            """Whoever asks twice sets nobody to work twice."""
            found = talk.speech.told()
            async with gate:
                if not behind:
                    behind.update(dict.fromkeys((talk.run, *await self._set_to_work(group.id, asked.text, found))))
            return structs.replace(found, usage=structs.replace(found.usage, run_ids=tuple(behind)))

        return Begun(talk.run, talk.done, told)

    async def _set_to_work(self, which: str, asked: str, told: TalkTold) -> list[str]:
        catalog = self._house.memory.catalog
        async with changing(self._house, which):
            group = await catalog.get(Group, which)
            if group is None:
                return []
            before = group.settings.get("turns")
            turns = (before if isinstance(before, int) else 0) + 1
            group = await catalog.change(structs.replace(group, settings={**group.settings, "turns": turns}))
        every = group.settings.get("sleeptime_agent_frequency")
        if isinstance(every, int) and turns % every:
            return []
        said = "\n".join(one.content or "" for one in told.messages if one.message_type == "assistant_message")
        text = f"{_BEHIND}\n\nAsked: {asked}\n\nReplied: {said}"
        runs: list[str] = []
        for member in group.members:
            if (profile := await catalog.get(Profile, member)) is not None:
                talk = await self._office.say(profile, Asked(member, (Said(text),), background=True))
                runs.append(talk.run)
        return runs


async def resume_groups(house: House) -> int:
    """Go on with every talk of a group that a crash or a stop cut off; how many there were."""
    office = house.part(GroupOffice)
    return sum([await office.resume(one) for one in await house.memory.catalog.find(Group, limit=_MOST_GROUPS)])


def runs_of(group: Group) -> list[str]:
    return [str(one) for one in items(group.settings.get("runs"))]


def speeches(run: str, entries: Sequence[ev.Entry]) -> list[Speech]:
    """What each agent said in each turn of a talk."""
    tasks: dict[str, Task] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.RunRequested) and event.plan is not None:
            tasks |= {one.id: one for one in event.plan.tasks}
        elif isinstance(event, ev.TasksAdded):
            tasks |= {one.id: one for one in event.tasks}
    found = [Speech(run, one.worker, one.id, inside=True) for one in tasks.values()]
    for each in found:
        for entry in entries:
            each.hear(entry)
    return found


def _usage(run: str, entries: Sequence[ev.Entry]) -> UsageTold:
    total = UsageTold(run_ids=(run,))
    for each in speeches(run, entries):
        for name in ("completion_tokens", "prompt_tokens", "total_tokens", "step_count", "cached_input_tokens"):
            setattr(total, name, getattr(total, name) + getattr(each.usage, name))
    return total
