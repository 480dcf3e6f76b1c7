"""`@tool`: the schema a model is shown, the check of what it wrote, and how calls fail."""

import asyncio
import enum
import functools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from chargehand.errors import Invalid
from chargehand.models.messages import ToolSpec
from chargehand.tools.tool import CallKey, Tool, ToolFailed, as_tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(Struct):
    city: str
    zip: str = ""


@dataclass
class Size:
    width: int
    height: int = 1


class Leaf(pydantic.BaseModel):
    label: str


class Tree(pydantic.BaseModel):
    leaves: list[Leaf] = []


@tool
def weather(city: Annotated[str, "Name of the city"], days: int = 3) -> str:
    """Forecast the weather.

    Args:
        city: not used, the annotation wins
        days: How many days,
            from today
    """
    return f"{city} {days}"


@tool(effect="idempotent", name="send")
async def send_letter(to: str, key: CallKey) -> str:
    """Send a letter once."""
    await asyncio.sleep(0)
    return f"{to} {key}"


def schema(of: Tool) -> dict[str, Any]:
    return msgspec.json.decode(of.spec.parameters)


async def failure(of: Tool, arguments: str) -> str:
    with pytest.raises(ToolFailed) as caught:
        await of.call(arguments, "k")
    return str(caught.value)


def test_the_schema_shows_names_types_defaults_and_descriptions() -> None:
    assert schema(weather) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "days": {"type": "integer", "default": 3, "description": "How many days, from today"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert weather.spec.description == "Forecast the weather."


def test_what_follows_the_section_on_arguments_stays_in_the_description() -> None:
    def noted(text: str) -> str:
        """First.

        Args:
            text (str): the text

        Returns something.
        """
        return text

    assert tool(noted).spec.description == "First.\n\n\nReturns something."
    assert schema(tool(noted))["properties"]["text"]["description"] == "the text"


def test_every_supported_type_has_a_schema_and_is_read() -> None:
    def everything(
        flag: bool,
        ratio: float,
        kind: Literal["bar", "line"],
        colour: Colour,
        place: Place,
        size: Size,
        tree: Tree,
        names: list[str],
        counts: dict[str, int],
        limit: Annotated[int, Meta(ge=1, le=9)] = 2,
        maybe: str | None = None,
        anything: object = None,
    ) -> list[object]:
        return [flag, ratio, kind, colour, place, size, tree, names, counts, limit, maybe, anything]

    shown = schema(tool(everything))
    assert shown["properties"]["colour"] == {"$ref": "#/$defs/Colour"}
    assert shown["$defs"]["Colour"]["enum"] == ["blue", "red"]
    assert shown["properties"]["limit"] == {"type": "integer", "minimum": 1, "maximum": 9, "default": 2}
    assert shown["properties"]["tree"]["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Leaf"}
    assert set(shown["$defs"]) == {"Colour", "Place", "Size", "Leaf"}
    arguments = {
        "flag": True,
        "ratio": 1,
        "kind": "bar",
        "colour": "red",
        "place": {"city": "Ulm"},
        "size": {"width": 2},
        "tree": {"leaves": [{"label": "x"}]},
        "names": ["a"],
        "counts": {"a": 1},
        "anything": [1],
    }
    found = asyncio.run(tool(everything).call(msgspec.json.encode(arguments).decode(), "k"))
    tree = Tree(leaves=[Leaf(label="x")])
    assert found == [True, 1.0, "bar", Colour.RED, Place("Ulm"), Size(2), tree, ["a"], {"a": 1}, 2, None, [1]]


def test_a_default_that_is_an_object_is_handed_over_as_python_does() -> None:
    given = [Place("Bonn")]

    def visit(places: list[Place] = given) -> bool:
        return places is given

    assert schema(tool(visit))["properties"]["places"]["default"] == [{"city": "Bonn", "zip": ""}]
    assert asyncio.run(tool(visit).call("{}", "k")) is True


async def test_the_key_of_the_call_is_handed_over_and_not_shown() -> None:
    assert list(schema(send_letter)["properties"]) == ["to"]
    assert await send_letter.call('{"to": "Eve"}', "run-1/step-2") == "Eve run-1/step-2"
    assert "$ has 'key', which is not wanted" in await failure(send_letter, '{"to": "Eve", "key": "mine"}')
    assert (send_letter.name, send_letter.effect, send_letter.approve) == ("send", "idempotent", False)


def untyped(text) -> None: ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]


