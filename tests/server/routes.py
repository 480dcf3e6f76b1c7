"""Every route there is, with names put into its path: for tests that walk all of them."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from chargehand.server.app import all_apis
from chargehand.server.middleware.gate import is_open_path
from chargehand.server.page import is_page
from chargehand.server.routing import Api, Scope

_NAME = re.compile(r"\{(\w+)(?::\w+)?\}")


class Called(Struct, frozen=True):
    """A route as it is called. `names` are those in its path."""

    method: str
    path: str
    names: tuple[str, ...]
    scope: Scope
    shape: str

    @property
    def open(self) -> bool:
        return is_open_path(self.shape)


def routes(ids: Mapping[str, str] | None = None) -> Iterator[Called]:
    """All but those of the page (tests/page/test_serving.py); names that are not among the ids are made up."""
    known = ids or {}
    for api in all_apis().all:
        assert isinstance(api, Api), "no package adds one here"
        for route in api.routes:
            if is_page(route.path) and route.path != "/":
                continue
            names = tuple(_NAME.findall(route.path))
            path = _NAME.sub(lambda one: known.get(one[1], f"{one[1]}-none"), route.path)
            yield Called(route.method, path, names, route.scope, route.path)
