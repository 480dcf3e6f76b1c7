"""chargehand: the same graph as a plan. Nodes are tasks, edges are `after`, the state is what tasks returned."""

import os

from chargehand import Plan, Supervisor, Task, Team, Worker

model = f"openai+{os.environ['OPENAI_BASE_URL']}#gpt-5-mini"
plan = Plan(
    (
        Task("stock", "Report the stock:\n12 anvils", "clerk"),
        Task("price", "Report the price:\nanvils cost 80 euros", "clerk"),
        Task("write", "Write one line from what you are given.", "writer", after=("stock", "price")),
    ),
    "forward",
)
workers = [Worker("clerk", "reports figures", model=model), Worker("writer", "writes short reports", model=model)]
result = Team(workers, supervisor=Supervisor(plan=plan)).run_sync("Report on anvils.")
print(result.ending, result.answer)
