"""What an outing is made of, and what it costs."""  # noqa: INP001 - a file beside a team, no package


def ferry_fare(pupils: int) -> str:
    """What the ferry costs for an outing of so many pupils, there and back."""
    return f"The ferry costs {pupils * 5} euros for {pupils} pupils, there and back."


def lunch_price(pupils: int) -> str:
    """What lunch costs for an outing of so many pupils."""
    return f"Lunch costs {pupils * 7} euros for {pupils} pupils."


def museum_price(pupils: int) -> str:
    """What the museum costs for an outing of so many pupils."""
    return f"The museum costs {pupils * 3} euros for {pupils} pupils."
