"""Small teams and datasets for tests of evaluations."""

from pathlib import Path

from chargehand.agents.acceptance import Rule
from chargehand.agents.ways import Route
from chargehand.agents.worker import Worker
from chargehand.evals.cases import Case, Dataset
from chargehand.evals.dataset import read_dataset
from chargehand.team import Supervisor
from chargehand.tools.tool import tool


@tool
def stock(product: str) -> int:
    """How many of a product are in stock: anvils, bellows or tongs."""
    return {"anvils": 12, "bellows": 0, "tongs": 31}[product]


def store() -> Supervisor:
    """A team that counts stock, with a check that catches results without a figure."""
    keeper = Worker("keeper", "knows how many of a product are in stock", tools=[stock], accept=["figures"])
    return Supervisor(
        [keeper, Worker("writer", "writes short notes from the results of others")],
        name="store",
        checks={"figures": Rule(has_number=True)},
    )


def desk() -> Supervisor:
    """A team that is led by a route, by words."""
    return Supervisor(
        [
            Worker("billing", "answers questions about invoices", skills=["invoices", "refunds", "payment methods"]),
            Worker("repairs", "helps when something is broken", skills=["error messages", "devices that do not start"]),
        ],
        name="desk",
        way=Route(router="words"),
    )


def dataset(*cases: Case, name: str = "some", gate: dict[str, float] | None = None) -> Dataset:
    return Dataset(name, cases, gate or {})


def written(folder: Path, name: str, text: str) -> Dataset:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_dataset(file)
