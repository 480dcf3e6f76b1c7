"""A toolbox: tools that share a connection, which is opened by the first call and closed after the last run."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, Tool, ToolCall, Worker, tool_from_schema

PRODUCT = {"properties": {"product": {"type": "string"}}, "required": ["product"]}


class Warehouse:
    name = "warehouse"

    def tools(self) -> list[Tool]:
        """Known before anything is opened; these functions are never called."""
        return self._tools(None)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[list[Tool]]:
        connection = sqlite3.connect(":memory:")
        connection.executescript("create table stock (product, pieces); insert into stock values ('anvil', 12);")
        try:
            yield self._tools(connection)
        finally:
            connection.close()

    def _tools(self, connection: sqlite3.Connection | None) -> list[Tool]:
        async def stock(product: str) -> int:
            assert connection is not None, "it is open"
            row = connection.execute("select pieces from stock where product = ?", (product,)).fetchone()
            return row[0] if row else 0

        return [tool_from_schema("stock", "How many of a product are in stock.", PRODUCT, stock)]


script = [Reply(calls=(ToolCall("1", "stock", '{"product": "anvil"}'),), finish="tools"), "There are 12 anvils."]
keeper = Worker("keeper", "knows the stock", tools=[Warehouse()], model=ScriptedModel(script))
team = Team([keeper], supervisor=Supervisor(plan=Plan((Task("t1", "Count the anvils.", "keeper"),), "forward")))
if __name__ == "__main__":
    print(team.run_sync("How many anvils are in stock?").answer)
