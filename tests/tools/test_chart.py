"""Charts: well-formed SVG whatever the words and numbers, and bars as long as their values."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.models.artifacts import Chart
from chargehand.tools.chart import HEIGHT, WIDTH, axis_ticks, chart, draw_chart, number
from chargehand.tools.tool import ToolFailed

SVG = "{http://www.w3.org/2000/svg}"


def picture(found: Chart) -> ET.Element:
    return ET.fromstring(found.svg)


async def test_the_tool_draws_what_it_is_given() -> None:
    found = await chart().call(
        json.dumps({"title": "Sales", "labels": ["DE", "FR"], "values": [120.5, 80], "unit": "EUR"}), "k"
    )
    assert isinstance(found, Chart)
    assert found.summary == "Bar chart, 2 values: highest DE with 120.5 EUR, lowest FR with 80 EUR."
    root = picture(found)
    assert (root.tag, root.get("role"), root.get("width"), root.get("aria-label")) == (
        SVG + "svg",
        "img",
        "720",
        "Sales",
    )
    assert root.findtext(SVG + "title") == "Sales"
    assert {"DE", "FR", "120.5", "80", "EUR", "Sales"} <= {text.text for text in root.iter(SVG + "text")}


def test_bars_are_as_long_as_their_values_and_go_down_below_zero() -> None:
    bars = [bar for bar in picture(draw_chart("t", ["a", "b", "c"], [10, -5, 0])).iter(SVG + "rect") if len(bar)]
    heights = [float(bar.get("height", "")) for bar in bars]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[2] == 0
    zero = float(bars[0].get("y", "")) + heights[0]
    assert float(bars[1].get("y", "")) == pytest.approx(zero, abs=0.2)


def test_one_value_makes_a_chart_of_either_kind() -> None:
    assert draw_chart("t", ["a"], [5], "line").summary == "Line chart, 1 value: a 5."
    assert draw_chart("t", ["a", "b"], [0, 0]).summary == "Bar chart, 2 values: all 0."


@pytest.mark.parametrize(
    ("labels", "values", "words"),
    [
        ([], [], "1 to 50 values, not 0"),
        (["a"], [1.0, 2.0], "1 labels and 2 values"),
        (["a"] * 51, [1.0] * 51, "not 51"),
        (["a"], [1e16], "divide them all"),
        (["a" * 201], [1.0], "shorten it"),
    ],
)
def test_what_cannot_be_drawn_is_said(labels: list[str], values: list[float], words: str) -> None:
    with pytest.raises(ToolFailed, match=words):
        draw_chart("t", labels, values)


def test_nothing_from_outside_becomes_markup() -> None:
    evil = '"><script>alert(1)</script>'
    found = draw_chart(evil, [evil, "]]>", "&#0;"], [1, 2, 3], "bar", evil)
    tags = {element.tag.removeprefix(SVG) for element in picture(found).iter()}
    assert tags == {"svg", "title", "rect", "text", "line"}
    assert "<script" not in found.svg


words = st.text(max_size=60)
numbers = (
    st.floats(-1e15, 1e15) | st.integers(-1000, 1000).map(float) | st.sampled_from([0.0, -0.0, 5e-324, 1e-9, 1e15])
)


@settings(deadline=None, max_examples=200)
@given(words, st.lists(st.tuples(words, numbers), min_size=1, max_size=50), st.sampled_from(["bar", "line"]), words)
def test_every_chart_is_well_formed_and_stays_in_its_frame(
    title: str, points: list[tuple[str, float]], kind: str, unit: str
) -> None:
    labels = [label for label, _ in points]
    values = [value for _, value in points]
    found = draw_chart(title, labels, values, "line" if kind == "line" else "bar", unit)
    root = picture(found)
    assert re.search(r"\bnan\b|\binf\b", re.sub(r"<(text|title)[^>]*>[^<]*", "", found.svg)) is None
    for shape in (*root.iter(SVG + "rect"), *root.iter(SVG + "circle")):
        assert 0 <= float(shape.get("y") or shape.get("cy") or 0) <= HEIGHT
        assert 0 <= float(shape.get("x") or shape.get("cx") or 0) <= WIDTH
    labelled = [text for text in root.iter(SVG + "text") if text.get("transform") or text.get("text-anchor")]
    assert len(labelled) < 200


@given(st.lists(numbers, min_size=1, max_size=50), st.booleans())
def test_an_axis_holds_every_value_in_a_few_round_steps(values: list[float], zero: bool) -> None:
    ticks = axis_ticks(values, zero=zero)
    slack = (ticks[1] - ticks[0]) * 1e-6
    assert ticks[0] - slack <= min(values) <= max(values) <= ticks[-1] + slack
    assert 2 <= len(ticks) <= 9
    if zero:
        assert ticks[0] <= 0 <= ticks[-1]


def test_the_axis_is_numbered_in_round_steps() -> None:
    assert axis_ticks([0.05, 0.24], zero=True) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25])
    words = {text.text for text in picture(draw_chart("t", ["a", "b"], [0.3, -0.3])).iter(SVG + "text")}
    assert {"-0.2", "0", "0.2"} <= words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (120.5, "120.5"),
        (100, "100"),
        (1234567.891, "1,234,567.89"),
        (-0.001, "-0.001"),
        (0, "0"),
        (-0.0, "0"),
        (10, "10"),
    ],
)
def test_values_are_written_in_full_without_idle_zeros(value: float, words: str) -> None:
    assert number(value) == words
