"""What a request of four parts costs on the bundled team: calls and prompt tokens of a fixed run, and no more."""

import json
from pathlib import Path

from msgspec import structs

import chargehand.config
from chargehand.agents.result import Result
from chargehand.config.load import load_team
from chargehand.models.messages import Request
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Planning, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from tests.agents.crowd import call, calls, plan

SHOP = Path(chargehand.config.__file__).parent / "templates" / "shop"
GOAL = (
    "Compare the revenue per country in May 2026 and draw a chart of it, convert the total to US dollars at the rate "
    "of 29 May 2026, and find out what our incident reports say about late deliveries in May."
)
MOST_CALLS = 10
MOST_TOKENS = 10_000
REVENUE = (
    "SELECT country, round(sum(quantity * price_eur), 2) AS revenue FROM orders JOIN products USING (product_id) "
    "WHERE day LIKE '2026-05%' GROUP BY country ORDER BY revenue DESC"
)
TASKS = {
    "Sum the revenue": call("sales", sql=REVENUE),
    "Draw a bar chart": call("chart", title="Revenue in May 2026", labels=["DE", "FR"], values=[9120.5, 4480.0]),
    "Convert the total": call("exchange_rate", currency="USD", day="2026-05-29"),
    "Find what the incident": call("papers", query="late deliveries May"),
}
PLAN = plan(
    ("Sum the revenue per country in May 2026 in euros, and the total.", "analyst", ()),
    ("Draw a bar chart of the revenue per country in May 2026.", "illustrator", ("t1",)),
    ("Convert the total revenue of May 2026 to US dollars at the rate of 29 May 2026.", "treasurer", ("t1",)),
    ("Find what the incident reports say about late deliveries in May 2026.", "archivist", ()),
)


def tokens(request: Request) -> int:
    """Four characters a token: of what is said, of the tools, and of the form that is asked for."""
    size = sum(len(message.text) + sum(len(one.arguments) for one in message.calls) for message in request.messages)
    size += sum(len(f"{one.name}{one.description}") + len(bytes(one.parameters)) for one in request.tools)
    return (size + (0 if request.schema is None else len(bytes(request.schema)))) // 4


def reply(request: Request) -> Line:
    match request.subject:
        case Planning():
            return PLAN
        case Working():
            if request.messages[-1].role == "tool":
                return "Here is what the tool returned, in a sentence or two, with the figures and the source."
            said = request.messages[1].text
            return calls(next(made for words, made in TASKS.items() if f"Task: {words}" in said))
        case Answering():
            return "Revenue was compared [t1] and drawn [t2], converted [t3]; deliveries were late [t4]."
        case _:
            return "short"


async def four_parts() -> tuple[Result, list[Request]]:
    script = ScriptedModel(reply, card=ModelCard("scripted", micros_in=0.0, micros_out=0.0))
    team = load_team(SHOP)
    workers = tuple(structs.replace(worker, model=script) for worker in team.spec.workers)
    team.spec = structs.replace(team.spec, supervisor=structs.replace(team.supervisor, model=script), workers=workers)
    return await team.run(GOAL), script.requests


async def test_a_request_of_four_parts_takes_ten_calls_and_ten_thousand_tokens() -> None:
    found, requests = await four_parts()
    assert len(found.results) == 4, found.gaps
    assert len(requests) <= MOST_CALLS
    spent = [tokens(request) for request in requests]
    assert sum(spent) <= MOST_TOKENS, f"{sum(spent)} tokens: {spent}"


async def test_no_picture_is_shown_to_a_model() -> None:
    _, requests = await four_parts()
    said = json.dumps([message.text for request in requests for message in request.messages])
    assert "Bar chart, 2 values" in said
    assert "<svg" not in said


async def test_the_planner_sees_every_table_and_no_worker_of_ours_in_an_example() -> None:
    _, requests = await four_parts()
    planning = next(request for request in requests if isinstance(request.subject, Planning))
    system = planning.messages[0].text
    for table in ("countries(", "orders(", "products(", "returns("):
        assert table in system
    assert "price_eur" in system
    assert "Spain" not in system


async def test_every_prompt_says_what_day_it_is_and_never_in_the_system_message() -> None:
    _, requests = await four_parts()
    for request in requests:
        assert "Today is " in request.messages[1].text
        assert "Today is " not in request.messages[0].text
