"""Three depots, each with its own shelf."""  # noqa: INP001 - a file beside a team, no package

from typing import Literal

Thing = Literal["life jackets", "ropes", "lamps"]


def harbour_stock(thing: Thing) -> int:
    """How many of a thing are in stock at the harbour."""
    return {"life jackets": 140, "ropes": 60, "lamps": 25}[thing]


def island_stock(thing: Thing) -> int:
    """How many of a thing are in stock on the island."""
    return {"life jackets": 36, "ropes": 12, "lamps": 8}[thing]


def upstream_stock(thing: Thing) -> int:
    """How many of a thing are in stock at the lock upstream."""
    return {"life jackets": 22, "ropes": 18, "lamps": 4}[thing]