def many(*texts: str) -> None: ...


def free(**texts: str) -> None: ...


def placed(text: str, /) -> None: ...


def callback(then: Callable[[], int]) -> None: ...


def described(text: str, then: Annotated[Callable[[], int], "What to do then"]) -> None: ...


def lost(place: "Nowhere") -> None: ...  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]  # noqa: F821


BROKEN: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (untyped, ("untyped", "'text'", "annotate it")),
    (many, ("many", "'texts'", "list[")),
    (free, ("free", "'texts'", "name each")),
    (placed, ("placed", "'text'", "take the /")),
    (callback, ("callback", "'then'", "dataclass")),
    (described, ("described", "'then'", "dataclass")),
    (lost, ("lost", "Nowhere", "in the module")),
    (lambda: 1, ("lambda", "name=")),
]


@pytest.mark.parametrize(("function", "parts"), BROKEN)
def test_a_function_that_cannot_be_a_tool_is_refused_when_it_is_declared(
    function: Callable[..., Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(Invalid) as caught:
        tool(function)
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"timeout": 0}, "timeout is 0; it must be longer than nothing"),
        ({"timeout": float("nan")}, "timeout is nan; a duration is between"),
        ({"cap": 0}, "more than nothing"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        tool(**wrong)(many_once)


def many_once() -> None: ...


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": "Ulm",', "are no JSON object"),
        ("city=Ulm", "are no JSON object"),
        ('{"city": "\ud800"}', "are no JSON object"),
        ("[" * 100_000, "are no JSON object"),
        ('["Ulm"]', "are no JSON object"),
        ("null", "are no JSON object"),
        ('{"citty": "Ulm"}', "$ has 'citty', which is not wanted"),
        ("{}", "$ lacks 'city'"),
        ("", "$ lacks 'city'"),
        ('{"city": 5}', "$.city must be string, not a number"),
        ('{"city": null}', "$.city must be string, not null"),
        ('{"city": "Ulm", "days": "3"}', "$.days must be integer, not a text"),
        ('{"city": "Ulm", "days": 1e400}', "are no JSON object (Number out of range"),
    ],
)
async def test_wrong_arguments_come_back_in_words_with_the_shape(arguments: str, words: str) -> None:
    said = await failure(weather, arguments)
    assert words in said
    assert said.endswith('Expected: {"city": string, "days": integer (optional)}')


async def test_null_for_an_argument_that_may_be_left_out_means_it_is() -> None:
    assert await weather.call('{"city": "Ulm", "days": null}', "k") == "Ulm 3"


async def test_a_pydantic_model_that_does_not_fit_is_a_failure_in_words() -> None:
    def grow(tree: Tree) -> int:
        return len(tree.leaves)

    assert await tool(grow).call('{"tree": {"leaves": [{"label": "x"}]}}', "k") == 1
    assert "leaves" in await failure(tool(grow), '{"tree": {"leaves": [{"label": 5}]}}')


plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["city", "days", "x"]), inner),
)


@settings(deadline=None)
@given(st.text() | plain.map(json.dumps))
def test_whatever_a_model_writes_is_a_result_or_a_failure_in_words(arguments: str) -> None:
    try:
        assert isinstance(asyncio.run(weather.call(arguments, "k")), str)
    except ToolFailed as failed:
        assert "Expected: " in str(failed)  # noqa: PT017


