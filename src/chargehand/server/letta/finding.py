"""A page of what is kept: without what is hidden, and going on also where the last of the page before was deleted."""

from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct, structs

from chargehand.errors import Unknown
from chargehand.memory.catalog import ANYONE, Kept
from chargehand.server.letta.pages import Page
from chargehand.server.tenants import Tenant
from chargehand.terms.roster import Match

_MOST = 1000


class Wanted(Struct, frozen=True):
    """What is asked for that the catalog has an index for."""

    name: str | None = None
    text: str = ""
    tags: Match = ANYONE


class Trail:
    """The pages that were told lately, by the last id of each. `house.part(Trail)` is it.

    Whoever deletes what a page brings asks for what comes after something that is not there any more.
    """

    def __init__(self, _tenant: Tenant) -> None:
        self._pages: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def keep(self, page: Page, ids: tuple[str, ...]) -> None:
        """Remember what stands before the last of these, the nearest last; at the beginning an empty id."""
        if page.before or not ids:
            return
        self._pages[page.order, ids[-1]] = (page.after, *ids[:-1])
        while len(self._pages) > _MOST:
            self._pages.popitem(last=False)

    def before(self, page: Page) -> tuple[str, ...]:
        return self._pages.get((page.order, page.after), ())


async def found(
    tenant: Tenant, kind: type[Kept], page: Page, wanted: Wanted, hidden: Callable[[Kept], bool] | None = None
) -> list[Kept]:
    """The page of these things. `hidden` says which of them are left out."""
    told: list[Kept] = []
    part = await _standing(tenant, kind, page)
    while True:
        some = await tenant.memory.catalog.find(
            kind,
            name=wanted.name,
            text=wanted.text,
            tags=wanted.tags,
            after=part.after,
            before=part.before,
            limit=part.limit,
            order=part.order,
        )
        shown = some if hidden is None else [one for one in some if not hidden(one)]
        told = [*shown, *told] if part.before else [*told, *shown]
        if len(shown) == len(some) or len(some) < part.limit or len(told) >= page.limit:
            break
        part = structs.replace(part, before=some[0].id) if part.before else structs.replace(part, after=some[-1].id)
    told = told[-page.limit :] if part.before else told[: page.limit]
    tenant.part(Trail).keep(page, tuple(one.id for one in told))
    return told


async def _standing(tenant: Tenant, kind: type[Kept], page: Page) -> Page:
    """The page, after the nearest that is still there where the one it names is gone."""
    catalog = tenant.memory.catalog
    trail = tenant.part(Trail)
    for _ in range(_MOST):
        earlier = trail.before(page)
        if not page.after or not earlier or await catalog.get(kind, page.after) is not None:
            return page
        for which in reversed(earlier):
            if not which or await catalog.get(kind, which) is not None:
                return structs.replace(page, after=which)
        page = structs.replace(page, after=earlier[0])
    raise Unknown(f"there is nothing {page.after[:100]!r} any more to go on after; ask for the first page again")
