"""The world of one seed of teams inside teams: how they are led, what they may spend, and a provider that fails.

The provider keeps its own bill, which is what was really spent. What follows from it is judged in `nested`.
"""

import asyncio
import json
import random
import re

from msgspec import Struct, structs

from chargehand.agents.checks import Verifier
from chargehand.agents.roles import Factory, Hedge, Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy, Whole
from chargehand.engine.budget import NOTHING, Amount, Budget, usd_of
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Combine, Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.models.messages import Reply, Request, Settings, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.request_facts import (
    Answering,
    Judging,
    Planning,
    ProgressLedger,
    Refining,
    Routing,
    Speaking,
    Splitting,
    WorkerCard,
    Working,
)
from chargehand.team import Team
from chargehand.tools.tool import Tool, tool

_PRICES = (0.0, 0.15, 1.0, 3.3, 10.0)
_COMBINE: tuple[Combine | None, ...] = (None, None, "merge", "forward", "reduce", "select", "vote")


@tool(quick=True)
def look_up(word: str) -> str:
    """Read all that is known of a word, however long that is."""
    return f"{word}: " + "pears, and more pears; " * (len(word) * 20)


@tool(effect="idempotent", approve=True, quick=True)
def sign(word: str) -> str:
    """Sign a paper, with the leave of a person."""
    return f"signed {word}"


class Bill(Struct):
    """What was really used, whatever anybody wrote down."""

    tokens: int = 0
    micros: int = 0
    calls: int = 0


