"""A team in a team: `python examples/strategies/nested.py`."""  # noqa: INP001 - a script, no package

from chargehand import Team, Worker, tool


@tool
def stock(product: str) -> int:
    """How many of a product are in stock: anvils or tongs."""
    return {"anvils": 12, "tongs": 31}[product]


@tool
def price(product: str) -> str:
    """What a product costs: anvils or tongs."""
    return {"anvils": "An anvil costs 240 euros.", "tongs": "Tongs cost 35 euros."}[product]


cellar = Team([Worker("keeper", "counts what is in stock", tools=[stock])], name="cellar")
office = Team(
    [
        cellar.as_worker(description="knows how many of a product are in stock"),
        Worker("clerk", "knows prices", tools=[price]),
    ],
    name="office",
)

if __name__ == "__main__":
    result = office.run_sync("How many anvils are in stock, and what is the price of anvils?")
    for task in result.plan.tasks:
        print(f"{task.id} {task.worker}: {task.instruction}")  # noqa: T201 - an example shows something
    print(result.answer)  # noqa: T201 - as above
