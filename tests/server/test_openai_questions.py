"""Runs that wait for a person, for OpenAI clients: responses that are told as incomplete, and answered by the next."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.server.api import Garden
from tests.server.door_teams import cases
from tests.server.running import running, settings_in

Json = dict[str, Any]
CASES = cases()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    folder = tmp_path_factory.mktemp("questions")
    settings = settings_in(folder / "data", teams=tuple(case.team for case in CASES.values()), grace=0.2)
    with (
        running(settings) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        yield Garden(server, client, folder)


@pytest.fixture
def client(home: Garden) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{home.server.url}/v1", api_key=home.server.token, max_retries=0) as client:
        yield client


def told(response: Any) -> Json:
    """What stands in the extension field."""
    return response.model_extra["chargehand"]


def payments(home: Garden, run: str) -> list[str]:
    """Who was paid in a run, by its journal."""
    entries: list[Json] = home.client.get(f"/api/runs/{run}/entries").json()["entries"]
    steps = [entry["event"] for entry in entries if entry["event"]["type"] == "step.started"]
    return [step["arguments"]["payee"] for step in steps if step["name"] == "pay"]


def run_of(response: Any) -> str:
    return told(response)["run"]


def test_a_response_that_waits_is_incomplete_and_tells_every_call(client: openai.OpenAI) -> None:
    response = client.responses.create(model="calls", input="Do it.")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "needs_input"
    for payee in ("Ott", "Bob"):
        assert payee in response.output_text
    question = told(response)["question"]
    assert [call["arguments"] for call in question["calls"]] == [{"payee": "Ott"}, {"payee": "Bob"}]
    assert told(response)["ending"] == "needs_input"


def test_a_response_is_answered_by_the_next_one_with_a_verdict_for_each_call(
    home: Garden, client: openai.OpenAI
) -> None:
    first = client.responses.create(model="calls", input="Do it.")
    second = client.responses.create(
        model="calls", previous_response_id=first.id, input='{"1": "approve", "2": "reject: too dear"}'
    )
    assert second.id != first.id
    assert second.previous_response_id == first.id
    assert payments(home, run_of(first)) == ["Ott"]
    assert second.output_text.startswith("Paid.")
    assert [gap["status"] for gap in told(second)["gaps"]] == ["refused"]
    assert client.responses.retrieve(first.id) == first, "a response that is over never changes"
    assert client.responses.retrieve(second.id) == second


def test_one_word_does_not_answer_two_calls(home: Garden, client: openai.OpenAI) -> None:
    first = client.responses.create(model="calls", input="Do it.")
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(model="calls", previous_response_id=first.id, input="approve")
    assert "2 calls" in refused.value.message
    assert home.state(run_of(first)) == "needs_input"


def test_a_yes_with_a_condition_approves_nothing(home: Garden, client: openai.OpenAI) -> None:
    first = client.responses.create(model="call", input="Do it.")
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(model="call", previous_response_id=first.id, input="Approve, but only 50.")
    assert "a yes takes no condition" in refused.value.message
    assert home.state(run_of(first)) == "needs_input"


def test_the_same_answer_again_is_the_same_response_and_another_one_is_refused(
    home: Garden, client: openai.OpenAI
) -> None:
    first = client.responses.create(model="call", input="Do it.")
    answers = [client.responses.create(model="call", previous_response_id=first.id, input="approve") for _ in range(2)]
    assert answers[0] == answers[1]
    assert payments(home, run_of(first)) == ["Ott"]
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(model="call", previous_response_id=first.id, input="reject")
    assert refused.value.code == "other_body"


def test_an_answer_that_comes_too_late_is_refused(home: Garden, client: openai.OpenAI) -> None:
    first = client.responses.create(model="call", input="Do it.")
    run = run_of(first)
    answer = {"number": 1, "verdict": "reject", "feedback": "no"}
    assert home.client.post(f"/api/runs/{run}/answer", json=answer).status_code == 200
    home.wait(run, "partial")
    with pytest.raises(openai.ConflictError):
        client.responses.create(model="call", previous_response_id=first.id, input="approve")
    assert payments(home, run) == []


def test_a_streamed_response_that_waits_ends_as_incomplete_and_its_answer_is_streamed(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="call", input="Do it.", stream=True))
    last: Any = events[-1]
    assert last.type == "response.incomplete"
    more = client.responses.create(model="call", previous_response_id=last.response.id, input="approve", stream=True)
    done: Any = list(more)[-1]
    assert done.type == "response.completed"
    assert done.response.output_text == "Paid."


def test_a_response_in_the_background_is_in_progress_while_it_waits(home: Garden, client: openai.OpenAI) -> None:
    response = client.responses.create(model="call", input="Do it.", background=True)
    run = response.id.removeprefix("resp_")
    home.wait(run, "needs_input")
    waiting = client.responses.retrieve(response.id)
    assert waiting.status == "in_progress"
    assert told(waiting)["ending"] == "needs_input"
    assert told(waiting)["question"]["calls"][0]["arguments"] == {"payee": "Ott"}
    client.responses.create(model="call", previous_response_id=response.id, input="approve")
    home.wait(run, "complete")
    assert client.responses.retrieve(response.id).status == "completed"


def test_an_effect_in_doubt_is_answered_with_its_result(home: Garden, client: openai.OpenAI) -> None:
    first = client.responses.create(model="doubt", input="Do it.")
    question = told(first)["question"]
    assert question["what"] == "effect"
    assert question["calls"][0]["key"]
    second = client.responses.create(model="doubt", previous_response_id=first.id, input="done: it arrived")
    assert second.status == "completed"
    assert home.state(run_of(first)) == "complete"


def test_a_question_in_words_is_answered_in_words(client: openai.OpenAI) -> None:
    first = client.responses.create(model="question", input="Do it.")
    with pytest.raises(openai.APIStatusError):
        client.responses.create(model="question", previous_response_id=first.id, input="green")
    second = client.responses.create(model="question", previous_response_id=first.id, input="blue")
    assert second.output_text == "It is blue."


def test_a_response_out_of_budget_is_incomplete_with_its_reason(client: openai.OpenAI) -> None:
    response = client.responses.create(model="poor", input="Do it.")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "budget"
    assert told(response)["cap"]["limit"] == 1


@pytest.mark.parametrize(
    ("team", "ending"), [("call", "needs_input"), ("partial", "partial"), ("complete", "complete")]
)
def test_the_last_chunk_of_a_chat_tells_how_the_run_stands(client: openai.OpenAI, team: str, ending: str) -> None:
    stream = client.chat.completions.create(model=team, messages=[{"role": "user", "content": "Do it."}], stream=True)
    last = [chunk for chunk in stream if chunk.choices and chunk.choices[0].finish_reason][-1]
    assert told(last)["ending"] == CASES[team].state


@pytest.mark.parametrize(("team", "reason"), [("late", "deadline"), ("failed", "no_results")])
def test_a_run_that_came_to_nothing_tells_its_reason_and_its_cost(
    client: openai.OpenAI, team: str, reason: str
) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model=team, messages=[{"role": "user", "content": "Do it."}])
    error: Any = failed.value.body
    assert error["chargehand"]["reason"] == reason
    assert {"usd", "tokens", "calls", "gaps"} <= error["chargehand"].keys()


def test_a_request_that_is_too_long_is_refused_as_by_the_own_api(home: Garden, client: openai.OpenAI) -> None:
    text = "x" * 150_001
    assert home.client.post("/api/runs", json={"team": "complete", "goal": text}).status_code == 422
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="complete", messages=[{"role": "user", "content": text}])
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="complete", input=text)