class World:
    """Everything of one seed. What it draws depends on the order of calls, which is the same each time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"nested/{seed}")
        self.place = random.Random(f"place/{seed}")  # of its own: what seeds were before, they stay
        self.is_remote = self.place.random() < 0.3  # then some workers and teams work elsewhere
        self.people = random.Random(f"people/{seed}")
        self.asks = self.people.random() < 0.4  # then some workers need the leave of a person
        self.bill = Bill()
        self.trouble = self.chance.choice((0.0, 0.05, 0.15, 0.4))
        self.silent = self.chance.choice((0.0, 0.0, 0.3, 1.0))  # replies that do not say what they used
        self.long = self.chance.random() < 0.2
        self.verbose = self.chance.choice((0.0, 0.1, 0.5, 1.0))  # replies as long as they may be, thinking included
        self.cut = self.chance.choice((0.0, 0.0, 0.2))  # of those, how many are cut off there
        self.checked = self.chance.random() < 0.1
        self.made = 0
        self.is_hedged = False  # then a call that is given up is charged like the one that is used
        self.unsure = Bill()  # the part of the bill for calls that did not say what they used
        self.unanswered = 0
        """Calls that failed without saying whether they are billed."""
        self.wordy = 20_000 if self.chance.random() < 0.25 else 0  # tokens of any reply of a model that ignores limits
        self.unheard: list[ModelCard] = []  # whose replies were too long, and given up
        if self.wordy:
            self.trouble = self.silent = 0.0  # of a call that is lost nobody learns how long its reply was
        window = self.chance.choice((128_000, 128_000, 2_000))
        cards = [
            ModelCard(f"m{number}", window, micros_in=self.price(), micros_out=self.price(), keeps_limit=known)
            for number, known in enumerate((True, self.chance.random() < 0.5, False))
        ]
        # of the first model all that it reads is written to the provider's cache, which costs more
        cards[0] = structs.replace(cards[0], micros_cache_write=1.25 * (cards[0].micros_in or 0.0))
        self.models = [Provider(self, card) for card in cards]

    def price(self) -> float:
        return self.chance.choice(_PRICES)

    # --- teams

    def team(self, depth: int, name: str) -> Team:
        """A team of workers and teams, led in any of the ways."""
        chance = self.chance
        workers: list[Worker] = []
        for number in range(chance.randint(1, 3)):
            if depth and chance.random() < 0.6:
                estimate = Amount(chance.choice((0, 0, 9000)), chance.choice((0, 0, 20_000)), chance.choice((0, 0, 6)))
                below = self.team(depth - 1, f"{name}{number}")
                workers.append(below.as_worker(description=f"does part {number}", estimate=estimate))
            else:
                workers.append(self.worker(f"{name}{number}w", number))
        planner = chance.choice(self.models)
        judge = chance.choice(self.models)
        return Team(
            workers,
            supervisor=Supervisor(
                model=self.models[0],
                planner=planner,
                judge=judge,
                strategy=self.strategy(workers),
                settings=Settings(max_tokens=chance.choice((None, 200, 1000, 2000))),
                combine=chance.choice(_COMBINE),
                plan=self.plan(workers) if chance.random() < 0.3 else None,
                review=chance.random() < 0.1,
                stream_plan=chance.random() < 0.1,
                factory=self.factory(name),
                hedge=self.hedge(),
                queue=self.queue(),
            ),
            name=name,
            timeout=chance.choice((30.0, 300.0)),
            budget=self.budget() if chance.random() < 0.3 else Budget(),
            policy=self.policy(),
            checks={"sound": Verifier(model=chance.choice(self.models))} if self.checked else {},
        )

    def factory(self, name: str) -> Factory | None:
        if self.chance.random() < 0.9:
            return None
        return Factory([look_up], name=f"{name}f", model=self.chance.choice(self.models))

    def worker(self, name: str, number: int) -> Worker:
        chance = self.chance
        return Worker(
            name,
            f"does part {number}",
            tags=["all"],
            steps=3,
            model=chance.choice(self.models),
            settings=Settings(max_tokens=chance.choice((None, 300, 1000))),
            timeout=chance.choice((20.0, 120.0)),
            fallback_models=[chance.choice(self.models)] if chance.random() < 0.2 else [],
            tools=self.tools(),
            accept=["sound"] if self.checked else [],
            queue=self.queue(),
        )

    def tools(self) -> list[Tool]:
        tools = [look_up] if self.chance.random() < 0.4 else []
        return [*tools, sign] if self.asks and self.people.random() < 0.6 else tools

    def hedge(self) -> Hedge | None:
        if self.chance.random() >= 0.2:
            return None
        self.is_hedged = True
        return Hedge(after=2.0, share=0.5)

    def queue(self) -> str:
        return "far" if self.is_remote and self.place.random() < 0.5 else ""

    def strategy(self, workers: list[Worker]) -> Strategy:
        chance = self.chance
        return chance.choice(
            (
                Whole(),
                Whole(),
                Route(router=chance.choice(("model", "words")), generalist=workers[0].name),
                Loop(max_turns=chance.randint(1, 4), stalls=chance.randint(1, 2), fresh_starts=chance.randint(0, 1)),
                Broadcast(),
                RoundRobin(max_turns=chance.randint(0, 4)),
                Dynamic(max_turns=chance.randint(0, 4)),
                Recursive(depth=chance.randint(0, 3), breadth=chance.randint(1, 3)),
            )
        )

    def plan(self, workers: list[Worker]) -> Plan:
        made = [Task(TaskId(f"t{at}"), f"Do part {at}.", one.name) for at, one in enumerate(workers, 1)]
        if len(made) > 1 and self.chance.random() < 0.5:
            made[1] = Task(made[1].id, made[1].instruction, made[1].worker, after=(made[0].id,))
        return Plan(tuple(made))

    def policy(self) -> Policy:
        chance = self.chance
        return Policy(
            retry=Retry(attempts=chance.randint(1, 3)),
            refine=chance.random() < 0.5,
            limits=Limits(max_tasks=chance.choice((3, 50)), replans=chance.choice((0, 0, 1))),
        )

    def budget(self) -> Budget:
        """One cap at least. What is kept back for the answer is less than the cap."""
        chance = self.chance
        size = chance.choice((0, 1, 3, 10, 30, 100))  # about as many calls
        tokens = chance.choice((None, None, 4_000 * size, 4_000 * size + chance.randint(0, 9_000)))
        micros = chance.choice((None, 4_000 * size, 12_000 * size + chance.randint(0, 9_000), 40_000 * size))
        calls = chance.choice((None, None, size, 2 * size)) if tokens or micros else chance.randint(0, 60)
        floor = NOTHING
        if chance.random() < 0.3:
            floor = Amount((tokens or 0) // 4, (micros or 0) // 4, (calls or 0) // 4)
        return Budget(tokens=tokens, usd=usd_of(micros), calls=calls, floor=floor)

    def ignores_limits(self, card: ModelCard) -> bool:
        return bool(self.wordy) and not card.keeps_limit

    def surprise(self, lives: int) -> Amount:
        """What overlong replies cost that nobody can know of: the first of each process, and those given up."""
        wordy = lives * [one.card for one in self.models if self.ignores_limits(one.card)] + self.unheard
        return Amount(len(wordy) * self.wordy, sum(card.price(Usage(0, self.wordy)) or 0 for card in wordy), 0)

    # --- what models say

    async def called(self, card: ModelCard, request: Request, hear: Hear | None) -> Reply:
        """One call. It is on the bill from its first moment, unless the provider says that it was none."""
        chance = self.chance
        most = request.settings.max_tokens
        assert most, "every call says how long its reply may be"
        read = _read(request)
        wrote = most if chance.random() < self.verbose else chance.randint(1, min(most, 1000))
        if self.ignores_limits(card):
            wrote = self.wordy
        usage = Usage(read, wrote, cache_written=0 if card.micros_cache_write is None else read)
        micros = card.price(usage) or 0
        bill = self.bill
        bill.tokens = bill.tokens + read + wrote
        bill.micros = bill.micros + micros
        bill.calls += 1
        self.made += 1
        try:
            await asyncio.sleep(chance.choice((0.0, chance.uniform(0, 1), chance.uniform(0, 9))))
        except asyncio.CancelledError:
            if wrote > most:
                self.unheard.append(card)
            self.lose(read + wrote, micros)
            raise
        if chance.random() < self.trouble:
            await self.fails(usage, micros)
        if request.tools and chance.random() < 0.4:
            names = [spec.name for spec in request.tools if spec.name in ("look_up", "sign")]
            name = self.people.choice(names) if "sign" in names else "look_up"
            wanted = ToolCall(f"c{self.made}", name, json.dumps({"word": f"pear {self.made}"}))
            return Reply(text="", calls=(wanted,), finish="tools", usage=usage, micros=micros, model=card.handle)
        text = "{garbage" if chance.random() < self.trouble / 2 else self.text(request)
        if hear is not None:
            hear(text)
        finish = "length" if wrote == most and chance.random() < self.cut else "stop"
        if chance.random() < self.silent:
            return Reply(text, finish=finish, usage=chance.choice((None, usage)), model=card.handle)
        return Reply(text, finish=finish, usage=usage, micros=micros, model=card.handle)

    def lose(self, tokens: int, micros: int) -> None:
        self.unsure.tokens += tokens
        self.unsure.micros += micros

    async def fails(self, usage: Usage, micros: int) -> None:
        kind = self.chance.choice(("429", "500", "timeout", "hang", "bad", "billed"))
        if kind == "hang":
            self.lose(usage.input + usage.output, micros)
            await asyncio.sleep(10_000)
        if kind == "billed":
            raise ModelFailed(Failure("network", "the line went dead in the middle"), usage)
        if kind == "timeout":
            self.lose(usage.input + usage.output, micros)
            self.unanswered += 1
            raise ModelFailed(Failure("timeout", "no reply"))
        self.bill.tokens -= usage.input + usage.output  # a call that is refused costs nothing but itself
        self.bill.micros -= micros
        said_so = self.chance.random() < 0.7  # models of one's own may not say that nothing was billed
        if kind == "429":
            failure = Failure("resource", "too many calls", retry_after=self.chance.uniform(0, 5))
            raise ModelFailed(failure, billed=not said_so)
        failure = Failure("network" if kind == "500" else "logic", kind, permanent=kind == "bad")
        raise ModelFailed(failure, billed=not said_so)

    def text(self, request: Request) -> str:
        chance = self.chance
        match request.subject:
            case Working():
                number = chance.randint(1, 3)
                filler = "and more of the same " * chance.randint(50, 900) if self.long else ""
                return f"The total of the pears is {number}. {filler}"
            case Answering(results=results):
                return "; ".join(f"done [{one.task}]" for one in results)
            case Planning(workers=workers, tasks=tasks):
                return self.planned(workers, len(tasks))
            case Splitting(workers=workers):
                return self.split(workers)
            case ProgressLedger(workers=workers, tasks=tasks):
                said = {"done": len(tasks) > 1 and chance.random() < 0.5, "looping": chance.random() < 0.2}
                said |= {"progress": chance.random() < 0.8, "why": "so it is"}
                return json.dumps({**said, "next": self.who(workers), "instruction": f"Go on with {self.made}."})
            case Speaking(workers=workers):
                return json.dumps({"next": self.who(workers), "why": "it is their turn"})
            case Routing(workers=workers):
                return json.dumps({"primary": self.who(workers), "secondary": None, "confidence": 0.9, "reason": "so"})
            case Judging(results=results):
                return json.dumps({"why": "so", "ruling": "so", "agree": [], "winner": chance.choice(results).task})
            case Refining(instruction=instruction):
                return f"{instruction} Better this time."
            case _:  # who shortens results, who makes workers, who reviews
                accepted = chance.random() < 0.7
                return json.dumps({"persona": "You count.", "tools": [], "problems": [], "accepted": accepted})

    def who(self, workers: tuple[WorkerCard, ...]) -> str:
        return "nobody there" if self.chance.random() < 0.05 else self.chance.choice(workers).name

    def planned(self, workers: tuple[WorkerCard, ...], already: int) -> str:
        if already and self.chance.random() < 0.7:
            return json.dumps({"goal": "g", "tasks": {}})
        tasks = {
            f"p{already + at}": {"instruction": f"Count the pears of part {self.made}.", "worker": self.who(workers)}
            for at in range(self.chance.randint(1, 3))
        }
        return json.dumps({"goal": "g", "tasks": tasks, "combine": self.chance.choice(("merge", "reduce", "forward"))})

    def split(self, workers: tuple[WorkerCard, ...]) -> str:
        if self.chance.random() < 0.4:
            return json.dumps({"why": "little", "simple": True, "worker": self.who(workers)})
        parts: list[dict[str, object]] = [
            {"instruction": f"Count the pears of part {self.made} and {at}.", "worker": self.who(workers), "after": []}
            for at in range(self.chance.randint(1, 4))
        ]
        return json.dumps({"why": "much", "simple": False, "subtasks": parts})


_TOKEN = re.compile(r"[^\W\d_]{1,7}|\d{1,3}|[^\w\s]|_")
"""What is about a token for the tokenizers of today: most of a word, up to three digits, or a mark."""


def _read(request: Request) -> int:
    """Count tokens as a provider does, tools and schema included."""
    texts = [
        f"{message.text} {' '.join(call.name + call.arguments for call in message.calls)}"
        for message in request.messages
    ]
    texts += [f"{tool.name} {tool.description} {bytes(tool.parameters).decode()}" for tool in request.tools]
    texts.append(bytes(request.schema or b"").decode())
    return sum(len(_TOKEN.findall(text)) for text in texts)


class Provider:
    """One model of a world."""

    def __init__(self, world: World, card: ModelCard) -> None:
        self.card = card
        self._world = world

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        return await self._world.called(self.card, request, hear)
