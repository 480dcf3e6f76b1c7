"""The application: doors into the houses, behind walls."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from chargehand.models.find import Lookup
from chargehand.server.api.routes import own_api
from chargehand.server.index import index_api
from chargehand.server.letta.api import letta_api
from chargehand.server.metrics import Measured, metrics_api
from chargehand.server.middleware.gate import Gate
from chargehand.server.middleware.hushed import hushed
from chargehand.server.middleware.keyring import Keyring
from chargehand.server.middleware.manners import astray
from chargehand.server.middleware.redacted import redactor_of
from chargehand.server.openai.api import openai_api
from chargehand.server.recovery import recover, reopen
from chargehand.server.routing import Api
from chargehand.server.settings import FIRST, Settings, check
from chargehand.server.tenants import Tenants


def apis() -> list[Api]:
    """Every door there is: what is not in here cannot be called."""
    return [index_api(), metrics_api(), own_api(), letta_api(), openai_api()]


class Building:
    """The application, and what must be open while it is served."""

    def __init__(self, settings: Settings, lookup: Lookup) -> None:
        check(settings)
        self._redactor = redactor_of(settings, lookup)
        self.tenants = Tenants(settings, lookup, recover)
        every = apis()
        self._keys = Keyring(settings)
        routes = [route for api in every for route in api.routes(self.tenants)]
        app = Starlette(
            routes=routes, lifespan=lambda _: self.opened(), exception_handlers={HTTPException: astray(every)}
        )
        self.app: ASGIApp = Measured(Gate(app, settings, self._keys, every, redactor=self._redactor), self.tenants)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open what is served, and go on with what was left open. What cannot be opened is said before it listens."""
        with hushed(self._redactor):
            async with self._keys, self.tenants, asyncio.TaskGroup() as jobs:
                await self.tenants.of(FIRST)
                others = jobs.create_task(reopen(self.tenants))
                yield
                others.cancel()


def build(settings: Settings, lookup: Lookup) -> ASGIApp:
    """The whole application. Nothing is opened before it starts."""
    return Building(settings, lookup).app
