"""A router fitted to cards is kept beside the confirmed examples: another process fits nothing again."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy
import pytest

from chargehand.agents.routing.decision import ConfirmedExamples
from chargehand.agents.routing.space import pack_space, unpack_space
from chargehand.agents.strategies import route as module
from chargehand.agents.strategies.route import fit_meaning
from chargehand.journal.protocol import MAX_FITTED, SqliteRouteExamples
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.request_facts import WorkerCard
from tests.agents.test_routers import TEAM, Bag, with_examples

DESCRIBED = [WorkerCard(card.name, card.description) for card in TEAM]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    module._SPACES.clear()
    module._VECTORS.clear()
    yield
    module._SPACES.clear()
    module._VECTORS.clear()


class Counting(SqliteRouteExamples):
    """Examples whose kept routers may be spoilt."""

    def __init__(self, real: SqliteRouteExamples) -> None:
        super().__init__(real._database, real.team)
        self.spoilt: bytes | None = None

    async def fitted(self, key: str) -> bytes | None:
        return self.spoilt or await super().fitted(key)


@pytest.mark.parametrize("cards", [TEAM, DESCRIBED, with_examples(20)], ids=["phrases", "described", "examples"])
async def test_another_process_decides_the_same_and_embeds_only_the_request(
    cards: list[WorkerCard], tmp_path: Path
) -> None:
    decisions: list[object] = []
    embedded: list[int] = []
    for _process in range(2):
        module._SPACES.clear()
        module._VECTORS.clear()
        journal = await SqliteJournal.open(tmp_path / "runs.db")
        bag = Bag()
        known = await fit_meaning(cards, bag, ConfirmedExamples(journal.route_examples("team")))
        decisions.append(await known.decide("my horse and the bill"))
        embedded.append(sum(map(len, bag.asked)))
        await journal.close()
    assert decisions[0] == decisions[1]
    assert embedded[0] > 5
    assert embedded[1] == 1


async def test_other_words_or_another_embedding_are_fitted_anew_and_the_oldest_go(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    book = ConfirmedExamples(journal.route_examples("team"))
    for number in range(MAX_FITTED + 2):
        bag = Bag()
        bag.handle = f"bag {number}"
        await fit_meaning(TEAM, bag, book)
        assert bag.asked
    module._SPACES.clear()
    module._VECTORS.clear()
    first = Bag()
    last = Bag()
    first.handle = "bag 0"
    last.handle = f"bag {MAX_FITTED + 1}"
    await fit_meaning(TEAM, last, book)
    assert not last.asked
    await fit_meaning(TEAM, first, book)
    assert first.asked
    changed = (*TEAM[:2], msgspec.structs.replace(TEAM[2], phrases=("stamp a form",)))
    await fit_meaning(changed, last, book)
    assert last.asked
    await journal.close()


async def test_what_is_damaged_or_of_another_team_is_fitted_anew(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    store = Counting(journal.route_examples("team"))
    known = await fit_meaning(TEAM, Bag(), ConfirmedExamples(store))
    decision = await known.decide("my horse")
    good = pack_space(known.space)
    other = await fit_meaning(TEAM[:2], Bag())
    for spoilt in (
        b"no file at all",
        good[: len(good) // 2],
        good[:200] + b"\0" * 80 + good[280:],
        pack_space(other.space),
    ):
        module._SPACES.clear()
        module._VECTORS.clear()
        store.spoilt = spoilt
        bag = Bag()
        again = await fit_meaning(TEAM, bag, ConfirmedExamples(store))
        assert bag.asked
        assert await again.decide("my horse") == decision
    await journal.close()


async def test_objects_that_would_have_to_be_unpickled_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "evil.npz"
    numpy.savez(file, header=numpy.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle|kept route"):
        unpack_space(file.read_bytes(), ("a",), 12)
