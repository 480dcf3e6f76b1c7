"""A hybrid route with a real model: where meaning is not clear it is asked to choose among the four nearest.

How many requests that is, and how often meaning is right on the others, is counted on the whole test part. The model
is slow, so it is asked about as many of the unclear ones, drawn by chance, as fit the time.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import mean, median, pstdev

from bench.routing_board import Bench
from bench.table import Row
from chargehand.agents.prompts import Prompts
from chargehand.agents.routing.decision import MOST_SCORES
from chargehand.agents.routing.space import Space
from chargehand.agents.spending import Spending
from chargehand.agents.strategies.route import by_model, is_clear, reading_decision
from chargehand.agents.supervision import Lead, SupervisorCalls
from chargehand.engine.budget import Budget
from chargehand.engine.owed import Brief
from chargehand.engine.plan import TaskId
from chargehand.engine.state import Work
from chargehand.models.messages import Message, Settings
from chargehand.models.request_facts import WorkerCard
from chargehand.models.resolve import Finder
from chargehand.runtime.executor import WorkFailed

FEW = 4


class Quiet:
    """All that a router needs of a hand."""

    heard = False

    def note(self, text: str) -> None: ...

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None: ...


class Case:
    """One request: whose it is, what meaning says, and whether that is clear."""

    def __init__(self, bench: Bench, space: Space, text: str, vector: bytes, owner: str) -> None:
        read = space.read(vector, MOST_SCORES)
        self.text = text
        self.owner = owner
        self.nearest = [name for name, _ in read.shares[:FEW]]
        self.right = self.nearest[0] == owner
        self.clear = is_clear(reading_decision(read))


async def llm_rows(bench: Bench, handle: str, models: Path, seconds: float, shots: int) -> list[Row]:
    said = bench.drawn(shots, 0, named=True)
    cards = {one.worker: WorkerCard(one.worker, "", phrases=one.phrases, examples=one.examples) for one in said}
    space = await bench.learnt(said)
    vectors = await bench.vectors([text for text, _ in bench.data.test])
    pairs = zip(bench.data.test, vectors, strict=True)
    cases = [Case(bench, space, text, vector, name) for (text, name), vector in pairs]
    unclear = [one for one in cases if not one.clear]
    drawn = Random(0).sample(unclear, len(unclear))
    finder = Finder(lambda name: str(models) if name == "CHARGEHAND_MODELS" else os.environ.get(name))
    try:
        lead = Lead(
            model=finder.find(handle),
            prompts=Prompts(),
            cards=tuple(cards.values()),
            instructions="",
            settings=Settings(temperature=0.0),
            max_tasks=50,
            spending=Spending(Budget()),
        )
        asked, hits, times = await _asked(lead, drawn, cards, seconds)
    finally:
        await finder.close()
    return _rows(handle=handle, shots=shots, cases=cases, unclear=unclear, asked=asked, hits=hits, times=times)


async def _asked(
    lead: Lead, drawn: Sequence[Case], cards: dict[str, WorkerCard], seconds: float
) -> tuple[list[Case], list[bool], list[float]]:
    asked: list[Case] = []
    hits: list[bool] = []
    times: list[float] = []
    until = time.monotonic() + seconds
    for one in drawn:
        if time.monotonic() > until:
            break
        brief = Brief(Work("plan", TaskId(""), 1), one.text, 1e12)
        began = time.monotonic()
        try:
            calls = SupervisorCalls(lead, Quiet())  # pyright: ignore[reportArgumentType]
            found = await by_model(calls, brief, [cards[name] for name in one.nearest])
            chosen = found.worker
        except WorkFailed:  # as a hybrid does
            chosen = one.nearest[0]
        times.append(time.monotonic() - began)
        asked.append(one)
        hits.append(chosen == one.owner)
    return asked, hits, times


def _rows(
    handle: str,
    shots: int,
    cases: Sequence[Case],
    unclear: Sequence[Case],
    asked: Sequence[Case],
    hits: Sequence[bool],
    times: Sequence[float],
) -> list[Row]:
    what = f"hybrid, {f'{shots} examples' if shots else 'zero-shot'}"
    share = len(unclear) / len(cases)
    sure = mean(one.right for one in cases if one.clear) if len(unclear) < len(cases) else 0.0
    alone = mean(one.right for one in asked)
    with_it = mean(hits)
    whole = mean(one.right for one in cases)
    turned = [hit - one.right for hit, one in zip(hits, asked, strict=True)]
    spread = f"+- {196 * share * pstdev(turned) / len(turned) ** 0.5:.1f}"  # of the difference, at 95 %
    reach = mean(one.owner in one.nearest for one in asked)
    also = f"n = {len(asked)}; right one among the {FEW}: {100 * reach:.0f} %"
    return [
        Row(f"{what}: requests that are not clear", "%", (100 * share,), also=f"clear ones right: {100 * sure:.1f} %"),
        Row(f"{what}: of these, by meaning alone", "%", (100 * alone,), also=also),
        Row(f"{what}: of these, by {handle}", "%", (100 * with_it,), also=f"{median(times) * 1e3:.0f} ms a call"),
        Row(f"{what}: all by meaning", "%", (100 * whole,)),
        Row(f"{what}: all, unclear ones by the model", "%", (100 * (whole + share * (with_it - alone)),), also=spread),
    ]
