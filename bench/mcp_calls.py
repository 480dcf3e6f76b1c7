"""What a call of an MCP tool costs more than the same call by the bare SDK: python -m bench.mcp_calls

Both speak to a server of their own, made with the SDK, in turns of one run.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from mcp import Client, StdioServerParameters

from chargehand.tools.mcp_client import McpServer

SERVER = Path(__file__).parents[1] / "tests/mcp/sdk_server.py"
CALLS = 300


async def measure(lock: Path) -> None:
    command = [sys.executable, str(SERVER)]
    server = McpServer("shop", command=command, lock=lock)
    await server.pin()
    walls: list[tuple[float, float]] = []
    seconds = [0.0, 0.0]
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, cache=None) as client, server.open() as tools:
        stock = next(tool for tool in tools if tool.name == "shop_stock")
        await client.list_tools()
        await stock.call('{"product": "anvils"}', "key")
        for _ in range(CALLS):
            began = perf_counter(), process_time()
            await client.call_tool("stock", {"product": "anvils"})
            between = perf_counter(), process_time()
            await stock.call('{"product": "anvils"}', "key")
            ended = perf_counter(), process_time()
            walls.append((between[0] - began[0], ended[0] - between[0]))
            seconds[0] += between[1] - began[1]
            seconds[1] += ended[1] - between[1]
    bare, ours = (median(times) * 1000 for times in zip(*walls, strict=True))
    print(f"wall, median: bare SDK {bare:.2f} ms a call, ours {ours:.2f} ms, more {ours - bare:+.2f} ms")
    bare, ours = (total / CALLS * 1000 for total in seconds)
    print(f"CPU: bare SDK {bare:.2f} ms a call, ours {ours:.2f} ms, more {ours - bare:+.2f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder) / "mcp.lock"))
