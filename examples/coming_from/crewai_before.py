"""CrewAI: agents with a role, tasks in a row, a crew."""

import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

llm = LLM(model="openai/gpt-5-mini", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")


@tool("stock")
def stock(product: str) -> str:
    """How many of a product are in stock."""
    return f"12 {product} are in stock"


clerk = Agent(role="clerk", goal="report the stock", backstory="keeps the shop", tools=[stock], llm=llm)
writer = Agent(role="writer", goal="write short notes", backstory="writes plainly", llm=llm)
count = Task(description="Report the stock of anvils.", expected_output="a number", agent=clerk)
note = Task(description="Write a note on the stock.", expected_output="one line", agent=writer, context=[count])
print(Crew(agents=[clerk, writer], tasks=[count, note]).kickoff())
