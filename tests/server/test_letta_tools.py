"""Tools with the real client: those that are there, and those that clients bring where they may."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letta_client import APIStatusError, ConflictError, Letta, NotFoundError, PermissionDeniedError
from letta_client import UnprocessableEntityError as Unfit

from chargehand.server.letta.custom_tools import read_source
from chargehand.server.wire import Problem
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import Running, running, settings_in

LENGTH = '''
def length(text: str, times: int = 1) -> int:
    """How long a text is.

    Args:
        text (str): what is measured
        times: how often it is said

    Returns:
        the length
    """
    print("measuring")
    return len(text) * times
'''


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(settings_in(tmp_path, custom_tools=True)) as one:
        yield one


@pytest.fixture
def client(server: Running) -> Iterator[Letta]:
    with Letta(base_url=server.url, api_key=server.token) as client:
        yield client


def test_tools_are_listed_by_name_type_and_words(client: Letta) -> None:
    made = client.tools.create(source_code=LENGTH, tags=["text"])
    names = [str(one.name) for one in client.tools.list(limit=4)]
    assert len(names) == len(set(names)) > 10
    assert [one.name for one in client.tools.list(name="memory_insert")] == ["memory_insert"]
    assert {one.name for one in client.tools.list(names=["memory_insert", "length"])} == {"memory_insert", "length"}
    assert [one.id for one in client.tools.list(tool_types=["custom"])] == [made.id]
    with pytest.raises(Unfit, match="exclude_tool_types"):
        client.tools.list(exclude_tool_types=["custom"])
    assert [one.name for one in client.tools.list(search="how LONG a text")] == ["length"]
    assert [one.id for one in client.tools.list(tool_ids=[made.id])] == [made.id]
    insert = client.tools.list(name="memory_insert").items[0]
    assert client.tools.retrieve(insert.id).name == "memory_insert"
    with pytest.raises(NotFoundError):
        client.tools.retrieve("tool-00000000-0000-4000-8000-000000000000")


def test_the_source_says_what_a_tool_is(client: Letta) -> None:
    made = client.tools.create(source_code=LENGTH)
    assert (made.name, made.tool_type) == ("length", "custom")
    assert str(made.description).startswith("How long a text is.")
    assert (made.json_schema or {})["parameters"] == {
        "type": "object",
        "required": ["text"],
        "properties": {
            "text": {"type": "string", "description": "what is measured"},
            "times": {"type": "integer", "description": "how often it is said"},
        },
    }
    with pytest.raises(ConflictError):
        client.tools.create(source_code=LENGTH)
    with pytest.raises(ConflictError):
        client.tools.create(source_code="def memory_insert(): ...")
    again = client.tools.upsert(source_code=LENGTH.replace("How long", "The length, how long"))
    assert again.id == made.id
    assert str(again.description).startswith("The length, how long a text is.")
    assert client.tools.update(made.id, description="Measures.").description == "Measures."
    with pytest.raises(Unfit, match="another tool"):
        client.tools.update(made.id, source_code="def width(text: str): ...")
    agent = client.agents.create(tools=["length"])
    client.tools.delete(made.id)
    assert "length" not in [one.name for one in client.agents.retrieve(agent.id).tools]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", "no function"),
        ("def f(:", "not Python"),
        ("def f(*rest): ...", "a name"),
        ("(" * 5000, "not Python|too deep"),
        ("def f(): ...\0", "NUL|not Python"),
        ("#" * 300_000, "characters"),
    ],
)
def test_a_source_that_is_no_tool_is_refused_in_words(client: Letta, source: str, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        client.tools.create(source_code=source)


def offered(question: Question) -> set[str]:
    """The tools that a model was offered; `give_up` every agent has."""
    return set(question.tools) - {"give_up"}


def test_the_model_is_offered_the_tools_that_the_agent_is_said_to_have(client: Letta) -> None:
    archive = client.archives.create(name="findings")
    block = client.blocks.create(label="lead", value="Ask others with match_all.")
    insert = client.tools.list(name="memory_insert").items[0].id
    with fake_model(lambda _: "yes") as model:

        def check(agent: str) -> set[str]:
            client.agents.messages.create(agent, input="Hello")
            named = {str(one.name) for one in client.agents.retrieve(agent).tools}
            assert offered(model.questions[-1]) == named
            return named

        plain = client.agents.create(model=model.handle, memory_blocks=[{"label": "notes", "value": "x"}]).id
        assert check(plain) == {"conversation_search", "memory_insert", "memory_replace"}
        client.agents.tools.detach(insert, agent_id=plain)
        assert check(plain) == {"conversation_search", "memory_replace"}
        client.agents.tools.attach(insert, agent_id=plain)
        client.agents.archives.attach(archive.id, agent_id=plain)
        archival = {"archival_memory_insert", "archival_memory_search"}
        assert check(plain) == {"conversation_search", "memory_insert", "memory_replace"} | archival

        bare = client.agents.create(model=model.handle, include_base_tools=False).id
        client.agents.blocks.attach(block.id, agent_id=bare)
        client.agents.archives.attach(archive.id, agent_id=bare)
        assert check(bare) == set()
        client.agents.tools.attach(insert, agent_id=bare)
        assert check(bare) == {"memory_insert"}

        lead = client.agents.create(model=model.handle, block_ids=[block.id], include_base_tools=False).id
        matching = check(lead)
        assert matching == {"send_message_to_agents_matching_tags"}
        client.agents.tools.detach(client.tools.list(name=matching.pop()).items[0].id, agent_id=lead)
        assert check(lead) == set()
        client.agents.update(lead, tags=["supervisor"])
        assert check(lead) == {"send_message_to_agents_matching_tags"}


def test_tools_of_clients_are_no_tools_of_agents_where_they_are_allowed_no_more(tmp_path: Path) -> None:
    with running(settings_in(tmp_path, custom_tools=True)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        client.tools.create(source_code=LENGTH)
        agent = client.agents.create(tools=["length"], include_base_tools=False).id
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        assert client.agents.retrieve(agent).tools == []
        assert client.agents.tools.list(agent).items == []


INSPECT = """
def inspect(place: str, level: int = 1):
    "Inspect a place."
    return {"bridge": "closed", "mill": True, "dam": 3}.get(place, f"{place} {level}")
