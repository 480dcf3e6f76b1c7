"""The report of what a team learnt: counted by worker, and which requests go elsewhere because of it.

Requests of the past are decided about anew, with and without lessons, by meaning or by words: no model is asked.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from chargehand.agents.routers.decision import Decision
from chargehand.agents.routers.meaning import by_meaning
from chargehand.agents.routers.notebook import notebook
from chargehand.agents.routers.rules import by_rules
from chargehand.agents.routers.tags import by_tags
from chargehand.agents.routers.words import by_words
from chargehand.agents.ways import Route
from chargehand.memory.embedding import Embedding
from chargehand.models.subject import WorkerCard
from chargehand.stores.lessons import SOURCES, Lesson, Lessons, Source

MOST = 200  # requests that are decided about anew, the latest


class Learnt(Struct, frozen=True):
    """What there is about one worker: how many lessons from each source, and how well it did, from 0 to 1."""

    worker: str
    lessons: dict[Source, int]
    success: float


class Turned(Struct, frozen=True):
    """A request that goes to somebody else than it would without lessons (empty: to nobody), and why."""

    request: str
    without: str
    now: str
    why: str


class Report(Struct, frozen=True):
    """What a team learnt. `looked_at` are the requests that were decided about anew, by `router`."""

    team: str
    learns: bool
    kept: int
    workers: tuple[Learnt, ...]
    turned: tuple[Turned, ...]
    looked_at: int
    router: str


async def report(store: Lessons, way: Route, cards: Sequence[WorkerCard], embedding: Embedding | None) -> Report:
    """What the lessons of a team come to."""
    book = notebook(store)
    lessons = await book.lessons()
    able = [card for card in cards if card.name != way.generalist]
    names = [card.name for card in able]
    asked = list(dict.fromkeys(one.request for one in reversed(lessons)))[:MOST]
    turned: list[Turned] = []
    routers = Counter[str]()
    for request in asked:
        without = await _decided(way, request, able, embedding)
        now = await book.consult(without, request, names, embedding)
        routers[now.router] += 1
        if now.worker != without.worker:
            turned.append(Turned(request=request, without=without.worker or "", now=now.worker or "", why=now.why))
    router = routers.most_common(1)[0][0] if routers else ""
    return Report(
        team=store.team,
        learns=way.learn,
        kept=len(lessons),
        workers=_workers(lessons),
        turned=tuple(turned),
        looked_at=len(asked),
        router=router,
    )


def _workers(lessons: Sequence[Lesson]) -> tuple[Learnt, ...]:
    found: list[Learnt] = []
    for name in sorted({one.worker for one in lessons}):
        mine = [one for one in lessons if one.worker == name]
        count = Counter(one.source for one in mine)
        best = {one.run: one for one in sorted(mine, key=lambda one: SOURCES.index(one.source))}
        success = sum(one.score for one in best.values()) / len(best)
        found.append(Learnt(name, {one: count[one] for one in SOURCES if count[one]}, round(success, 4)))
    return tuple(found)


async def _decided(way: Route, request: str, cards: Sequence[WorkerCard], embedding: Embedding | None) -> Decision:
    if way.rules and (found := by_rules(request, way.rules)).worker is not None:
        return found
    if way.router == "tags":
        return by_tags(request, cards)
    if way.router == "words":
        return await by_words(request, cards)
    return await by_meaning(request, cards, embedding)
