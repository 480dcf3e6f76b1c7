"""What every catalog promises of conversations."""

import asyncio

import pytest

from chargehand.engine.roster import Match
from chargehand.errors import Invalid, Refused, Unknown
from chargehand.memory.catalog import Catalog, KeptConversation, Profile
from chargehand.memory.conversations import Turn, scope_of
from chargehand.memory.session import OpenMemory


async def agent_of(catalog: Catalog, *texts: str) -> str:
    """An agent that was told and said these, in turns."""
    agent = await catalog.add(Profile("ann"))
    await catalog.say(agent.id, [Turn("assistant" if n % 2 else "user", text) for n, text in enumerate(texts)])
    return agent.id


def texts(turns: list[Turn]) -> list[str]:
    return [turn.text for turn in turns]


async def test_turns_come_back_in_order_with_all_they_had(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "hello")
    told = Turn("assistant", "häh\nyes", when=5.0, run="r", task="t", tainted=True, upto=99, old=True)
    assert await catalog.say(agent, [told])
    first, second = await catalog.turns(agent)
    assert first == Turn("user", "hello", first.number, first.when)
    assert first.when >= 1000
    assert second == Turn(
        role="assistant", text="häh\nyes", number=second.number, when=5.0, run="r", task="t", tainted=True
    )
    assert second.number > first.number


async def test_what_was_said_under_a_key_is_not_said_again(catalog: Catalog) -> None:
    agent = await agent_of(catalog)
    other = await agent_of(catalog)
    assert await catalog.say(agent, [Turn("user", "a"), Turn("assistant", "b")], key="k")
    assert not await catalog.say(agent, [Turn("user", "c")], key="k")
    assert await catalog.say(other, [Turn("user", "d")], key="k")
    assert await catalog.say(agent, [Turn("user", "e")])
    assert await catalog.say(agent, [Turn("user", "e")])
    assert texts(await catalog.turns(agent)) == ["a", "b", "e", "e"]
    assert texts(await catalog.turns(other)) == ["d"]


async def test_the_latest_turns_come_first_to_hand_and_pages_end(catalog: Catalog) -> None:
    agent = await agent_of(catalog, *"abcdefg")
    await agent_of(catalog, *"xyz")
    page = await catalog.turns(agent, limit=3)
    seen = texts(page)
    assert seen == ["e", "f", "g"]
    for _ in range(3):
        page = await catalog.turns(agent, limit=3, before=page[0].number) or page
        seen = texts(page) + seen if texts(page)[0] not in seen else seen
    assert seen == list("abcdefg")
    assert await catalog.turns(agent, before=page[0].number) == []
    assert await catalog.turns(agent, limit=0) == []


async def test_turns_behind_a_summary_are_found_but_not_shown(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "apples", "pears", "plums", "figs")
    all_turns = await catalog.turns(agent)
    assert await catalog.summarise(agent, Turn("summary", "fruit so far", upto=all_turns[1].number))
    shown = await catalog.turns(agent)
    assert texts(shown) == ["fruit so far", "plums", "figs"]
    assert shown[0].upto == all_turns[1].number
    everything = await catalog.turns(agent, old=True)
    assert texts(everything) == ["apples", "pears", "fruit so far", "plums", "figs"]
    assert [turn.old for turn in everything] == [True, True, False, False, False]
    assert texts(await catalog.recall(agent, "apples")) == ["apples"]
    assert texts(await catalog.turns(agent, old=True, before=all_turns[2].number, limit=2)) == ["pears", "fruit so far"]
    assert texts(await catalog.turns(agent, old=True, before=everything[2].number)) == ["apples", "pears"]


async def test_only_a_summary_that_reaches_further_counts(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "a", "b", "c", "d")
    numbers = [turn.number for turn in await catalog.turns(agent)]
    assert await catalog.summarise(agent, Turn("summary", "abc", upto=numbers[2]))
    assert not await catalog.summarise(agent, Turn("summary", "abc again", upto=numbers[2]))
    assert not await catalog.summarise(agent, Turn("summary", "ab", upto=numbers[1]))
    assert await catalog.summarise(agent, Turn("summary", "abcd", upto=numbers[3]))
    assert texts(await catalog.turns(agent)) == ["abcd"]
    await catalog.say(agent, [Turn("user", "e")])
    assert texts(await catalog.turns(agent)) == ["abcd", "e"]


async def test_a_summary_of_nothing_and_a_summary_that_is_said_are_refused(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "a")
    last = (await catalog.turns(agent))[0].number
    with pytest.raises(Refused):
        await catalog.summarise(agent, Turn("summary", "x", upto=last + 1))
    for summary in (Turn("summary", "x"), Turn("user", "x", upto=last)):
        with pytest.raises(Invalid):
            await catalog.summarise(agent, summary)
    with pytest.raises(Invalid):
        await catalog.say(agent, [Turn("user", "b"), Turn("summary", "x", upto=last)])
    with pytest.raises(Invalid):
        await catalog.say(agent, [Turn("user", "b"), Turn("user", "\ud800")])
    assert texts(await catalog.turns(agent)) == ["a"]


