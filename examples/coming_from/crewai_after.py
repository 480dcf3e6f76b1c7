"""chargehand: an agent is a worker, a task's `context` is `after`; what can run in parallel does."""

import os

from chargehand import Plan, Supervisor, Task, Team, Worker, tool

model = f"openai+{os.environ['OPENAI_BASE_URL']}#gpt-5-mini"


@tool
def stock(product: str) -> str:
    """How many of a product are in stock."""
    return f"12 {product} are in stock"


plan = Plan(
    (
        Task("count", "Report the stock of anvils.", "clerk"),
        Task("note", "Write a note on the stock.", "writer", after=("count",)),
    ),
    "forward",
)
workers = [
    Worker("clerk", "reports the stock", tools=[stock], model=model),
    Worker("writer", "writes short notes", model=model),
]
result = Team(workers, supervisor=Supervisor(plan=plan)).run_sync("Write a note on the stock of anvils.")
print(result.ending, result.answer)
