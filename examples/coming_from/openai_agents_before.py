"""OpenAI Agents: a triage agent hands over to one of two others."""

import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
model = OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)


@function_tool
def stock(product: str) -> str:
    """How many of a product are in stock."""
    return f"12 {product} are in stock"


@function_tool
def price(product: str) -> str:
    """What a product costs."""
    return f"{product} cost 80 euros"


keeper = Agent(name="stock", handoff_description="knows how many are in stock", tools=[stock], model=model)
seller = Agent(name="price", handoff_description="knows what products cost", tools=[price], model=model)
triage = Agent(name="triage", instructions="Hand over to who fits.", handoffs=[keeper, seller], model=model)
print(Runner.run_sync(triage, "How many anvils are in stock?").final_output)
