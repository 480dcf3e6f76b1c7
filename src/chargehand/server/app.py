"""The application: doors into the houses, behind walls."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from chargehand.models.find import Lookup
from chargehand.server.doors import Door
from chargehand.server.house import Houses
from chargehand.server.index import index_door
from chargehand.server.letta.door import letta_door
from chargehand.server.metrics import Measured, metrics_door
from chargehand.server.openai.door import openai_door
from chargehand.server.recovery import recover, reopen
from chargehand.server.runs.door import api_door
from chargehand.server.settings import FIRST, Settings, check
from chargehand.server.walls.gate import Gate
from chargehand.server.walls.hushed import hushed
from chargehand.server.walls.keyring import Keyring
from chargehand.server.walls.manners import astray
from chargehand.server.walls.redacted import redactor_of


def doors() -> list[Door]:
    """Every door there is: what is not in here cannot be called."""
    return [index_door(), metrics_door(), api_door(), letta_door(), openai_door()]


class Building:
    """The application, and what must be open while it is served."""

    def __init__(self, settings: Settings, lookup: Lookup) -> None:
        check(settings)
        self._redactor = redactor_of(settings, lookup)
        self.houses = Houses(settings, lookup, recover)
        every = doors()
        self._keys = Keyring(settings)
        routes = [route for door in every for route in door.routes(self.houses)]
        app = Starlette(
            routes=routes, lifespan=lambda _: self.opened(), exception_handlers={HTTPException: astray(every)}
        )
        self.app: ASGIApp = Measured(Gate(app, settings, self._keys, every, redactor=self._redactor), self.houses)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open what is served, and go on with what was left open. What cannot be opened is said before it listens."""
        with hushed(self._redactor):
            async with self._keys, self.houses, asyncio.TaskGroup() as jobs:
                await self.houses.of(FIRST)
                others = jobs.create_task(reopen(self.houses))
                yield
                others.cancel()


def build(settings: Settings, lookup: Lookup) -> ASGIApp:
    """The whole application. Nothing is opened before it starts."""
    return Building(settings, lookup).app