async def test_turns_are_recalled_by_words_the_best_first(catalog: Catalog) -> None:
    agent = await agent_of(
        catalog, "The ship sails to Oslo.", "Which ship?", "Oslo, Oslo!", "Nothing of that.", "Crème brûlée"
    )
    await agent_of(catalog, "Oslo for somebody else", *("this and that" for _ in range(9)))
    assert texts(await catalog.recall(agent, "oslo")) == ["Oslo, Oslo!", "The ship sails to Oslo."]
    assert texts(await catalog.recall(agent, "oslo ship"))[0] == "The ship sails to Oslo."
    assert texts(await catalog.recall(agent, "creme")) == ["Crème brûlée"]
    assert texts(await catalog.recall(agent, "sailing")) == ["The ship sails to Oslo."]
    assert len(await catalog.recall(agent, "oslo ship", limit=2)) == 2
    assert await catalog.recall(agent, "bergen") == []


@pytest.mark.parametrize(
    "query", ['"', "oslo AND", "agent : 1", "NEAR(", "a*b^2", "(", "-x", "_", "'; DROP TABLE turns"]
)
async def test_no_question_is_a_syntax_error(catalog: Catalog, query: str) -> None:
    agent = await agent_of(catalog, "Oslo")
    assert len(await catalog.recall(agent, query)) <= 1
    assert texts(await catalog.turns(agent)) == ["Oslo"]


async def test_recall_looks_at_roles_and_times(catalog: Catalog) -> None:
    agent = await agent_of(catalog)
    said = [Turn("user", "ship", when=10.0), Turn("assistant", "ship", when=20.0), Turn("user", "ship", when=30.0)]
    await catalog.say(agent, said)

    async def whens(start: float | None = None, end: float | None = None) -> list[float]:
        return sorted(turn.when for turn in await catalog.recall(agent, "ship", start=start, end=end))

    assert [turn.when for turn in await catalog.recall(agent, "ship", roles=["assistant"])] == [20.0]
    assert await whens(start=20.0) == [20.0, 30.0]
    assert await whens(end=20.0) == [10.0, 20.0]
    assert await whens(start=11.0, end=19.0) == []
    assert [turn.when for turn in await catalog.recall(agent, "", end=25.0)] == [20.0, 10.0]


async def test_a_reset_forgets_all_but_what_was_said_already(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "a", "b")
    other = await agent_of(catalog, "c")
    await catalog.say(agent, [Turn("user", "d")], key="k")
    assert await catalog.reset(agent) == 3
    assert await catalog.reset(agent) == 0
    assert await catalog.turns(agent, old=True) == []
    assert await catalog.recall(agent, "a") == []
    assert not await catalog.say(agent, [Turn("user", "d")], key="k")
    assert texts(await catalog.turns(other)) == ["c"]


async def test_an_agent_made_anew_remembers_nothing(catalog: Catalog) -> None:
    agent = await agent_of(catalog, "a")
    await catalog.delete(Profile, agent)
    with pytest.raises(Unknown):
        await catalog.turns(agent)
    await catalog.add(Profile("ann", id=agent))
    assert await catalog.turns(agent, old=True) == []
    assert await catalog.recall(agent, "a") == []


async def test_the_conversations_of_two_scopes_are_two(catalog: Catalog) -> None:
    memory = OpenMemory(catalog, lambda _: None)
    agent = (await catalog.add(Profile("ann"))).id
    scopes = [scope_of({"user": name}) for name in ("one", "two")]
    with pytest.raises(Unknown):
        await catalog.turns(memory.conversation_of(agent, scopes[0]))
    for scope in (*scopes, scopes[0]):
        which = await memory.begin_conversation(agent, scope)
        assert which == memory.conversation_of(agent, scope)
        await catalog.say(which, [Turn("user", f"seeds for {scope}")])
    first, second = [memory.conversation_of(agent, scope) for scope in scopes]
    assert texts(await catalog.turns(first)) == [f"seeds for {scopes[0]}"] * 2
    assert texts(await catalog.recall(second, "seeds")) == [f"seeds for {scopes[1]}"]
    assert await catalog.turns(await memory.begin_conversation(agent, "")) == []
    assert await catalog.reset(first) == 2
    assert len(await catalog.turns(second)) == 1


async def test_two_attempts_that_begin_a_conversation_at_once_make_one(catalog: Catalog) -> None:
    memory = OpenMemory(catalog, lambda _: None)
    agent = (await catalog.add(Profile("ann"))).id
    scope = scope_of({"session": "s1"})
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(memory.begin_conversation(agent, scope)) for _ in range(8)]
    assert {job.result() for job in jobs} == {memory.conversation_of(agent, scope)}
    assert len(await catalog.find(KeptConversation, tags=Match((agent,), ()))) == 1
