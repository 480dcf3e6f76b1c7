"""The world of one seed of `people`: programs of workers, the model that plays them, and services with own books.

What really happened is written in `World.calls`, whatever a journal says. `people_oracle` judges by it.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from chargehand.agents.setup import GIVE_UP
from chargehand.engine.failure import Failure
from chargehand.models.messages import Message, Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.request_facts import Planning, Refining, Working
from chargehand.tools.tool import Caller, Tool, ToolFailed, Unknown, tool

Kind = Literal["pay", "mail", "note", "append", "ask", "look"]
EFFECTS = ("pay", "mail")
"""Kinds of calls that must not happen twice and that no key protects."""
LINE = ("network", "timeout", "resource")
"""Failures of a model that waiting mends."""
_NAMES: dict[Kind, str] = {"append": "core_memory_append", "ask": "ask_person"}
_PROGRAM = re.compile(r"\[(\S+): ([^\]]*)\]")
_ITEM = re.compile(r"entry-\d+")
_TRIES = 3


class Operation(Struct, frozen=True):
    """A call that a program makes."""

    kind: Kind
    item: str
    """What the call is about: a bill, a letter, a note. No other operation of the seed has it."""
    repeat: bool = False
    """The same call a second time, in the same words, on purpose."""

    @property
    def text(self) -> str:
        """Return the operation as a program has it."""
        return f"{self.kind}{'!' if self.repeat else ''} {self.item}"


Program = tuple[tuple[Operation, ...], ...]
"""Rounds of calls; the calls of a round are in one reply."""


def program_text(name: str, program: Program) -> str:
    """Return a program as an instruction has it."""
    return f"[{name}: {'; '.join(' + '.join(each.text for each in calls) for calls in program)}]"


def read_program(instruction: str, entry: str = "") -> tuple[str, Program]:
    """Return the name and the rounds of the program in an instruction; `entry` is that of a list it is played for."""
    found = _PROGRAM.search(instruction)
    assert found is not None, f"there is no program in {instruction!r}"
    suffix = f"/{entry}" if entry else ""
    rounds: list[tuple[Operation, ...]] = []
    for calls in filter(None, found[2].split("; ")):
        words = [call.split(" ") for call in calls.split(" + ")]
        rounds.append(tuple(Operation(kind.rstrip("!"), item + suffix, kind.endswith("!")) for kind, item in words))  # pyright: ignore[reportArgumentType] - written by `program_text`
    return found[1] + suffix, tuple(rounds)


class MadeCall(Struct, kw_only=True):
    """A call that reached a service."""

    kind: Kind
    item: str
    words: str
    key: str
    run: str
    task: str
    attempt: int
    at: float
    life: int
    number: int
    """The place of the call among all calls of the seed; its result has it."""
    happened: bool = False
    returned: bool = False

    @property
    def token(self) -> str:
        """Return what the result of the call holds and no other text does."""
        return f"receipt {self.item} no{self.number}."


class Asked(Struct):
    """A call of the model for a program, and what came of it."""

    name: str
    number: int
    phase: int
    life: int
    outcome: Literal["", "reply", "failed"] = ""


class Fault(Struct, frozen=True):
    """What goes wrong once, where a program comes to a round; or, of a call, at its service."""

    kind: Literal["network", "timeout", "resource", "give_up", "lost", "hang", "declined"]
    times: int = 1


class World(Struct):
    """All that happens outside of the library in a seed."""

    seed: int
    chance: random.Random
    parrot: bool = False
    """The model words a call the same way every time it is asked."""
    lies: bool = False
    """A worker says that all was done, whatever was refused."""
    faults: dict[tuple[str, int], Fault] = {}
    """What goes wrong with the model, by program and round."""
    service_faults: dict[str, Fault] = {}
    """What goes wrong at a service, by item."""
    calls: list[MadeCall] = []
    asked: list[Asked] = []
    declined: set[str] = set()
    """Items of which a service declined a call: the next one is another call to it."""
    wordings: Counter[str] = field(default_factory=Counter[str])
    untold: list[str] = []
    """Calls of earlier attempts that a later one should have been told of and was not."""
    life: int = 0
    phase: int = 1
    recorded: list[bytes] = []
    """The results of steps that the journal holds."""
    told: frozenset[str] = frozenset()
    """The programs whose later attempts must be told of earlier ones; a second plan has tasks of its own."""
    looks: bool = False
    """The services can be asked whether a call happened."""
    attempts: int = 3
    """Attempts that a worker has."""
    spoiled: set[str] = set()
    """Programs of which a worker gave up or a service failed: they may need a second start."""

    def happened(self, item: str) -> int:
        """Return how often a call about an item happened."""
        return sum(call.happened for call in self.calls if call.item == item)

    def by_key(self, key: str) -> MadeCall | None:
        """Return the call that happened under a key."""
        return next((call for call in self.calls if call.happened and call.key == key), None)

    # --- the services

    def can_tell(self, item: str) -> bool:
        """Return whether a service knows of a call about an item whether it happened."""
        return self.looks and random.Random(f"tell/{self.seed}/{item}").random() < 0.8

    async def look_up(self, arguments: Mapping[str, object], key: str) -> object:
        """Return what a call returned, None where it did not happen, or `Unknown`."""
        await asyncio.sleep(0.1)
        if not self.can_tell(str(arguments["item"])):
            return Unknown
        made = self.by_key(key)
        return None if made is None else made.token

    async def serve(self, kind: Kind, item: str, words: str, caller: Caller) -> str:
        """Carry out a call and write it down."""
        call = MadeCall(
            kind=kind,
            item=item,
            words=words,
            key=caller.key,
            run=caller.run,
            task=caller.task,
            attempt=caller.attempt,
            at=asyncio.get_running_loop().time(),
            life=self.life,
            number=len(self.calls) + 1,
        )
        self.calls.append(call)
        await asyncio.sleep(self.chance.uniform(0, 1))
        fault = self.service_faults.pop(item, None)
        if fault is not None and fault.kind == "declined":
            self.declined.add(item)
            self.spoiled.add(item.rpartition("-")[0])
            raise ToolFailed("declined; try again")
        call.happened = True
        if fault is not None:
            self.spoiled.add(item.rpartition("-")[0])
            if fault.kind == "hang":
                await asyncio.sleep(10_000)
            raise ConnectionError("the line went dead before the receipt came")
        await asyncio.sleep(self.chance.uniform(0, 1))
        call.returned = True
        return call.token

    def tools(self, *, kinds: frozenset[str]) -> list[Tool]:
        """Return the tools of a worker."""

        happened = self.look_up if self.looks else None

        @tool(effect="effect", approve=True, trusted=True, timeout=20, happened=happened)
        async def pay(item: str, words: str, caller: Caller) -> str:
            """Pay a bill."""
            return await self.serve("pay", item, words, caller)

        @tool(effect="effect", trusted=True, timeout=20, happened=happened)
        async def mail(item: str, words: str, caller: Caller) -> str:
            """Send a letter."""
            return await self.serve("mail", item, words, caller)

        @tool(effect="idempotent", trusted=True, timeout=20)
        async def note(item: str, words: str, caller: Caller) -> str:
            """Write a note under the key of the call."""
            return await self.serve("note", item, words, caller)

        @tool(timeout=20)
        async def look(item: str, words: str, caller: Caller) -> str:
            """Read what strangers wrote."""
            return await self.serve("look", item, words, caller)

        return [each for each in (pay, mail, note, look) if each.name in kinds]

    # --- faults

    def fault_at(self, name: str, number: int) -> Fault | None:
        """Return what goes wrong where a program comes to a round; it goes wrong so often and then no more."""
        fault = self.faults.get((name, number))
        if fault is None:
            return None
        if fault.times > 1:
            self.faults[name, number] = Fault(fault.kind, fault.times - 1)
        else:
            del self.faults[name, number]
        return fault


class Clerk:
    """A model that plays programs. It knows what it did from its messages alone."""

    def __init__(self, world: World) -> None:
        self.card = ModelCard("clerk", micros_in=0.0, micros_out=0.0, keeps_limit=True)
        self._world = world

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        world = self._world
        subject = request.subject
        name = ""
        if isinstance(subject, Working):
            values = " ".join(str(given.value) for given in subject.inputs)
            entry = _ITEM.search(values) if "each entry" in subject.instruction else None
            name, program = read_program(subject.instruction, entry[0] if entry else "")
        asked = Asked(name, len(world.asked) + 1, world.phase, world.life)
        world.asked.append(asked)
        await asyncio.sleep(world.chance.uniform(0, 2))
        if not isinstance(subject, Working):
            text = self._supervised(subject)
            asked.outcome = "reply"
            return Reply(text, usage=Usage(asked.number, 1))
        try:
            reply = self._work(name, program, request)  # pyright: ignore[reportPossiblyUnboundVariable] - set above
        except ModelFailed:
            asked.outcome = "failed"
            raise
        asked.outcome = "reply"
        return Reply(reply.text, reply.calls, reply.finish, usage=Usage(asked.number, 1))

    def _supervised(self, subject: object) -> str:
        if isinstance(subject, Refining):
            return f"{subject.instruction} Take more care."
        if isinstance(subject, Planning):
            return _planned(subject)
        return "All of it is finished."

    def _work(self, name: str, program: Program, request: Request) -> Reply:
        world = self._world
        history = _History(request.messages)
        if not history.calls:
            self._check_told(name, program, history)
        rounds = [left for calls in program if (left := [call for call in calls if not history.knows(call)])]
        position = len(program) - len(rounds)
        fault = world.fault_at(name, position)
        if fault is not None and fault.kind == "give_up":
            world.spoiled.add(name)
            return Reply("", (ToolCall(f"g{len(world.asked)}", GIVE_UP.name, '{"reason": "too hard"}'),), "tools")
        if fault is not None:
            if world.attempts == 1:
                world.spoiled.add(name)
            raise ModelFailed(Failure(fault.kind, "it did not work out"))  # pyright: ignore[reportArgumentType] - one of LINE
        if rounds:
            return Reply("", tuple(self._call(operation, history) for operation in rounds[0]), "tools")
        if "list of entries" in request.messages[1].text:
            return Reply('["entry-1", "entry-2"]')
        if history.refused and not world.lies:
            return Reply("Finished, except for what was refused.")
        return Reply("Everything was paid and sent." if history.refused else "Finished.")

    def _call(self, operation: Operation, history: "_History") -> ToolCall:
        """Return a call, worded otherwise than the last time it was asked for."""
        world = self._world
        item = operation.item
        number = world.wordings[item]
        world.wordings[item] += 1
        name = _NAMES.get(operation.kind, operation.kind)
        arguments: dict[str, object]
        match operation.kind:
            case "append":
                arguments = {"label": "notes", "content": f"line {item};"}
            case "ask":
                arguments = _question(item)
            case "note":
                arguments = {"item": item, "words": item}
            case _ if operation.repeat or history.called(item):
                arguments = history.arguments(item)
            case _:
                arguments = {"item": item, "words": f"{item} v{0 if world.parrot else number}"}
        return ToolCall(f"{item}#{operation.repeat:d}#{number}", name, json.dumps(arguments))

    def _check_told(self, name: str, program: Program, history: "_History") -> None:
        """Write down what an attempt is not told of earlier ones."""
        world = self._world
        if name not in world.told:
            return
        items = {call.item for calls in program for call in calls if call.kind in EFFECTS}
        earlier = [
            call for call in world.calls if call.item in items and call.returned and _phase_of(call.run) == world.phase
        ]
        recorded = b"".join(world.recorded) if earlier else b""
        for call in earlier:
            if call.token.encode() in recorded and call.token not in history.opening:
                world.untold.append(f"{name}: {call.kind} {call.words!r} of attempt {call.attempt}")


def _phase_of(run: str) -> int:
    """Return the phase that a run belongs to."""
    return 2 if run.partition("/")[0] == "r2" else 1


class _History:
    """What a model finds in its messages."""

    def __init__(self, messages: Sequence[Message]) -> None:
        first = next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))
        self.opening = "\n".join(message.text for message in messages[:first])
        self.calls = [call for message in messages for call in message.calls]
        results = {message.call: message for message in messages if message.role == "tool"}
        self.refused = any("did not allow" in message.text for message in results.values())
        self._tries = Counter(call.id.rpartition("#")[0] for call in self.calls)
        self._settled = {
            call.id.rpartition("#")[0]
            for call in self.calls
            if (result := results.get(call.id)) is not None and (not result.is_error or "did not allow" in result.text)
        }

    def knows(self, operation: Operation) -> bool:
        """Return whether nothing is left to do: it was done, was refused, was tried too often, or was told as done."""
        key = f"{operation.item}#{operation.repeat:d}"
        if key in self._settled or self._tries[key] >= _TRIES:
            return True
        if operation.repeat and f"{operation.item}#0" not in self._settled:
            return True  # it was done in another attempt, and its words are not known here
        return operation.kind in ("pay", "mail", "note") and f"receipt {operation.item} no" in self.opening

    def called(self, item: str) -> bool:
        """Return whether a call about an item was made in this attempt: a second try has the same words."""
        return bool(self._tries[f"{item}#0"])

    def arguments(self, item: str) -> dict[str, object]:
        """Return the arguments of the first call about an item."""
        return next(json.loads(call.arguments) for call in self.calls if call.id.startswith(f"{item}#"))


def question_text(item: str) -> str:
    """Return the question about an item: some have options, others a schema."""
    return f"How many for {item}?" if len(item) % 2 else f"Left or right for {item}?"


def _question(item: str) -> dict[str, object]:
    if len(item) % 2:
        return {"question": question_text(item), "schema": {"type": "integer"}}
    return {"question": question_text(item), "options": ["left", "right"]}


def _planned(subject: Planning) -> str:
    """Return the plan of the outermost team: what the goal says, or what is missing of it once more."""
    tasks: dict[str, dict[str, object]] = json.loads(subject.goal.partition("\n")[2])
    if subject.tasks:
        failed = {gap.task for gap in subject.gaps if gap.status in ("failed", "unfinished")}
        tasks = {
            f"{name}-again": {
                **task,
                "instruction": f"{task['instruction']} This is the second plan.",
                "after": [],
                "optional": [],
                "replaces": name,
            }
            for name, task in tasks.items()
            if name in failed
        }
    return json.dumps({"tasks": tasks})
