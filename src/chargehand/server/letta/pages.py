"""Lists a page at a time: `after` an id, `before` one, so many, in this order. After the last comes an empty page."""

from collections.abc import Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from starlette.requests import Request

from chargehand.memory.catalog import Order
from chargehand.server.problem import Problem
from chargehand.server.wire import flag, number

Item = TypeVar("Item")
MOST = 1000


class Page(Struct, frozen=True):
    """What of a list is wanted."""

    after: str
    before: str
    limit: int
    order: Order


def page_of(request: Request, usual: int = 50, order: Literal["asc", "desc"] = "asc") -> Page:
    """The page a query asks for; `ascending` is the older way to say the order."""
    asked = request.query_params
    said = asked.get("order")
    if said is None and "ascending" in asked:
        said = "asc" if flag(request, "ascending") else "desc"
    if said not in (None, "asc", "desc"):
        raise Problem(422, "invalid", f"order is {said[:40]!r}; it must be asc or desc")
    chosen: Order = order if said is None else "asc" if said == "asc" else "desc"
    return Page(asked.get("after", ""), asked.get("before", ""), number(request, "limit", usual, 0, MOST), chosen)


def cut(items: Sequence[tuple[str, Item]], page: Page) -> list[Item]:
    """The page of a list that is at hand whole: pairs of an id and a thing, in ascending order."""
    ordered = list(items) if page.order == "asc" else list(reversed(items))
    ids = [one[0] for one in ordered]
    start = ids.index(page.after) + 1 if page.after in ids else len(ids) if page.after else 0
    end = ids.index(page.before) if page.before in ids else 0 if page.before else len(ids)
    found = ordered[start:end]
    return [one[1] for one in (found[-page.limit :] if page.before and page.limit else found[: page.limit])]