@pytest.mark.parametrize("kind", [ValueError, StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_whatever_a_tool_in_a_thread_raises_is_its_failure(kind: type[BaseException]) -> None:
    def broken() -> None:
        raise kind("no luck")

    with pytest.raises(ToolFailed, match=f"^{kind.__name__}: no luck$") as caught:
        await tool(broken).call("{}", "k")
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("kind", [ValueError, TimeoutError, SystemExit, asyncio.CancelledError])
async def test_whatever_a_tool_on_the_loop_raises_is_its_failure(kind: type[BaseException]) -> None:
    async def broken() -> None:
        await asyncio.sleep(0)
        raise kind("no luck")

    with pytest.raises(ToolFailed, match=f"^{kind.__name__}: no luck$") as caught:
        await tool(broken).call("{}", "k")
    assert isinstance(caught.value.__cause__, kind)


async def test_a_failure_raised_on_purpose_reaches_the_model_as_it_is() -> None:
    def choosy() -> None:
        raise ToolFailed("only whole numbers; try 3")

    assert await failure(tool(choosy), "{}") == "only whole numbers; try 3"


async def test_an_exception_that_cannot_be_shown_is_still_a_failure() -> None:
    class Sour(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def broken() -> None:
        raise Sour

    assert await failure(tool(broken), "{}") == "Sour: (its message cannot be shown)"


async def test_a_slow_tool_fails_in_time_whether_in_a_thread_or_on_the_loop() -> None:
    done = threading.Event()

    def stuck() -> None:
        done.wait(20)

    async def asleep() -> None:
        await asyncio.sleep(20)

    began = time.monotonic()
    assert await failure(tool(timeout=0.05)(stuck), "{}") == "stuck did not finish within 0.05 s"
    assert await failure(tool(timeout=0.05)(asleep), "{}") == "asleep did not finish within 0.05 s"
    assert time.monotonic() - began < 10
    done.set()


async def test_a_cancelled_call_is_cancelled_and_not_a_failure() -> None:
    done = threading.Event()

    async def asleep() -> None:
        await asyncio.sleep(20)

    def stuck() -> None:
        done.wait(20)

    for slow in (asleep, stuck):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await tool(slow).call("{}", "k")
    done.set()


async def test_plain_functions_run_beside_the_loop_and_quick_ones_on_it() -> None:
    def where() -> int:
        return threading.get_ident()

    assert await tool(where).call("{}", "k") != threading.get_ident()
    assert await tool(quick=True)(where).call("{}", "k") == threading.get_ident()


async def test_a_function_that_returns_a_promise_is_awaited() -> None:
    async def later() -> int:
        return 5

    def now() -> Any:
        return later()

    assert await tool(now).call("{}", "k") == 5


class Shop:
    """A shop."""

    async def __call__(self, item: str) -> str:
        """Buy something."""
        return "bought " + item

    def sell(self, item: str) -> str:
        """Sell something."""
        return "sold " + item


def greet(greeting: str, name: str) -> str:
    """Greet somebody."""
    return f"{greeting}, {name}"


async def test_methods_objects_and_partials_can_be_tools() -> None:
    shop = as_tool(Shop())
    hello = as_tool(functools.partial(greet, greeting="Hello"))
    assert (shop.name, shop.spec.description) == ("shop", "Buy something.")
    assert await shop.call('{"item": "tea"}', "k") == "bought tea"
    assert await as_tool(Shop().sell).call('{"item": "tea"}', "k") == "sold tea"
    assert list(schema(hello)["properties"]) == ["name"]
    assert await hello.call('{"name": "Ida"}', "k") == "Hello, Ida"
    assert as_tool(weather) is weather


async def test_a_tool_can_be_made_from_a_spec_of_its_own() -> None:
    spec = ToolSpec("hi", "Says hi.", weather.spec.parameters)
    assert await Tool(spec, greet).call('{"greeting": "Hi", "name": "Bo"}', "k") == "Hi, Bo"


def fresh(code: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds, check=False)


def test_a_tool_that_never_returns_holds_up_neither_the_loop_nor_the_end_of_the_process() -> None:
    done = fresh("""
import asyncio, time
from chargehand.tools.tool import ToolFailed, tool

@tool(timeout=0.05)
def stuck() -> None:
    while True:
        time.sleep(60)

async def main():
    try:
        await stuck.call("{}", "k")
    except ToolFailed as failed:
        print(failed)

asyncio.run(main())
""")
    assert (done.stdout, done.stderr, done.returncode) == ("stuck did not finish within 0.05 s\n", "", 0)


def test_no_text_from_outside_is_ever_compiled_or_imported() -> None:
    done = fresh("""
import asyncio, sys
from chargehand.tools.tool import ToolFailed, tool

@tool(quick=True)
def echo(text: str, items: list[int] | None = None) -> str:
    return text

hostile = ["__import__('os')", "lambda: 1", "list[__import__('os').system('true')]", "\\"; import os", "str"]
async def main():
    for text in hostile:
        for arguments in (text, '{"text": %r}' % text, '{"%s": 1}' % text, '{"items": "%s"}' % text):
            try:
                await echo.call(arguments, text)
            except ToolFailed:
                pass

async def warm():
    try:
        await echo.call('{"text": 5}', "")  # the checker of schemas is loaded
    except ToolFailed:
        pass
asyncio.run(warm())
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event in ("exec", "compile", "import") else None)
asyncio.run(main())
print(seen)
""")
    assert (done.stdout, done.stderr) == ("[]\n", "")
