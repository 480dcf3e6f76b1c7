"""A team in Python for processes of a cluster: its function decides on refunds, but not on large ones."""

from chargehand import (
    ApprovalRequest,
    Plan,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)


@tool(effect="effect", approve=True)
async def refund(euros: int) -> str:
    """Refund an order."""
    return f"{euros} euros were refunded"


def _work(request: Request) -> Reply | str:
    rounds = sum(message.role == "assistant" for message in request.messages)
    if rounds == 2:
        return "Done."
    return Reply(calls=(ToolCall(str(rounds), "refund", f'{{"euros": {(20, 500)[rounds]}}}'),), finish="tools")


def _decide(request: ApprovalRequest) -> bool | None:
    return True if request.arguments["euros"] == 20 else None


_PLAN = Plan((Task("t1", "Refund it.", "clerk"),), "forward")
_CLERK = Worker("clerk", "refunds", tools=[refund], model=ScriptedModel(_work))
desk = Team([_CLERK], supervisor=Supervisor(plan=_PLAN), name="desk", on_approval=_decide)
