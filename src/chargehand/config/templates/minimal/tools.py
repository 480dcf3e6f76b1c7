"""Tools of this team. A typed function is enough: its docstring is what the model reads."""

from typing import Literal, TypeAlias

Plant: TypeAlias = Literal["tomato", "courgette", "lettuce", "bean", "pumpkin"]

PRICES: dict[Plant, float] = {"tomato": 1.2, "courgette": 1.6, "lettuce": 0.35, "bean": 0.25, "pumpkin": 1.9}


def seedling_price(plant: Plant, seedlings: int) -> str:
    """What so many seedlings of one plant cost, in euros."""
    if seedlings < 1:
        raise ValueError("seedlings must be 1 or more")
    each = PRICES[plant]
    return f"{seedlings} {plant} seedlings at {each:.2f} euros each cost {seedlings * each:.2f} euros."
