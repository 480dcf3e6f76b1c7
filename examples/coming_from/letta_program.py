"""letta-client: two agents share a block. Runs unchanged on a Letta server and on `chargehand serve`."""

import os

from letta_client import Letta

client = Letta(base_url=os.environ["LETTA_BASE_URL"])
model = os.environ.get("LETTA_MODEL", "openai/gpt-5-mini")
rules = client.blocks.create(label="rules", value="Prices are in euros.")
clerk = client.agents.create(name="clerk", model=model, block_ids=[rules.id], tags=["worker", "shop"])
lead = client.agents.create(name="lead", model=model, block_ids=[rules.id], tags=["supervisor"])
client.agents.blocks.update("rules", agent_id=lead.id, value="Prices are in dollars.")
print(client.agents.blocks.retrieve("rules", agent_id=clerk.id).value)
print([agent.name for agent in client.agents.list(tags=["shop"])])
