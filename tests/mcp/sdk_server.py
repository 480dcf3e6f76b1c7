"""An MCP server made with the SDK: over stdio, or with a port as its argument over HTTP."""

import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("warehouse", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"anvils": 12, "tongs": 31}[product]


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def reserve(product: str, count: int) -> str:
    """Put products aside."""
    return f"{count} {product} put aside"


@server.tool()
def order(product: str) -> str:
    """Order a product from the maker."""
    return f"{product} ordered"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
