"""What a worker's prompt leaves out is told with its number, and with the way to read it."""

import re
from collections.abc import Sequence

import pytest

from chargehand.agents.inputs import WorkerHistory
from chargehand.agents.recall import chat, material
from chargehand.agents.roles import Worker
from chargehand.memory.catalog import Memory
from chargehand.memory.conversations import Turn
from chargehand.models.messages import Message, Request, ToolCall
from chargehand.models.testing.scripted import ScriptedModel
from tests.agents.crowd import model, team

_CALLS = re.compile(
    r"… ([\d,]+) earlier calls? (?:is|are) left out here: read_more\(handle='left-out-calls', start=0\)"
)
_TURNS = re.compile(r"… ([\d,]+) earlier turns? (?:is|are) left out here(: conversation_search finds the rest)? …")


def count_in(pattern: re.Pattern[str], messages: Sequence[Message]) -> int:
    """Return the number that is told, at most once; 0: nothing is."""
    told = [found[1] for message in messages for found in pattern.finditer(message.text)]
    assert len(told) <= 1
    return int(told[0].replace(",", "")) if told else 0


@pytest.mark.parametrize("length", [50, 900])
def test_calls_that_leave_the_history_are_counted_and_their_results_can_be_read(length: int) -> None:
    history = WorkerHistory((Message("system", "s"), Message("user", "u")), 3000, "ab12")
    results: dict[str, str] = {}
    for number in range(120):
        calls = [ToolCall(f"c{number}-{at}", "look", f'{{"at": "{number}-{at}"}}') for at in range(number % 3)]
        history.add(Message("assistant", f"Step {number}.", tuple(calls)))
        for call in calls:
            results[call.arguments] = f"result of {call.id} {'x' * length}"
            history.add(Message("tool", results[call.arguments], call=call.id))
        history.fit()
        shown = [call.id for message in history.messages for call in message.calls]
        assert len(shown) + count_in(_CALLS, history.messages) == len(results)
        assert {message.call for message in history.messages if message.role == "tool"} == set(shown)
        assert history.tokens <= 3000
    listed = history.kept["left-out-calls"].split("\n")
    assert len(listed) == count_in(_CALLS, history.messages) > 50
    for line in listed:
        found = re.fullmatch(r"look with (\{.*\}): its result is (earlier-\d+)", line)
        assert found is not None
        assert history.kept[found[2]] == results[found[1]]


def test_turns_that_leave_a_chat_are_counted_and_its_summary_stays() -> None:
    turns = [Message("user" if at % 2 else "assistant", f"turn {at} {'y' * 400}") for at in range(20)]
    history = WorkerHistory((Message("system", "s"), Message("user", "u")), 4000, "ab12")
    head = Message("user", "what was before, in short")
    task = Message("user", "u")
    history.reopen([history.messages[0], head, *turns, task], heads=1, how_to_find="conversation_search finds the rest")
    for number in range(4):
        history.add(Message("assistant", "", (ToolCall(f"c{number}", "look"),)))
        history.add(Message("tool", "z " * 1500, call=f"c{number}"))
        history.fit()
        left = [message for message in history.messages if message.text.startswith("turn ")]
        assert history.messages[1] == head
        assert len(left) + count_in(_TURNS, history.messages) == len(turns)
        assert left == turns[len(turns) - len(left) :]
        assert history.brief == (history.messages[0], task)
        assert history.chat_turns == len(left) + 1 + (len(left) < len(turns))
    assert count_in(_TURNS, history.messages) > 0


@pytest.mark.parametrize("summary", [(), (Turn("summary", "before", 9, upto=2),)])
def test_hidden_turns_are_told_between_the_summary_and_the_others(summary: tuple[Turn, ...]) -> None:
    turns = (*summary, Turn("user", "Count.", 7))
    data = material([], turns, "ab12", {}, "3 are left out")
    places = [data.index(text) for text in (*(turn.text for turn in summary), "3 are left out", "Count.")]
    assert places == sorted(places)
    [head, said] = chat(turns, "ab12", "3 are left out")
    assert head.text.endswith("3 are left out")
    assert said == Message("user", "Count.")
    assert chat(turns[-1:], "ab12") == [said]


async def asked(script: ScriptedModel, turns: Sequence[Turn], words: str = "Count") -> str:
    """Return all that a worker that remembers these turns is shown in its next task."""
    executor = team(script, Worker("ann", remembers=True), memory=Memory())
    async with executor.remembering() as memory:
        await memory.catalog.say(memory.agents["ann"], turns)
        assert (await executor.run(words)).ending == "complete"
    return working_text(script.requests)


def working_text(requests: Sequence[Request]) -> str:
    request = next(request for request in requests if any("earlier task" in each.text for each in request.messages))
    return "\n".join(message.text for message in request.messages)


async def test_a_long_turn_is_shown_cut_and_kept_whole() -> None:
    order = f"Pay all. {'x' * 6000} Except Ott."
    text = await asked(model(), [Turn("user", order), Turn("assistant", "Done.")])
    found = re.search(r"(x+) … ([\d,]+) characters are left out here: conversation_search finds the rest …", text)
    assert found is not None
    assert int(found[2].replace(",", "")) + len(found[1]) == len(order) - len("Pay all. ")


async def test_what_a_worker_did_is_kept_beyond_what_is_shown() -> None:
    answer = f"Counted {'sheep ' * 1000} without the lambs."
    executor = team(model(work=[answer]), Worker("ann", remembers=True), memory=Memory())
    async with executor.remembering() as memory:
        await executor.run("Count")
        kept = await memory.catalog.turns(memory.agents["ann"], limit=10)
    assert kept[-1].text == answer


@pytest.mark.parametrize("count", [8, 14, 16])
async def test_turns_between_the_window_and_a_summary_are_told(count: int) -> None:
    turns = [
        Turn("user" if at % 2 else "assistant", f"RULE{at} holds. {'sheep and goats ' * 200}") for at in range(count)
    ]
    text = await asked(model(), turns)
    assert "in short" not in text, "they are too few for a summary"
    found = _TURNS.search(text)
    assert (found is None) is (count == 8)
    hidden = 0 if found is None else int(found[1])
    assert re.findall(r"RULE(\d+) holds", text) == [str(at) for at in range(hidden, count)]
