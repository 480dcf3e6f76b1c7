"""Every router on the same ten workers: CLINC150's domains, each with its intents as skill phrases.

Right, strangers told apart, time of a decision. What is quick is measured on the whole test part. A language model is
slow: it is asked about requests drawn by chance, one of three for nobody, for as long as the time allows, and the
routers by meaning are measured on the same requests beside it.
"""

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import mean, median

import numpy
from msgspec import Struct

from bench.routing_board import Bench, Pair, plain
from bench.routing_llm import Quiet
from bench.routing_score import Judged, ranked
from chargehand.agents.prompts import Prompts
from chargehand.agents.routing.decision import Decision, no_worker
from chargehand.agents.routing.words import Lexicon, by_rules
from chargehand.agents.spending import Spending
from chargehand.agents.strategies.route import by_both, by_model, fit_meaning
from chargehand.agents.supervision import Lead, SupervisorCalls
from chargehand.engine.budget import Budget
from chargehand.engine.owed import Brief
from chargehand.engine.plan import TaskId
from chargehand.engine.state import Work
from chargehand.models.messages import Settings
from chargehand.models.request_facts import WorkerCard
from chargehand.models.resolve import Finder
from chargehand.runtime.executor import WorkFailed

Decide = Callable[[str], Awaitable[Decision]]
QUICK = 500  # requests of each sort whose decisions are timed one by one, embedding included
SHOTS = 10


class Line(Struct, frozen=True):
    """One router: shares in percent, seconds of one decision, and how many requests that is about."""

    router: str
    knows: str
    accuracy: float
    auroc: float
    seconds: float
    count: int
    also: str = ""


def cards(bench: Bench, shots: int = 0) -> list[WorkerCard]:
    """The ten workers: intents as phrases, and so many examples of each intent."""
    chance = Random(0)
    found: list[WorkerCard] = []
    for name, held in bench.domains.items():
        few: list[str] = []
        for intent in held if shots else ():
            few += chance.sample([text for text, other in bench.data.train if other == intent], shots)
        found.append(WorkerCard(name, "", phrases=tuple(map(plain, held)), examples=tuple(few)))
    return found


def owners(bench: Bench) -> dict[str, str]:
    return {intent: name for name, held in bench.domains.items() for intent in held}


async def quick_lines(bench: Bench) -> list[Line]:
    """Those that need no language model, on all 4,500 requests and 1,000 for nobody."""
    told = cards(bench)
    rules = {phrase: card.name for card in told for phrase in card.phrases}
    lexicon = Lexicon(told)
    home = bench.data.test
    strange = bench.data.oos_test

    async def static(text: str) -> Decision:
        return by_rules(text, rules)

    async def worded(text: str) -> Decision:
        return lexicon.decide(text)

    owner = owners(bench)
    lines = [
        await _line(router="static", knows="intents as rules", decide=static, home=home, strange=strange, owner=owner),
        await _line(router="words", knows="intents as phrases", decide=worded, home=home, strange=strange, owner=owner),
    ]
    for shots, knows in ((0, "intents as phrases"), (SHOTS, f"and {SHOTS} examples of each")):
        known = await fit_meaning(cards(bench, shots), bench.embedding)
        seen = await bench.judged(known.space, owner)
        timed = await _line(
            router="", knows="", decide=known.decide, home=home[:QUICK], strange=strange[:QUICK], owner=owner
        )
        name = "meaning, zero-shot" if not shots else f"meaning, {SHOTS}-shot"
        right = 100 * float(seen.right.mean())
        lines.append(
            Line(
                router=name,
                knows=knows,
                accuracy=right,
                auroc=ranked(seen),
                seconds=timed.seconds,
                count=len(home) + len(strange),
            )
        )
    return lines


