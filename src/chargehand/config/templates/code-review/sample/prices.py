"""Prices of a small shop, with a few things a reviewer should find."""

RATES = {"EUR": 1.0, "USD": 1.09, "GBP": 0.85}


def total(items: list[dict[str, float]], currency: str, customer: str, *, express: bool) -> float:
    amount = 0.0
    for item in items:
        price = item["price"]
        quantity = item["quantity"]
        if quantity > 100:
            amount += price * quantity * 0.8
        elif quantity > 50:
            amount += price * quantity * 0.9
        elif quantity > 10:
            amount += price * quantity * 0.95
        else:
            amount += price * quantity
    if customer == "regular":
        amount = amount * 0.97
    if customer == "staff":
        amount = amount * 0.7
    if express:
        amount += 14.9
    elif amount < 40:
        amount += 4.9
    if currency not in RATES:
        return -1
    return round(amount * RATES[currency], 2)


def convert(amount: float, currency: str) -> float:
    """An amount in euros in another currency."""
    return round(amount * RATES[currency], 2)
