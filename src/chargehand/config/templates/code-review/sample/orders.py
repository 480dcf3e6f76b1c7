"""Orders of a small shop, kept in memory."""

ORDERS: dict[int, dict[str, object]] = {}


def add(number: int, customer: str, total: float) -> None:
    """Keep an order; one with the same number is replaced without a word."""
    ORDERS[number] = {"customer": customer, "total": total, "paid": False}


def pay(number: int) -> bool:
    try:
        ORDERS[number]["paid"] = True
    except KeyError:
        return False
    return True


def unpaid() -> list[int]:
    """The numbers of orders that are not paid."""
    return [number for number, order in ORDERS.items() if not order["paid"]]
