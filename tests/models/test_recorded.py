"""Traffic that was recorded is answered again, in any order, and holds nothing that must not be written down."""

from pathlib import Path

import pytest
from msgspec import Raw

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, ToolSpec, Usage, wrap
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.models.openai import OpenAIChat
from chargehand.models.request_facts import WorkerCard, Working
from chargehand.models.resolve import Finder
from chargehand.models.testing.scripted import Recorder, Replayer, ScriptedModel, digest
from tests.models.loopback import loopback, whole
from tests.support.closing import closing
from tests.support.hearing import hear_answer

A = Request([Message("user", "a")])
B = Request([Message("user", "b")], settings=Settings(temperature=1.0))
TOOLS = (ToolSpec("x", "does x", Raw(b'{"type":"object"}')), ToolSpec("y", "does y", Raw(b'{"type": "object"}')))


async def test_recorded_calls_are_answered_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    card = ModelCard("some:model", window=4096)
    first = Reply(
        text="one", calls=(ToolCall("1", "x", "{}"),), finish="tools", usage=Usage(1, 2, 1), micros=5, model="m"
    )
    recorder = Recorder(ScriptedModel([first, Reply("two")], card=card), path)
    await recorder.reply(A)
    await recorder.reply(B)
    replayer = Replayer(path)
    assert replayer.card.window == card.window
    assert replayer.card.handle == f"recorded:{path}"
    assert "replayed from calls.jsonl" in replayer.card.notice
    assert (await replayer.reply(B)).text == "two"
    assert await replayer.reply(A) == first
    assert await replayer.reply(A) == first


async def test_what_was_asked_twice_is_answered_in_turn(tmp_path: Path) -> None:
    recorder = Recorder(ScriptedModel(["one", "two"]), tmp_path / "calls")
    await recorder.reply(A)
    await recorder.reply(A)
    replayer = Replayer(tmp_path / "calls")
    assert [(await replayer.reply(A)).text for _ in range(3)] == ["one", "two", "two"]


async def test_failures_are_recorded_too(tmp_path: Path) -> None:
    failed = ModelFailed(Failure("resource", "no", 5.0), Usage(3, 0))
    recorder = Recorder(ScriptedModel([failed]), tmp_path / "calls")
    for model in (recorder, None):
        with pytest.raises(ModelFailed) as caught:
            await (model or Replayer(tmp_path / "calls")).reply(A)
        assert (caught.value.failure, caught.value.usage) == (failed.failure, failed.usage)


async def test_words_are_heard_when_recorded_and_when_replayed(tmp_path: Path) -> None:
    heard: list[str] = []
    await Recorder(ScriptedModel(["some words\n here"]), tmp_path / "calls").reply(A, hear_answer(heard))
    again: list[str] = []
    await Replayer(tmp_path / "calls").reply(A, hear_answer(again))
    assert "".join(heard) == "".join(again) == "some words\n here"


async def test_a_request_nobody_recorded_fails_clearly(tmp_path: Path) -> None:
    await Recorder(ScriptedModel(["one"]), tmp_path / "calls").reply(A)
    with pytest.raises(ModelFailed, match=r"holds no reply to 'call: b'; record it again") as caught:
        await Replayer(tmp_path / "calls").reply(B)
    assert caught.value.failure.permanent


async def test_a_recording_outlives_a_change_of_the_prompt(tmp_path: Path) -> None:
    card = WorkerCard("clerk", "knows the stock")
    asked = Working("How many tents?", card)
    call = Message("assistant", "", (ToolCall("1", "stock", "{}"),))
    result = Message("tool", "4", call="1")
    before = Request([Message("system", "You are a clerk."), Message("user", "How many tents?")], subject=asked)
    recorder = Recorder(ScriptedModel([Reply(calls=call.calls), "There are 4."]), tmp_path / "calls")
    await recorder.reply(before)
    await recorder.reply(Request([*before.messages, call, result], subject=asked))

    worded = [Message("system", "You keep the stock."), Message("user", "Question: how many tents?")]
    described = Working("How many tents?", WorkerCard("clerk", "knows every tent"))
    replayer = Replayer(tmp_path / "calls")
    assert (await replayer.reply(Request(worded, subject=described))).calls == call.calls
    assert (await replayer.reply(Request([*worded, call, result], subject=described))).text == "There are 4."
    with pytest.raises(ModelFailed, match=r"no reply to 'working, step 2: How many tents\?'"):
        await replayer.reply(Request([*worded, call, Message("tool", "5", call="1")], subject=described))


async def test_handles_record_and_replay(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    content = {"choices": [{"message": {"content": "my key is sk-1234"}, "finish_reason": "stop"}]}
    async with loopback(lambda _: whole(content)) as server:
        keys = {"OPENAI_API_KEY": "sk-1234", "OPENAI_BASE_URL": server.url}
        finder = Finder(keys.get)
        async with closing(finder):
            await finder.find(f"recording:{path}#openai:m").reply(A)
    assert (await Finder(dict[str, str]().get).find(f"recorded:{path}").reply(A)).text == "my key is [secret]"
    with pytest.raises(Invalid, match="does not say whose calls"):
        Finder(dict[str, str]().get).find(f"recording:{path}")


def test_the_same_question_has_the_same_digest_however_it_is_laid_out() -> None:
    one = Request([Message("user", wrap("0123abcd", "a tool", "text"))], TOOLS, Raw(b'{"a":1,"b":2}'))
    other = Request((Message("user", wrap("ffff0000", "a tool", "text")),), TOOLS[::-1], Raw(b'{"b": 2, "a": 1}'))
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    "other",
    [
        Request([Message("user", "b")]),
        Request([Message("system", "a")]),
        Request([Message("user", "a"), Message("user", "a")]),
        Request([Message("user", "a")], TOOLS),
        Request([Message("user", "a")], schema=Raw(b"{}")),
        Request([Message("user", "a")], settings=Settings(temperature=1.0)),
        Request([Message("assistant", "a", (ToolCall("1", "x"),))]),
    ],
)
def test_another_question_has_another_digest(other: Request) -> None:
    assert digest(other) != digest(A)


async def test_no_key_and_no_secret_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    content = {"choices": [{"message": {"content": 'the "pass\nword" it is'}, "finish_reason": "stop"}]}
    async with loopback(lambda _: whole(content)) as server:
        model = OpenAIChat("openai:m", server.url, "m", "sk-the-key-itself-123456")
        async with closing(model):
            recorder = Recorder(Guarded(model), path, secrets=['"pass\nword"', ""])
            request = Request([Message("user", 'is it "pass\nword"?')])
            reply = await recorder.reply(request)
    text = path.read_text()
    assert "sk-the-key" not in text
    assert "pass" not in text
    assert 'pass\nword"' in reply.text
    assert (await Replayer(path).reply(request)).text == "the [secret] it is"
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "\n", "no json\n", '{"digest":"x"}\n'])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "calls").write_text(content)
    with pytest.raises(Invalid, match="record"):
        Replayer(tmp_path / "calls")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        Replayer(tmp_path / "nothing")
