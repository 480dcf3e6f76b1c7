"""What is owed to webhooks, in every store that outlives its process."""

import asyncio

from msgspec import structs

from chargehand.journal.deliveries import Delivery
from chargehand.journal.protocol import Journal
from chargehand.journal.store import list_deliveries, open_journal
from tests.stores.samples import entries

HOOK = "garden/desk"


async def _claim(journal: Journal, now: float, runs: list[str] | None = None) -> list[Delivery]:
    assert journal.deliveries is not None
    return await journal.deliveries.claim(HOOK, runs, now=now, until=now + 10, limit=5)


def test_a_delivery_is_claimed_by_one_process_when_its_run_has_news(store: str) -> None:
    async def scenario() -> None:
        first = await open_journal(store)
        second = await open_journal(store)
        assert first.deliveries is not None
        await first.deliveries.add("a", [HOOK, "garden/other"], 100)
        assert await _claim(first, 100) == [], "the run has not begun"
        await first.create("a", entries(1, 2))
        assert await _claim(first, 100, ["b"]) == []
        assert [delivery.run for delivery in await _claim(first, 100, ["a"])] == ["a"]
        assert await _claim(second, 105) == [], "another process has it"
        (delivery,) = await _claim(second, 111)  # that process is silent
        late = structs.replace(delivery, tries=1, error="no answer")
        await first.deliveries.update(late, 120)
        assert await _claim(second, 119) == []
        assert await _claim(second, 120) == [late]
        await first.deliveries.update(Delivery("a", HOOK, seq=2), 0)
        assert await _claim(second, 200) == [], "it was told of all there is"
        await first.deliveries.remove(late)
        await first.deliveries.add("a", [HOOK], 300)  # a run that has begun is not told of once more
        await first.deliveries.add("never", [HOOK], 300)
        await first.deliveries.remove_unbegun(400)
        await first.close()
        await second.close()

    asyncio.run(scenario())
    assert list_deliveries(store) == [Delivery("a", "garden/other")]
