"""CLINC150 on the table: its requests, and the vectors of every text that was asked for so far."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec
import numpy
from msgspec import Struct

from bench.routing_score import Judged
from chargehand.agents.routing.space import Space, build, texts_of
from chargehand.agents.routing.words import WorkerTexts
from chargehand.models.embeddings import LocalEmbedding

Pair = tuple[str, str]


class Data(Struct, frozen=True):
    """Requests and whose they are."""

    train: list[Pair]
    val: list[Pair]
    test: list[Pair]
    oos_val: list[Pair]
    oos_test: list[Pair]
    oos_train: list[Pair] = []


class Bench:
    """The data, and vectors of every text that was asked for so far."""

    def __init__(self, folder: Path, models: Path) -> None:
        self.data = msgspec.json.decode((folder / "clinc150_data_full.json").read_bytes(), type=Data)
        raw = (folder / "clinc150_domains.json").read_bytes()
        self.domains = msgspec.json.decode(raw, type=dict[str, list[str]])
        self.intents = sorted({name for _, name in self.data.train})
        self.embedding = LocalEmbedding(models)
        self._known: dict[str, bytes] = {}

    async def vectors(self, wanted: Sequence[str]) -> list[bytes]:
        if missing := [one for one in dict.fromkeys(wanted) if one not in self._known]:
            self._known.update(zip(missing, await self.embedding.embed(missing), strict=True))
        return [self._known[one] for one in wanted]

    async def learnt(self, said: Sequence[WorkerTexts]) -> Space:
        return build(said, await self.vectors(texts_of(said)))

    async def judged(self, space: Space, owner: Mapping[str, str]) -> Judged:
        """What a space makes of the test and, for thresholds, of the validation part."""

        async def look(pairs: Sequence[Pair]) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
            found = [space.read(vector, 1) for vector in await self.vectors([text for text, _ in pairs])]
            right = [one.shares[0][0] == owner.get(name, "") for one, (_, name) in zip(found, pairs, strict=True)]
            sure = [one.confidence for one in found]
            return numpy.array(right), numpy.array([one.scope for one in found]), numpy.array(sure)

        parts = self.data
        right, home, sure = await look(parts.test)
        _, usual, _ = await look(parts.val)
        _, strange, _ = await look(parts.oos_test)
        return Judged(right, home, usual, strange, sure)

    def drawn(self, shots: int, seed: int, *, named: bool) -> list[WorkerTexts]:
        """So many examples of each intent, and with `named` its name as a phrase."""
        chance = Random(seed)
        found: list[WorkerTexts] = []
        for name in self.intents:
            mine = [text for text, other in self.data.train if other == name]
            few = chance.sample(mine, shots) if shots else []
            found.append(WorkerTexts(name, (plain(name),) if named else (), tuple(few)))
        return found


def plain(name: str) -> str:
    return name.replace("_", " ")
