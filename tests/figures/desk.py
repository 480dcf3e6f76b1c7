"""A team with one worker around each case: it calls every tool, says what it says, and says it again if asked."""

import json
from collections.abc import Callable

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.messages import Reply, Request, ToolCall
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import Tool, as_tool
from tests.figures.held_out import Case

ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)


def returning(name: str, value: object) -> Tool:
    """A tool that returns this."""

    def look() -> object:
        """Look it up."""
        return value

    look.__name__ = name
    return as_tool(look)


def persistent(case: Case) -> Callable[[Request], Line]:
    """A model that calls every tool once and then says the same, however often it is asked."""

    def script(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        if any(message.role == "tool" for message in request.messages):
            return case.answer
        calls = tuple(ToolCall(f"c{at}", name, json.dumps({})) for at, name in enumerate(case.tools))
        return Reply(calls=calls, finish="tools")

    return script


async def run_case(case: Case) -> Result:
    tools = [returning(name, value) for name, value in case.tools.items()]
    plan = Plan((Task(TaskId("t1"), case.request, "clerk"),), "forward")
    model = ScriptedModel(persistent(case), repeat=True)
    team = Team([Worker("clerk", tools=tools)], supervisor=Supervisor(model=model, plan=plan), policy=ONCE)
    return await team.run(case.request)