async def asked_lines(bench: Bench, handle: str, models: Path, seconds: float) -> list[Line]:
    """A model, the hybrid that asks it where meaning is not clear, and meaning alone, on the same few requests."""
    told = cards(bench)
    owner = owners(bench)
    chance = Random(0)
    home, strange = (chance.sample(one, len(one)) for one in (bench.data.test, bench.data.oos_test))
    finder = Finder(lambda name: str(models) if name == "CHARGEHAND_MODELS" else os.environ.get(name))
    known = await fit_meaning(told, bench.embedding)
    try:
        model = finder.find(handle)
        lead = Lead(
            model=model,
            prompts=Prompts(),
            cards=tuple(told),
            instructions="",
            settings=Settings(temperature=0.0),
            max_tasks=50,
            spending=Spending(Budget()),
            embedding=bench.embedding,
        )

        async def one(text: str) -> Decision:
            try:
                return await by_model(SupervisorCalls(lead, Quiet()), _brief(text), told)  # pyright: ignore[reportArgumentType]
            except WorkFailed as error:
                return no_worker("model", str(error))

        async def both(text: str) -> Decision:
            return await by_both(lead, SupervisorCalls(lead, Quiet()), _brief(text), told)  # pyright: ignore[reportArgumentType]

        first = await _line(
            router=handle,
            knows="intents as phrases",
            decide=one,
            home=home,
            strange=strange,
            owner=owner,
            until=time.monotonic() + seconds,
        )
        size = max(3, first.count)
        some = home[: size - size // 3]
        others = strange[: size // 3]
        second = await _line(
            router="hybrid", knows=f"the same; {handle}", decide=both, home=some, strange=others, owner=owner
        )
        third = await _line(
            router="meaning, the same requests",
            knows="intents as phrases",
            decide=known.decide,
            home=some,
            strange=others,
            owner=owner,
        )
    finally:
        await finder.close()
    return [first, second, third]


async def _line(
    router: str,
    knows: str,
    decide: Decide,
    home: Sequence[Pair],
    strange: Sequence[Pair],
    owner: Mapping[str, str],
    until: float | None = None,
) -> Line:
    """In turn two that are somebody's and one that is nobody's, while both last and time allows; then what is left."""
    right: list[bool] = []
    sure: tuple[list[float], list[float]] = ([], [])
    took: list[float] = []
    for text, name, nobodys in _mixed(home, strange):
        if until is not None and time.monotonic() > until and right and sure[1]:
            break
        began = time.perf_counter()
        found = await decide(text)
        took.append(time.perf_counter() - began)
        sure[nobodys].append(found.confidence if found.worker else 0.0)
        if not nobodys:
            best = found.worker or (found.scores[0][0] if found.scores else "")
            right.append(best == owner[name])
    away = numpy.array(sure[1])
    at_home = numpy.array(sure[0])
    auroc = ranked(Judged(numpy.array(right), at_home, at_home, away, at_home))
    also = f"mean {mean(took):.1f} s" if max(took) > 0.5 else ""
    return Line(
        router=router,
        knows=knows,
        accuracy=100 * mean(right),
        auroc=auroc,
        seconds=median(took),
        count=len(took),
        also=also,
    )


def _mixed(home: Sequence[Pair], strange: Sequence[Pair]) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    for at in range(max(len(home), 2 * len(strange))):
        found += [(*home[at], False)] if at < len(home) else []
        found += [(*strange[at // 2], True)] if at % 2 and at // 2 < len(strange) else []
    return found


def _brief(text: str) -> Brief:
    return Brief(Work("plan", TaskId(""), 1), text, 1e12)


def table(lines: Sequence[Line]) -> str:
    head = ("router", "what it knows of a worker", "right, %", "AUROC, %", "a decision", "n", "")
    rows = [head, *(_cells(line) for line in lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    left = (0, 1, 6)
    made = [
        "  ".join(
            f"{cell:<{width}}" if at in left else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([made[0], "  ".join("-" * width for width in widths).rstrip(), *made[1:]])


def _cells(line: Line) -> tuple[str, ...]:
    spent = f"{line.seconds * 1e6:,.0f} us" if line.seconds < 0.1 else f"{line.seconds:.1f} s"
    return (
        line.router,
        line.knows,
        f"{line.accuracy:.1f}",
        f"{line.auroc:.1f}",
        spent,
        f"{line.count:,}",
        line.also,
    )
