"""A supervisor with specialised workers, made with nothing but the calls that `letta-client` has for it."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from letta_client import Letta
from letta_client.types.agents import LettaResponse

from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import running, settings_in

ROUTE = "send_message_to_agents_matching_tags"
SUPERVISOR = """You coordinate a group of specialists.
Hand each question to the specialists it concerns, by their tags, and put their replies together.
- For questions about technical matters and code: match_all=["worker"], match_some=["technical"]
- For questions about customers and the market: match_all=["worker"], match_some=["market"]
- For broad questions: match_all=["worker", "research"]"""


@dataclass
class Crew:
    client: Letta
    supervisor: str
    technical: str
    market: str
    archive: str

    def ask(self, text: str) -> LettaResponse:
        return self.client.agents.messages.create(self.supervisor, messages=[{"role": "user", "content": text}])

    def heard(self, agent: str) -> list[str]:
        said = self.client.agents.messages.list(agent, order="asc")
        return [one.content for one in said if one.message_type == "system_message"]


def made(client: Letta, model: str) -> Crew:
    """The calls of a whole set-up: a shared block, a shared archive, a supervisor without any tools, two workers."""
    guidelines = client.blocks.create(label="guidelines", value="Name your sources. Keep it short.")
    archive = client.archives.create(name="findings", description="what the specialists found out")
    supervisor = client.agents.create(
        name="lead",
        model=model,
        tags=["supervisor"],
        block_ids=[guidelines.id],
        memory_blocks=[{"label": "persona", "value": SUPERVISOR}],
    )
    client.agents.archives.attach(archive.id, agent_id=supervisor.id)
    ids: dict[str, str] = {}
    for kind in ("technical", "market"):
        worker = client.agents.create(
            name=f"{kind}_worker",
            model=model,
            description=f"knows all about {kind} matters",
            tags=["worker", "research", kind],
            block_ids=[guidelines.id],
            memory_blocks=[{"label": "persona", "value": f"You look into {kind} matters."}],
            tools=["archival_memory_insert", "archival_memory_search"],
        )
        client.agents.archives.attach(archive.id, agent_id=worker.id)
        ids[kind] = worker.id
    return Crew(client, supervisor.id, ids["technical"], ids["market"], archive.id)


def final(answer: LettaResponse) -> str:
    last = [one for one in answer.messages if one.message_type == "assistant_message"][-1]
    assert isinstance(last.content, str)
    return last.content


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """With no model at all: what is on this machine has to do."""
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.keyed_url) as client:
        yield made(client, "anthropic/claude-sonnet-4-5-20250929")


def test_the_supervisor_gets_the_tool_for_routing_without_being_given_it(crew: Crew) -> None:
    names = [one.name for one in crew.client.agents.retrieve(crew.supervisor).tools]
    assert ROUTE in names
    assert ROUTE not in [one.name for one in crew.client.agents.retrieve(crew.technical).tools]


def test_without_a_model_every_worker_is_asked_and_nobody_pretends_to_know(crew: Crew) -> None:
    answer = crew.ask("Review this Python code for potential issues:\n\ndef total(rows):\n    return sum(rows)")
    kinds = [one.message_type for one in answer.messages]
    assert kinds == ["tool_call_message", "tool_return_message", "assistant_message"]
    assert len(crew.heard(crew.technical)) == len(crew.heard(crew.market)) == 1
    assert "none of the 2 that were asked had an answer" in final(answer)
    assert answer.stop_reason.stop_reason == "error"


def test_without_a_model_a_question_is_answered_from_what_was_kept(crew: Crew) -> None:
    crew.client.archives.passages.create(crew.archive, text="The code of the parser is tested with ten thousand files.")
    answer = crew.ask("How is the code of the parser tested?")
    for worker in ("technical_worker", "market_worker"):
        assert f"{worker}: The code of the parser is tested with ten thousand files." in final(answer)
    assert answer.stop_reason.stop_reason == "end_turn"


def test_supervisors_without_rules_ask_everybody_but_pass_no_question_on(tmp_path: Path) -> None:
    with running(settings_in(tmp_path)) as one, Letta(base_url=one.keyed_url) as client:
        leads = [client.agents.create(name=f"lead{number}", model="demo", tags=["supervisor"]) for number in range(4)]
        worker = client.agents.create(name="clerk", model="demo", tags=["worker"]).id
        answer = client.agents.messages.create(leads[0].id, input="What does a tomato seedling cost?")
        said = client.agents.messages.list(worker, order="asc")
        assert [each.message_type for each in said] == ["system_message", "assistant_message"]
        assert "none of the 4 that were asked had an answer" in final(answer)


def test_everything_can_be_deleted_again(crew: Crew) -> None:
    crew.ask("Review this Python code:\n\ndef one():\n    return 1")
    for agent in (crew.technical, crew.market, crew.supervisor):
        crew.client.agents.delete(agent)
    crew.client.archives.delete(crew.archive)
    assert list(crew.client.agents.list()) == []
    assert list(crew.client.archives.list()) == []


# --- with a model that takes its time


def _routed(question: Question) -> Answer:
    """A supervisor that asks every worker once, and workers that write down what they found."""
    if ROUTE in question.tools:
        if not question.results:
            return Answer(calls=(Call(ROUTE, {"message": "What is new?", "match_all": ["worker"]}),))
        return Answer(f"All I heard: {question.results[-1]}")
    if not question.results:
        finding = f"Finding of {question.system.splitlines()[0][:60]}"
        return Answer(calls=(Call("archival_memory_insert", {"content": finding, "tags": ["new"]}),))
    return Answer("done: it is in the archive")


def _routed_by_tags(question: Question) -> Answer:
    """A supervisor that follows the rules in its persona, and workers that say what they look into."""
    if ROUTE not in question.tools:
        return Answer("looked into it")
    if question.results:
        return Answer(f"All I heard: {question.results[-1]}")
    kind = "technical" if "code" in question.user else "market"
    return Answer(calls=(Call(ROUTE, {"message": "Look.", "match_all": ["worker"], "match_some": [kind]}),))


@pytest.mark.parametrize(("request_text", "asked"), [("Review this code.", "technical"), ("Who buys it?", "market")])
def test_a_question_reaches_only_the_workers_with_its_tags(tmp_path: Path, request_text: str, asked: str) -> None:
    with (
        fake_model(_routed_by_tags) as model,
        running(settings_in(tmp_path)) as one,
        Letta(base_url=one.keyed_url) as client,
    ):
        crew = made(client, model.handle)
        assert "looked into it" in final(crew.ask(request_text))
        heard = {"technical": crew.heard(crew.technical), "market": crew.heard(crew.market)}
        assert [kind for kind, messages in heard.items() if messages] == [asked]


def test_findings_land_in_the_archive_that_all_share(tmp_path: Path) -> None:
    with fake_model(_routed) as model, running(settings_in(tmp_path)) as one, Letta(base_url=one.keyed_url) as client:
        crew = made(client, model.handle)
        answer = crew.ask("What is new?")
        assert final(answer).count("done: it is in the archive") == 2
        kept = [each.text for each in client.agents.passages.list(crew.supervisor)]
        assert len(kept) == 2
        assert all(text.startswith("Finding of") for text in kept)


MEETING = threading.Barrier(5)


def _meeting(question: Question) -> Answer:
    if ROUTE in question.tools:
        if not question.results:
            return Answer(calls=(Call(ROUTE, {"message": "What is new?", "match_all": ["worker"]}),))
        return Answer(f"heard {question.results[-1].count('nothing')} of them")
    MEETING.wait(20)  # nobody answers before all five are asked
    return Answer("nothing")


def test_five_workers_are_asked_at_once(tmp_path: Path) -> None:
    with fake_model(_meeting) as model, running(settings_in(tmp_path)) as one, Letta(base_url=one.keyed_url) as client:
        supervisor = client.agents.create(name="lead", model=model.handle, tags=["supervisor"])
        for number in range(5):
            client.agents.create(name=f"worker{number}", model=model.handle, tags=["worker"])
        answer = client.agents.messages.create(supervisor.id, messages=[{"role": "user", "content": "Ask everybody."}])
        assert final(answer) == "heard 5 of them"
        assert len(model.questions) == 7
