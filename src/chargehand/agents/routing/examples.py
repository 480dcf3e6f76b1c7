"""Confirmed examples as routers read them: each worker's card with the requests that were confirmed to be for it."""

import logging
from collections.abc import Sequence

from msgspec import structs

from chargehand.errors import StoreError
from chargehand.models.subject import WorkerCard
from chargehand.stores.route_examples import RouteExamples

logger = logging.getLogger(__name__)


class ConfirmedExamples:
    """The examples of one team. What cannot be read does not stand in a route's way."""

    def __init__(self, store: RouteExamples) -> None:
        self._store = store

    async def extend(self, cards: Sequence[WorkerCard]) -> list[WorkerCard]:
        """The cards with the confirmed examples of their workers."""
        try:
            examples = await self._store.list()
        except StoreError as error:
            logger.warning("confirmed examples cannot be read: %s", error)
            return list(cards)
        requests: dict[str, list[str]] = {}
        for example in examples:
            requests.setdefault(example.worker, []).append(example.request)
        return [structs.replace(card, confirmed=tuple(requests.get(card.name, ()))) for card in cards]

    async def fitted(self, key: str) -> bytes | None:
        try:
            return await self._store.fitted(key)
        except StoreError as error:
            logger.info("the router is fitted anew: %s", error)
            return None

    async def keep_fitted(self, key: str, body: bytes) -> None:
        try:
            await self._store.keep_fitted(key, body)
        except StoreError as error:
            logger.warning("the fitted router is not kept: %s", error)
