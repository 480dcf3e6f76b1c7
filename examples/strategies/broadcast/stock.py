"""Three depots, each with its own shelf."""  # noqa: INP001 - a file beside a team, no package

from typing import Literal

Thing = Literal["life jackets", "ropes", "lamps"]


def harbour_stock(thing: Thing) -> str:
    """How many of a thing are in stock at the harbour."""
    count = {"life jackets": 140, "ropes": 60, "lamps": 25}[thing]
    return f"{count} {thing} are in stock at the harbour."


def island_stock(thing: Thing) -> str:
    """How many of a thing are in stock on the island."""
    count = {"life jackets": 36, "ropes": 12, "lamps": 8}[thing]
    return f"{count} {thing} are in stock on the island."


def upstream_stock(thing: Thing) -> str:
    """How many of a thing are in stock at the lock upstream."""
    count = {"life jackets": 22, "ropes": 18, "lamps": 4}[thing]
    return f"{count} {thing} are in stock at the lock upstream."
