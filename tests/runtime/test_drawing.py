"""Runs as HTML for notebooks: drawn from the trace, with nothing in it that a browser would run or load."""

import xml.etree.ElementTree as ET

from chargehand import Result, Supervisor, Team, Worker, tool
from chargehand.engine.plan import TaskId
from chargehand.runtime.drawing import MAX_TASKS, draw_run
from chargehand.runtime.trace import TaskTrace, Trace, trace
from tests.test_histories import NAMES, history

_ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def parsed(html: str) -> ET.Element:
    return ET.fromstring(html)


@tool
def stock(product: str) -> int:
    """How many of a product are in stock: anvils or tongs."""
    return {"anvils": 12, "tongs": 31}[product]


def test_a_notebook_shows_the_answer_the_graph_and_the_timeline() -> None:
    keeper = Worker("keeper", "knows how many of a product are in stock", tools=[stock])
    result = Team([keeper], supervisor=Supervisor(model="demo")).run_sync("How many anvils are in stock?")
    assert isinstance(result, Result)
    page = parsed(result._repr_html_())
    labels = [svg.get("aria-label") for svg in page.iter("{http://www.w3.org/2000/svg}svg")]
    assert labels == ["tasks and what they need", "when the tasks were worked on"]
    text = "".join(page.itertext())
    assert "12" in text
    assert "t1 keeper · done" in text


def test_every_recorded_history_can_be_drawn() -> None:
    for name in NAMES:
        page = parsed(draw_run(trace(name, history(name)), answer="", cost=0.0))
        assert page.tag == "div"


def test_a_text_of_a_run_is_never_markup() -> None:
    task = TaskTrace(TaskId(_ATTACK), _ATTACK, _ATTACK, status=_ATTACK)
    page = parsed(draw_run(Trace(_ATTACK, _ATTACK, 0.0, tasks=[task]), answer=_ATTACK, cost=0.0))
    tags = {element.tag.rpartition("}")[2] for element in page.iter()}
    assert not tags & {"script", "img"}


def test_a_task_stands_right_of_what_it_needs_in_whatever_order_they_come() -> None:
    late = TaskTrace(TaskId("b"), "second", "w", after=(TaskId("a"),))
    early = TaskTrace(TaskId("a"), "first", "w")
    page = parsed(draw_run(Trace("run", "goal", 0.0, tasks=[late, early]), answer="", cost=0.0))
    lefts = {}
    for group in page.iter("{http://www.w3.org/2000/svg}g"):
        title, frame = list(group)[:2]
        lefts[title.text] = int(frame.get("x", "0"))
    assert lefts["first"] < lefts["second"]


def test_of_a_large_run_the_first_tasks_are_drawn_and_the_others_counted() -> None:
    tasks = [TaskTrace(TaskId(f"t{number}"), "part", "w") for number in range(MAX_TASKS + 5)]
    html = draw_run(Trace("run", "goal", 0.0, tasks=tasks), answer="", cost=0.0)
    assert "5 more tasks are not drawn." in "".join(parsed(html).itertext())
