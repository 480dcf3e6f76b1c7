"""What `doctor --ask` and `make live` try of a model: each feature in real calls over real sockets."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from chargehand.engine.policy import Retry
from chargehand.models.http import Timeouts
from chargehand.models.messages import Reply
from chargehand.models.model import ModelCard
from chargehand.models.prices import flat
from chargehand.models.resolve import Finder
from chargehand.models.testing.fault_server import MODES, FaultServer
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.models.trials import TRIALS, TrialResult, one_page_pdf, try_model
from tests.models.loopback import Asked, Move, loopback, whole

TIMES = Timeouts(connect=1.0, first=0.3, whole=0.3, idle=0.3, total=0.5)
NAMES = [trial.what for trial in TRIALS]


async def tried(handle: str, max_micros: int = 1_000_000, **options: Any) -> dict[str, TrialResult]:
    finder = Finder(lambda _: None)
    try:
        model = finder.find(handle, retry=Retry(attempts=1), **options)
        return {result.what: result async for result in try_model(model, max_micros=max_micros)}
    finally:
        await finder.close()


def handle_of(protocol: str, url: str) -> str:
    return f"{protocol}+{url.removesuffix('/v1') if protocol == 'anthropic' else url}#m"


# --- a model that can do all of it


def openai_answer(text: str, call: str = "") -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": text or None}
    if call:
        function = {"name": call, "arguments": '{"place": "Lisbon"}'}
        message |= {"tool_calls": [{"id": "c1", "type": "function", "function": function}], "reasoning_content": "Hm."}
    reason = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}


def anthropic_answer(text: str, call: str = "") -> dict[str, object]:
    content: list[dict[str, object]] = [{"type": "text", "text": text}] if text else []
    if call:
        content.append({"type": "thinking", "thinking": "Hm.", "signature": "s"})
        content.append({"type": "tool_use", "id": "c1", "name": call, "input": {"place": "Lisbon"}})
    reason = "tool_use" if call else "end_turn"
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": reason}
    return {**head, "content": content, "usage": {"input_tokens": 100, "output_tokens": 10}}


ANSWERS: dict[str, Callable[..., dict[str, object]]] = {"openai": openai_answer, "anthropic": anthropic_answer}


def able(protocol: str, wrong: str = "") -> Callable[[Asked], list[Move]]:
    """A model that does as it is told, except for what is `wrong`."""
    answer = ANSWERS[protocol]

    def play(asked: Asked) -> list[Move]:
        body = json.dumps(asked.json)
        if '"code' in body:
            return whole(answer("I do not know." if wrong == "result" else "K-4471"))
        if "look_up" in body:
            return whole(answer("", "delete_all" if wrong == "tool" else "look_up"))
        if "inhabitants" in body:
            inhabitants = "many" if wrong == "schema" else 545_796
            return whole(answer(json.dumps({"city": "Lisbon", "country": "Portugal", "inhabitants": inhabitants})))
        if "colour" in body:
            return whole(answer("Blue." if wrong == "picture" else "Red."))
        if "animal" in body:
            return whole(answer("Emu." if wrong == "PDF" else "An ostrich."))
        return whole(answer("ok"))

    return play


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_model_that_can_do_all_of_it_passes_with_tokens_times_and_costs(protocol: str) -> None:
    async with loopback(able(protocol)) as server:
        results = await tried(handle_of(protocol, server.url), price=flat(10.0, 100.0), documents=True)
    assert {what: result.state for what, result in results.items()} == dict.fromkeys(NAMES, "ok")
    assert "thoughts that were sent back" in results["tool round"].message
    text, tools = results["text"], results["tool round"]
    assert (text.input, text.output, text.micros) == (100, 10, 2_000)
    assert (tools.input, tools.output, tools.micros) == (200, 20, 4_000)
    assert text.seconds > 0
    first, second = (asked.json for asked in server.asked[1:3])
    assert "Hm." not in json.dumps(first)
    assert "Hm." in json.dumps(second)
    assert ("reasoning_effort" in first) is (protocol == "openai")


@pytest.mark.parametrize(
    ("wrong", "what", "said"),
    [
        ("result", "tool round", "it did not use the result 'K-4471'; it said 'I do not know.'"),
        ("tool", "tool round", "it called 'delete_all', a tool it was not given"),
        ("schema", "schema", "the reply does not fit the schema: "),
        ("picture", "picture", "the picture is red, and it said 'Blue.'"),
        ("PDF", "PDF", "the page is about the ostrich, and it said 'Emu.'"),
    ],
)
async def test_a_reply_of_no_use_fails_its_trial_and_no_other(wrong: str, what: str, said: str) -> None:
    async with loopback(able("openai", wrong)) as server:
        results = await tried(handle_of("openai", server.url), documents=True)
    assert results[what].message.startswith(said)
    assert results[what].todo
    assert [name for name, result in results.items() if result.state == "failed"] == [what]


async def test_what_a_model_does_not_have_is_not_tried() -> None:
    async with loopback(able("openai")) as server:
        results = await tried(handle_of("openai", server.url), native_tools=False, images=False, documents=False)
    states = {what: result.state for what, result in results.items()}
    assert {states[what] for what in ("tool round", "picture", "PDF")} == {"unsupported"}
    assert "if it takes them: find_model(HANDLE, os.environ.get, documents=True)" in results["PDF"].message
    assert (states["text"], states["schema"]) == ("ok", "ok")
    assert len(server.asked) == 2


async def test_no_call_is_made_that_might_cost_more_than_is_left() -> None:
    async with loopback(able("openai")) as server:
        results = await tried(
            handle_of("openai", server.url), max_micros=104_000, price=flat(10.0, 100.0), documents=True
        )
        # 1,024 tokens and what is read may cost 103,000; then there are 2,000 less
        assert [results[what].state for what in NAMES] == ["ok", *["skipped"] * (len(NAMES) - 1)]
        assert results["schema"].todo == "allow more: --max-usd"
        assert len(server.asked) == 1


async def test_a_call_of_unknown_cost_counts_as_the_most_it_may_have_cost() -> None:
    card = ModelCard("scripted").with_price(flat(10.0, 50.0))
    model = ScriptedModel([Reply("ok", usage=None)], repeat=True, card=card)
    results = [result async for result in try_model(model, max_micros=100_000)]
    assert (results[0].state, results[0].micros) == ("ok", None)
    assert [result.what for result in results if result.message.startswith("it might cost")]


def test_the_pdf_can_be_read() -> None:
    pypdf = pytest.importorskip("pypdf")
    pages = pypdf.PdfReader(BytesIO(one_page_pdf("About the ostrich.")), strict=True).pages
    assert [page.extract_text() for page in pages] == ["About the ostrich."]


# --- servers that fail


@pytest.mark.slow("more than fifty modes, several of which say nothing until the time is up")
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_every_fault_gives_a_row_in_words_and_nothing_hangs(protocol: str) -> None:
    async with FaultServer() as server:
        for mode in MODES:
            results = await tried(handle_of(protocol, server.url(mode)), timeouts=TIMES)
            assert list(results) == NAMES, mode
            text = results["text"]
            assert text.state in ("ok", "failed"), mode
            assert text.message, mode
            if text.state == "failed":
                assert {results[what].state for what in NAMES[1:]} == {"skipped"}, mode
                assert text.todo or ";" in text.message or "." in text.message, mode  # what failed, and what to do


async def test_a_feature_that_is_refused_names_the_option_that_turns_it_off() -> None:
    def play(asked: Asked) -> list[Move]:
        if "image_url" in json.dumps(asked.json):
            error = {"error": {"message": "image input is not supported", "type": "invalid_request_error"}}
            return whole(error, status=400)
        return able("openai")(asked)

    async with loopback(play) as server:
        results = await tried(handle_of("openai", server.url))
    assert (results["picture"].state, results["picture"].todo) == (
        "failed",
        "if the model sees no pictures: images=False",
    )
    assert "image input is not supported" in results["picture"].message
    assert results["picture"].micros == 0


async def test_the_demo_model_has_nothing_that_could_be_tried() -> None:
    assert {result.state for result in (await tried("demo")).values()} == {"unsupported"}