"""


def test_a_custom_tool_gets_its_arguments_whatever_rules_there_are_for_it(client: Letta) -> None:
    client.tools.create(source_code=INSPECT)
    rules: Any = [
        {"type": "max_count_per_step", "tool_name": "inspect", "max_count_limit": 1},
        {"type": "requires_approval", "tool_name": "inspect"},
    ]
    answers = iter(
        [
            Answer(calls=(Call("inspect", {"place": "tower", "level": 7}),)),
            Answer(calls=(Call("inspect", {"place": "mill"}),)),
            Answer("Done."),
        ]
    )
    returned: list[tuple[object, object]] = []
    with fake_model(lambda _: next(answers)) as model:
        agent = client.agents.create(
            model=model.handle, tools=["inspect"], include_base_tools=False, tool_rules=rules
        ).id
        told = client.agents.messages.create(agent, input="Inspect it.")
        while told.stop_reason.stop_reason == "requires_approval":
            told = client.agents.messages.create(agent, messages=[{"type": "approval", "approve": True}])
            returned += [
                (one.status, one.tool_return) for one in told.messages if one.message_type == "tool_return_message"
            ]
    assert returned[0] == ("success", "tower 7")
    assert returned[1][0] == "error"
    assert "does not fit" in str(returned[1][1])


def test_what_must_follow_a_tool_goes_by_what_it_returned_text_or_not(client: Letta) -> None:
    client.tools.create(source_code=INSPECT)
    mapping = {"closed": "memory_insert", "True": "memory_replace", "3": "conversation_search"}
    rules: Any = [{"type": "conditional", "tool_name": "inspect", "child_output_mapping": mapping}]
    admission = iter(["bridge", "mill", "dam", "hut"])

    def think(asked: Question) -> Answer:
        give_up = Call("give_up", {"reason": "that is all", "final": True})
        return Answer(calls=(give_up if asked.results else Call("inspect", {"place": next(admission)}),))

    with fake_model(think) as model:
        agent = client.agents.create(model=model.handle, tools=["inspect"], tool_rules=rules).id
        for follows in ({"memory_insert"}, {"memory_replace"}, {"conversation_search"}, {"inspect", *mapping.values()}):
            client.agents.messages.create(agent, input="Inspect it.")
            assert offered(model.questions[-1]) == follows


def test_packages_and_other_languages_are_refused(client: Letta) -> None:
    with pytest.raises(Unfit, match="standard library"):
        client.tools.create(source_code=LENGTH, pip_requirements=[{"name": "numpy"}])
    with pytest.raises(Unfit, match="one of python"):
        client.tools.create(source_code=LENGTH, source_type="typescript")


def test_a_source_is_only_read_when_it_is_kept(client: Letta, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    client.tools.create(source_code=f"open({str(trap)!r}, 'w')\n\ndef f(x: int = print('now')): ...")
    assert not trap.exists()


def test_without_permission_no_tool_is_taken_or_run(tmp_path: Path) -> None:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.url, api_key=one.token) as client:
        agent = client.agents.create()
        for call in (
            lambda: client.tools.create(source_code=LENGTH),
            lambda: client.tools.upsert(source_code=LENGTH),
            lambda: client.agents.tools.run("length", agent_id=agent.id, args={"text": "x"}),
        ):
            with pytest.raises(PermissionDeniedError, match="--custom-tools"):
                call()
        assert len(list(client.tools.list(tool_types=["custom"]))) == 0


def test_a_tool_runs_in_the_sandbox_and_says_what_it_printed(client: Letta, server: Running) -> None:
    client.tools.create(source_code=LENGTH, return_char_limit=10)
    agent = client.agents.create(tools=["length"])
    told = client.agents.tools.run("length", agent_id=agent.id, args={"text": "four", "times": 2})
    assert (told.status, told.func_return, told.stdout) == ("success", 8, ["measuring\n"])
    wrong = client.agents.tools.run("length", agent_id=agent.id, args={"nothing": 1})
    assert wrong.status == "error"
    assert "TypeError" in str(wrong.func_return)
    with pytest.raises(APIStatusError):
        client.agents.tools.run("memory_insert", agent_id=agent.id, args={})
    sources = {
        (
            "import socket\n\ndef f() -> str:\n    socket.create_connection(('127.0.0.1', PORT), 1)\n    return 'out'\n"
        ): "error",
        "def f() -> str:\n    return open('/etc/passwd').read()\n": "error",
        "def f() -> str:\n    import os\n    os._exit(0)\n": "error",
        "async def f() -> str:\n    return 'x' * 60_000\n": "success",
    }
    returned = ""
    for source, status in sources.items():
        tool = client.tools.upsert(source_code=source.replace("PORT", str(server.port)))
        client.agents.tools.attach(tool.id, agent_id=agent.id)
        last = client.agents.tools.run("f", agent_id=agent.id)
        assert last.status == status, (source, last)
        returned = str(last.func_return)
    assert len(returned) < 51_000
    assert "cut here" in returned


def test_an_agent_uses_a_tool_of_a_client(tmp_path: Path) -> None:
    def think(asked: Question) -> Answer | str:
        if asked.results:
            return f"It says {asked.results[-1]}"
        return Answer(calls=(Call("length", {"text": "bridge"}),))

    with (
        fake_model(think) as model,
        running(settings_in(tmp_path, custom_tools=True)) as one,
        Letta(base_url=one.url, api_key=one.token) as client,
    ):
        client.tools.create(source_code=LENGTH)
        agent = client.agents.create(model=model.handle, tools=["length"])
        told = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "How long?"}])
        [back] = [each for each in told.messages if each.message_type == "tool_return_message"]
        assert back.status == "success"
        assert "6" in str(back.tool_return)


def test_approval_is_a_rule_that_comes_and_goes(client: Letta) -> None:
    agent = client.agents.create()
    with_rule = client.agents.tools.update_approval("memory_insert", agent_id=agent.id, body_requires_approval=True)
    assert with_rule is not None
    assert [(one.type, one.tool_name) for one in with_rule.tool_rules or []] == [("requires_approval", "memory_insert")]
    without = client.agents.tools.update_approval("memory_insert", agent_id=agent.id, body_requires_approval=False)
    assert without is not None
    assert without.tool_rules == []
    with pytest.raises(NotFoundError):
        client.agents.tools.update_approval("fly", agent_id=agent.id, body_requires_approval=True)


@given(st.text(alphabet="defx():, *=[]|'\"\n str_int", max_size=80))
def test_any_text_as_a_source_is_a_tool_or_refused(source: str) -> None:
    with suppress(Problem):
        assert read_source(source).name.isidentifier()


def test_annotations_become_schemas() -> None:
    source = '''
def f(a: list[int], b: dict[str, float], c: Optional[str], d: Literal["x", "y"], e: int | str, g: typing.Any,
      h: Unknown, i: list[dict[str, list[bool]]], *, j: bool = False, agent_state: object = None) -> None:
    """Does."""
'''
    told = read_source(source)
    assert told.parameters == {
        "type": "object",
        "required": ["a", "b", "c", "d", "e", "g", "h", "i"],
        "properties": {
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {"type": "object"},
            "c": {"type": "string"},
            "d": {"enum": ["x", "y"]},
            "e": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "g": {},
            "h": {},
            "i": {"type": "array", "items": {"type": "object"}},
            "j": {"type": "boolean"},
        },
    }
