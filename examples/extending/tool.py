"""A tool that is a JSON Schema and a callable, without a Python signature."""

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool_from_schema

SCHEMA = {"properties": {"user-id": {"type": "integer"}}, "required": ["user-id"], "additionalProperties": False}


async def call_server(**arguments: object) -> object:
    """Whatever the arguments are, they fit the schema."""
    return {"called with": arguments}


delete_user = tool_from_schema("delete_user", "Delete a user.", SCHEMA, call_server, effect="effect")
script = [Reply(calls=(ToolCall("1", "delete_user", '{"user-id": 7}'),), finish="tools"), "User 7 is deleted."]
clerk = Worker("clerk", "keeps the list of users", tools=[delete_user], model=ScriptedModel(script))
team = Team([clerk], supervisor=Supervisor(plan=Plan((Task("t1", "Delete user 7.", "clerk"),), "forward")))
if __name__ == "__main__":
    print(team.run_sync("Delete user 7.").answer)
