"""chargehand: triage is the strategy `route`. Words decide here; `router="model"` asks the model, as a handoff does."""

import os

from chargehand import Route, Supervisor, Team, Worker, tool

model = f"openai+{os.environ['OPENAI_BASE_URL']}#gpt-5-mini"


@tool
def stock(product: str) -> str:
    """How many of a product are in stock."""
    return f"12 {product} are in stock"


@tool
def price(product: str) -> str:
    """What a product costs."""
    return f"{product} cost 80 euros"


workers = [
    Worker("keeper", "knows how many products are in stock", tools=[stock], model=model),
    Worker("seller", "knows what products cost", tools=[price], model=model),
]
team = Team(workers, supervisor=Supervisor(strategy=Route(router="words"), model=model))
result = team.run_sync("How many anvils are in stock?")
print(result.ending, result.answer)
