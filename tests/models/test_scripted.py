"""The model for tests does what its script says."""

import asyncio
import time

import pytest

from chargehand.engine.failure import Failure
from chargehand.models.messages import Message, Reply, Request, Usage
from chargehand.models.model import ModelFailed
from chargehand.models.testing.scripted import ScriptedModel
from tests.support.hearing import hear_answer

HELLO = Request([Message("user", "hello")])


async def test_lines_come_in_turn_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", Reply("two", model="mine")], handle="x", micros=7, usage=Usage(1, 1))
    assert await model.reply(HELLO) == Reply("one", usage=Usage(1, 1), micros=7, model="x")
    assert (await model.reply(HELLO)).model == "mine"
    assert [list(request.messages) for request in model.requests] == [[Message("user", "hello")]] * 2


async def test_a_request_is_kept_as_it_was_even_if_its_history_grows() -> None:
    history = [Message("user", "hello")]
    model = ScriptedModel(["one"])
    await model.reply(Request(history))
    history.append(Message("user", "more"))
    assert len(model.requests[0].messages) == 1


async def test_a_script_that_has_run_out_says_so() -> None:
    model = ScriptedModel(["one"])
    await model.reply(HELLO)
    with pytest.raises(ModelFailed, match="holds 1 replies and is asked for one more") as caught:
        await model.reply(HELLO)
    assert caught.value.failure.permanent


async def test_a_script_may_go_on_with_its_last_line() -> None:
    model = ScriptedModel(["one", "two"], repeat=True)
    assert [(await model.reply(HELLO)).text for _ in range(3)] == ["one", "two", "two"]


async def test_a_function_answers_the_request_and_may_be_async() -> None:
    async def later(request: Request) -> str:
        await asyncio.sleep(0)
        return request.messages[0].text.upper()

    assert (await ScriptedModel(lambda request: request.messages[0].text).reply(HELLO)).text == "hello"
    assert (await ScriptedModel(later).reply(HELLO)).text == "HELLO"


async def test_failures_fail_and_faults_use_up_no_line() -> None:
    dead = Failure("network", "the line went dead")
    model = ScriptedModel(["one", ModelFailed(dead, Usage(1, 0))], faults={1: dead, 2: ModelFailed(dead)})
    for _ in range(2):
        with pytest.raises(ModelFailed, match="went dead"):
            await model.reply(HELLO)
    assert (await model.reply(HELLO)).text == "one"
    with pytest.raises(ModelFailed) as caught:
        await model.reply(HELLO)
    assert caught.value.usage == Usage(1, 0)


async def test_words_are_heard_one_by_one_after_the_latency() -> None:
    heard: list[str] = []
    began = time.perf_counter()
    await ScriptedModel(["  three small words"], latency=0.02).reply(HELLO, hear_answer(heard))
    assert heard == ["  ", "three ", "small ", "words"]
    assert time.perf_counter() - began >= 0.02
