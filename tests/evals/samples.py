"""Small teams and datasets for tests of evaluations."""

from pathlib import Path

from chargehand.agents.checks import Rule
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Route
from chargehand.engine.events import Effect
from chargehand.engine.policy import Policy
from chargehand.evals.cases import Case, Dataset, read_dataset
from chargehand.models.messages import Reply, ToolCall
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import Tool, tool


@tool
def stock(product: str) -> int:
    """How many of a product are in stock: anvils, bellows or tongs."""
    return {"anvils": 12, "bellows": 0, "tongs": 31}[product]


def store() -> Team:
    """A team that counts stock, with a check that catches results without a figure."""
    keeper = Worker("keeper", "knows how many of a product are in stock", tools=[stock], accept=["figures"])
    return Team(
        [keeper, Worker("writer", "writes short notes from the results of others")],
        name="store",
        checks={"figures": Rule(has_number=True)},
    )


def desk() -> Team:
    """A team that is led by a route, by words."""
    return Team(
        [
            Worker("billing", "answers questions about invoices", skills=["invoices", "refunds", "payment methods"]),
            Worker("repairs", "helps when something is broken", skills=["error messages", "devices that do not start"]),
        ],
        supervisor=Supervisor(strategy=Route(router="words")),
        name="desk",
    )


def dataset(*cases: Case, name: str = "some", gate: dict[str, float] | None = None) -> Dataset:
    return Dataset(name, cases, gate or {})


def written(folder: Path, name: str, text: str) -> Dataset:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_dataset(file)


class Till:
    """A tool that pays, and what was paid."""

    def __init__(self, effect: Effect = "effect", *, approval: bool = False) -> None:
        self.paid: list[str] = []

        @tool(effect=effect, approve=approval)
        def refund(order: str) -> str:
            """Pay the money for an order back."""
            self.paid.append(order)
            return f"{order} was refunded"

        self.refund: Tool = refund

    def team(self) -> Team:
        call = Reply(calls=(ToolCall("1", "refund", '{"order": "A17"}'),), finish="tools")
        model = ScriptedModel([call, "A17 was refunded."])
        worker = Worker("cashier", "pays back", tools=[self.refund], model=model)
        return Team([worker], policy=Policy(approve=True))
