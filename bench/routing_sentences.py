"""Workers with one sentence each: CLINC150's domains and thirty of its intents, and two support teams of our own.

The sentences of a team were written before it was measured. Parameters were fitted to CLINC150's validation part;
docs/routing.md says which choices were made after a first look at these figures.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy
from msgspec import Struct

from bench.routing_board import Bench, Pair
from bench.table import Row
from chargehand.agents.strategies.route import LEAST, fit_meaning
from chargehand.models.request_facts import WorkerCard

DATA = Path(__file__).parent / "data" / "routing_teams.json"


class Team(Struct, frozen=True):
    """Workers and their sentences, requests of each, and requests for nobody."""

    workers: dict[str, str]
    requests: dict[str, list[str]]
    strangers: list[str]


class Teams(Struct, frozen=True):
    clinc_domains: dict[str, str]
    clinc_money: dict[str, str]
    teams: dict[str, Team]


async def sentence_rows(bench: Bench) -> list[Row]:
    held = msgspec.json.decode(DATA.read_bytes(), type=Teams)
    owner = {intent: name for name, intents in bench.domains.items() for intent in intents}
    strangers = [text for text, _ in bench.data.oos_test]
    domains = [(text, owner[intent]) for text, intent in bench.data.test]
    money = [(text, intent) for text, intent in bench.data.test if intent in held.clinc_money]
    rows = await _rows(bench, "ten domains", held.clinc_domains, domains, strangers)
    rows += await _rows(bench, "thirty intents", held.clinc_money, money, strangers)
    for name, team in held.teams.items():
        requests = [(text, worker) for worker, texts in team.requests.items() for text in texts]
        rows += await _rows(bench, name, team.workers, requests, team.strangers)
    return rows


class BenchVectors:
    """The vectors that the bench has made, as an embedding: what is measured is the decision."""

    handle = "bench"
    width = 384

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return await self._bench.vectors(texts)

    async def close(self) -> None:
        """Nothing to close."""


async def _rows(
    bench: Bench, team: str, workers: dict[str, str], requests: Sequence[Pair], strangers: Sequence[str]
) -> list[Row]:
    known = await fit_meaning([WorkerCard(name, does) for name, does in workers.items()], BenchVectors(bench))
    texts = [text for text, _ in requests]
    space = known.space
    vectors = await bench.vectors(texts)
    found = [space.read(vector, 1, known.by_words(text)) for vector, text in zip(vectors, texts, strict=True)]
    right = numpy.array([one.shares[0][0] == name for one, (_, name) in zip(found, requests, strict=True)])
    sure = numpy.array([one.confidence for one in found])
    scope = numpy.array([one.scope for one in found])
    routed = (scope >= space.threshold) & (sure >= LEAST["meaning"])
    away = numpy.array([space.read(vector, 1).scope for vector in await bench.vectors(strangers)])
    caught = float((away < numpy.quantile(scope, 0.05)).mean())
    also = f"{100 * float((right & routed).mean()):.1f} right and not refused, confidence {100 * sure.mean():.1f}"
    also += f"; {100 * caught:.1f} % of strangers caught at 95 % kept"
    return [Row(f"one sentence each: {team}", "%", (100 * float(right.mean()),), also=also)]
