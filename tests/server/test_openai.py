"""A team as a model, with the real client of OpenAI over real sockets."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from chargehand.engine.plan import NO_TASK
from chargehand.engine.state import Work
from chargehand.server.openai.api import AnswerWords
from chargehand.server.settings import ServerLimits
from tests.server.api import BOTH, GOAL, Garden, SharedGarden, garden, key_for, shared_garden, team_in
from tests.server.model_server import Answer, FakeModel, Question, fake_model
from tests.server.running import Running, running, settings_in
from tests.server.test_serve import TOKEN, served

_DESK = """
version: 1
name: desk
defaults: {{model: "{handle}"}}
workers:
  writer:
    description: Writes short texts about anything.
"""
_PLAN = {"goal": "it", "tasks": {"t1": {"instruction": "Write it.", "worker": "writer"}}, "combine": "merge"}
LONG = " ".join(f"Zeile {number}: grüße 👩‍🚀🏽 日本語." for number in range(120))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGarden]:
    with shared_garden(tmp_path_factory.mktemp("garden")) as shared:
        yield shared


@pytest.fixture
def home(shared: SharedGarden) -> Iterator[Garden]:
    """A tenant of its own, on the server of all tests of the module."""
    with shared.tenant() as home:
        yield home


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Garden]:
    with garden(tmp_path) as home:
        yield home


_OPEN: list[openai.OpenAI] = []


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    """Every client of a test is closed after it."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def client(server: Running, token: str = "", **more: Any) -> openai.OpenAI:
    wanted: dict[str, Any] = {"max_retries": 0, **more}
    made = openai.OpenAI(base_url=f"{server.url}/v1", api_key=token or server.token, **wanted)
    _OPEN.append(made)
    return made


def said(*turns: str) -> list[Any]:
    """A conversation; the user begins."""
    return [{"role": "assistant" if at % 2 else "user", "content": one} for at, one in enumerate(turns)]


@contextmanager
def desk(folder: Path, answer: Answer | str) -> Generator[tuple[Running, FakeModel]]:
    """A server whose team asks a model of ours: one task, then `answer`."""

    def think(question: Question) -> Answer | str:
        if "Break the request into tasks" in question.system:
            return json.dumps(_PLAN)
        return answer if "Your team has finished" in question.system else "It is written."

    with fake_model(think) as model:
        team = folder / "team.yaml"
        team.write_text(_DESK.format(handle=model.handle))
        with running(settings_in(folder / "data", teams=(team,), grace=0.5)) as server:
            yield server, model


# --- who there is


def test_teams_and_their_workers_are_listed_as_models(home: Garden) -> None:
    found = list(client(home.server).models.list())
    assert [one.id for one in found] == [
        "team/garden",
        "team/garden:reader",
        "team/garden:buyer",
        "team/garden:clerk",
    ]
    assert {one.object for one in found} == {"model"}
    assert client(home.server).models.retrieve("garden").id == "team/garden"
    assert client(home.server).models.retrieve("team/garden").id == "team/garden", "the SDK writes the slash as %2F"


def test_a_base_url_without_v1_is_named_to_the_client(home: Garden) -> None:
    client = openai.OpenAI(base_url=home.server.url, api_key=home.server.token)
    with pytest.raises(openai.NotFoundError, match="the base URL of OpenAI clients ends with /v1"):
        client.models.list()
    with pytest.raises(openai.NotFoundError, match="the base URL of OpenAI clients ends with /v1"):
        client.chat.completions.create(model="team:garden", messages=[{"role": "user", "content": GOAL}])


def test_the_same_path_with_a_slash_is_for_the_other_client(home: Garden) -> None:
    assert home.client.get("/v1/models").json()["object"] == "list"
    assert isinstance(home.client.get("/v1/models/").json(), list)


# --- whole answers


@pytest.mark.parametrize("model", ["team/garden", "garden"])
def test_a_team_answers_a_chat(home: Garden, model: str) -> None:
    raw = client(home.server).chat.completions.with_raw_response.create(model=model, messages=said(GOAL))
    found = raw.parse()
    assert "48.00 euros" in (found.choices[0].message.content or "")
    assert (found.choices[0].finish_reason, found.model) == ("stop", model)
    shown: Any = home.show(raw.headers["x-run-id"])
    assert shown["summary"]["state"] == "complete"
    notice = shown["notice"]
    assert notice.startswith("No language model is used")
    assert found.choices[0].message.model_dump()["reasoning_content"] == notice, "as a stream says it"
    assert found.usage is not None
    assert found.usage.total_tokens == shown["summary"]["spent"]["tokens"] > 0
    assert found.usage.prompt_tokens + found.usage.completion_tokens == found.usage.total_tokens


def test_one_worker_answers_alone(home: Garden) -> None:
    raw = client(home.server).chat.completions.with_raw_response.create(model="team/garden:clerk", messages=said(GOAL))
    assert "48.00 euros" in (raw.parse().choices[0].message.content or "")
    shown: Any = home.show(raw.headers["x-run-id"])
    assert [one["worker"] for one in shown["tasks"]] == ["clerk"]
    assert shown["summary"]["team"] == "garden"


def test_one_worker_is_told_each_earlier_turn_once(tmp_path: Path) -> None:
    with desk(tmp_path, "unused") as (server, model):
        client(server).chat.completions.create(
            model="team/desk:writer", messages=said("My cat is Tigger.", "A fine name.", "What is my cat called?")
        )
    told = str(model.questions[-1].messages)
    assert [told.count(one) for one in ("My cat is Tigger.", "A fine name.", "What is my cat called?")] == [1, 1, 1]


async def test_the_async_client_is_answered_too(home: Garden) -> None:
    async with openai.AsyncOpenAI(base_url=f"{home.server.url}/v1", api_key=home.server.token) as calling:
        whole = await calling.chat.completions.create(model="garden", messages=said(GOAL))
        pieces = [
            one.choices[0].delta.content or ""
            async for one in await calling.chat.completions.create(model="garden", messages=said(GOAL), stream=True)
            if one.choices
        ]
        assert "".join(pieces) == whole.choices[0].message.content
        found = await calling.responses.create(model="garden", input=GOAL)
        assert found.output_text == whole.choices[0].message.content


def test_parameters_that_mean_nothing_here_are_ignored(home: Garden) -> None:
    found = client(home.server).chat.completions.create(
        model="garden",
        messages=said(GOAL),
        temperature=0.2,
        top_p=0.9,
        seed=7,
        user="me",
        max_tokens=5,
        extra_body={"no_such_parameter": [1]},
    )
    assert "48.00 euros" in (found.choices[0].message.content or "")


def test_a_request_that_nobody_can_serve_is_an_error_that_says_what_there_is_to_ask(home: Garden) -> None:
    chat = client(home.server).chat.completions
    with pytest.raises(openai.InternalServerError) as caught:
        chat.create(model="garden", messages=said("hello"))
    assert caught.value.code == "run_failed"
    assert "Says what seedlings cost" in caught.value.message
    with pytest.raises(openai.APIError) as late:
        list(chat.create(model="garden", messages=said("hello"), stream=True))
    assert late.value.code == "run_failed"
    responses = client(home.server).responses
    with pytest.raises(openai.InternalServerError):
        responses.create(model="garden", input="hello")
    last = list(responses.create(model="garden", input="hello", stream=True))[-1]
    assert last.type == "response.failed"
    assert "Says what seedlings cost" in (last.response.error.message if last.response.error else "")


# --- streams


def test_a_stream_tells_progress_first_then_the_answer_then_the_end(home: Garden) -> None:
    chunks = list(
        client(home.server).chat.completions.create(
            model="garden", messages=said(BOTH), stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [one.choices[0].delta.model_dump(exclude_unset=True) for one in chunks if one.choices]
    assert deltas[0]["role"] == "assistant"
    kinds = [next((key for key in ("reasoning_content", "content") if one.get(key)), "") for one in deltas]
    assert kinds[-1] == ""
    assert sorted(filter(None, kinds), reverse=True) == [one for one in kinds if one]
    told = "".join(one.get("reasoning_content", "") for one in deltas)
    assert "plan: 2 tasks\n" in told
    assert "t1 started: buyer\n" in told
    assert "t2 done\n" in told
    text = "".join(one.get("content") or "" for one in deltas)
    assert "48.00 euros" in text
    assert "after 15 May" in text
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


def test_a_stream_ends_as_clients_expect_it(home: Garden) -> None:
    body = {"model": "garden", "messages": said(GOAL), "stream": True}
    with home.client.stream("POST", "/v1/chat/completions", json=body) as found:
        assert found.headers["content-type"].startswith("text/event-stream")
        assert found.headers["x-run-id"].startswith("garden-")
        lines = [one for one in found.iter_lines() if one.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(one[6:]) for one in lines[:-1])


def test_words_are_sent_as_a_model_writes_them_and_add_up_to_the_answer(tmp_path: Path) -> None:
    with desk(tmp_path, Answer("One two three four five six seven eight.", pause=0.04)) as (server, _):
        calling = client(server)
        times = list[float]()
        pieces = list[str]()
        for one in calling.chat.completions.create(model="desk", messages=said("Count."), stream=True):
            if one.choices and one.choices[0].delta.content:
                times.append(time.monotonic())
                pieces.append(one.choices[0].delta.content)
        assert len(pieces) >= 8
        assert times[-1] - times[0] > 0.15
        run: Any = httpx.get(f"{server.url}/api/runs", headers=server.headers).json()["runs"][0]
        shown: Any = httpx.get(f"{server.url}/api/runs/{run['run']}", headers=server.headers).json()
        assert "".join(pieces) == shown["answer"]


@pytest.mark.parametrize("model", ["desk", "desk:writer"])
def test_thoughts_come_as_reasoning_and_never_as_content(tmp_path: Path, model: str) -> None:
    thoughtful = Answer("One two.", thought="They want me to count.")
    with desk(tmp_path, thoughtful) as (server, fake):
        think = fake.think
        fake.think = lambda question: thoughtful if "You are writer" in question.system else think(question)
        calling = client(server)
        chunks = list(calling.chat.completions.create(model=model, messages=said("Count."), stream=True))
        deltas = [one.choices[0].delta.model_dump(exclude_unset=True) for one in chunks if one.choices]
        reasoning = "".join(one.get("reasoning_content") or "" for one in deltas)
        # how far the run is comes on lines of its own, also between two pieces of a thought
        thoughts = [line for line in reasoning.splitlines() if not line.startswith(("plan:", "- ", "m1 "))]
        assert "".join(thoughts).count("They want me to count.") == 1
        content = "".join(one.get("content") or "" for one in deltas)
        assert content.startswith("One two.")
        assert "They want" not in content
        message = calling.chat.completions.create(model=model, messages=said("Count.")).choices[0].message
        assert "They want" not in (message.content or "")
        kept = message.model_dump().get("reasoning_content") or ""
        assert ("They want me to count." in kept) == (model == "desk:writer")


@pytest.mark.parametrize("model", ["desk", "desk:writer"])
def test_a_long_answer_of_signs_of_all_sizes_comes_whole(tmp_path: Path, model: str) -> None:
    with desk(tmp_path, LONG) as (server, fake):
        think = fake.think
        fake.think = lambda question: LONG if "You are writer" in question.system else think(question)
        calling = client(server)
        chunks = calling.chat.completions.create(model=model, messages=said("Write much."), stream=True)
        text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        assert text.startswith(LONG)
        assert "�" not in text
        with calling.responses.stream(model=model, input="Write much.") as events:
            pieces = [one.delta for one in events if one.type == "response.output_text.delta"]
            assert "".join(pieces) == events.get_final_response().output_text == text


def test_an_answer_begun_anew_is_not_mixed_with_the_one_that_was_broken_off(tmp_path: Path) -> None:
    tries = iter([Answer("", status=500), Answer("The whole answer.")])
    with desk(tmp_path, "") as (server, fake):
        think = fake.think
        fake.think = lambda one: next(tries) if "Your team has finished" in one.system else think(one)
        chunks = client(server).chat.completions.create(model="desk", messages=said("Answer."), stream=True)
        text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        assert text.count("The whole answer.") == 1


def test_words_that_were_sent_are_never_mixed_with_a_second_try() -> None:
    first = Work("answer", NO_TASK, 1)
    second = Work("answer", NO_TASK, 2)
    other = Work("plan", NO_TASK, 1)
    answer = AnswerWords("answer")
    heard = [answer.add(*one) for one in ((other, "{"), (first, "  Four "), (first, "and"), (second, "Five and"))]
    assert heard == ["", "Four", " and", ""]
    rest = "".join(answer.rest("Five and six."))
    assert rest.endswith("\n\nFive and six.")
    assert "broken off" in rest
    assert "".join(answer.rest("Four and twenty.")) == " twenty."


# --- conversations


def test_earlier_turns_are_material_and_wishes_belong_to_the_request(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        messages = said("Who is Ada?", "A poet's daughter.", "Why?")
        messages.insert(0, {"role": "system", "content": "Be very polite."})
        client(server).chat.completions.create(model="desk", messages=messages)
        planning = fake.questions[0]
        assert "Be very polite." not in planning.system
        before, _, after = planning.user.partition("<data ")
        assert before.index("Request: Why?") < before.index("Be very polite.")
        assert "A poet's daughter." in after
        assert "A poet's daughter." not in before
        assert "Who is Ada?" in after


def test_what_was_said_long_ago_is_left_out_of_a_long_conversation(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        turns = [f"turn number {at} {'x' * 3000}" for at in range(40)]
        client(server).chat.completions.create(model="desk", messages=said(*turns, "Now."))
        assert "turn number 39" in fake.questions[0].user
        assert "turn number 2 " not in fake.questions[0].user
        assert len(fake.questions[0].user) < 50_000


def test_a_response_goes_on_from_the_one_before(tmp_path: Path) -> None:
    with desk(tmp_path, "Ada wrote the first program.") as (server, fake):
        calling = client(server)
        first = calling.responses.create(model="desk", input="Who is Ada?", metadata={"chat": "7"})
        assert first.metadata == {"chat": "7"}
        fake.questions.clear()
        second = calling.responses.create(model="desk", input="Which?", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert "Request: Which?" in fake.questions[0].user
        assert "Who is Ada?" in fake.questions[0].user
        assert "Ada wrote the first program." in fake.questions[0].user
        assert calling.responses.retrieve(second.id).output_text == second.output_text


def test_what_was_not_to_be_stored_cannot_be_gone_on_from(home: Garden) -> None:
    calling = client(home.server)
    first = calling.responses.create(model="garden", input=GOAL, store=False)
    with pytest.raises(openai.NotFoundError) as caught:
        calling.responses.create(model="garden", input="And?", previous_response_id=first.id)
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        calling.responses.retrieve(first.id)


def test_the_events_of_a_response_come_in_order_and_numbered(home: Garden) -> None:
    with client(home.server).responses.stream(model="garden", input=BOTH) as events:
        found = list(events)
    kinds = [one.type.removeprefix("response.") for one in found]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "reasoning_summary_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert kinds.index("reasoning_summary_text.done") < kinds.index("output_text.delta")
    assert [one.sequence_number for one in found] == list(range(len(found)))


def test_a_response_in_the_background_is_retrieved_later_or_cancelled(home: Garden) -> None:
    calling = client(home.server)
    home.hold()
    first = calling.responses.create(model="garden", input=GOAL, background=True)
    assert first.status == "in_progress"
    cancelled = calling.responses.cancel(first.id)
    assert cancelled.status == "cancelled"
    home.let_go()
    second = calling.responses.create(model="garden", input=GOAL, background=True)
    _until(lambda: calling.responses.retrieve(second.id).status == "completed")
    assert "48.00 euros" in calling.responses.retrieve(second.id).output_text


# --- refusals and failures


_REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("n", {"n": 2}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    ("logprobs", {"logprobs": True}),
    (
        "messages[0].content[1]",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    ],
                }
            ]
        },
    ),
    ("messages", {"messages": [{"role": "system", "content": "Be polite."}]}),
    (
        "messages[0].content[0].text",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
    ),
]


@pytest.mark.parametrize(("param", "more"), _REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name_and_nothing_is_begun(
    home: Garden, param: str, more: dict[str, Any]
) -> None:
    wanted: dict[str, Any] = {"model": "garden", "messages": said(GOAL), **more}
    with pytest.raises(openai.BadRequestError) as caught:
        client(home.server).chat.completions.create(**wanted)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert home.client.get("/api/runs").json()["runs"] == []


def test_bodies_that_are_no_calls_are_answered_in_the_same_envelope(home: Garden) -> None:
    for content in (b"", b"{", b"[]", b'{"model": 7, "messages": []}', b'{"model": "garden", "messages": [{}]}'):
        found = home.client.post("/v1/chat/completions", content=content, headers={"Content-Type": "application/json"})
        assert found.status_code == 400, found.text
        assert set(found.json()["error"]) == {"message", "type", "param", "code"}


def test_a_model_that_is_not_there_and_a_key_that_is_no_good(own_home: Garden, tmp_path: Path) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client(own_home.server).chat.completions.create(model="gpt-5", messages=said(GOAL))
    assert "team/garden" in caught.value.message
    assert caught.value.code == "model_not_found"
    stranger = client(own_home.server, "ch_wrong_key_of_somebody")
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model="garden", messages=said(GOAL))
    reader = key_for(tmp_path, "main", "read")["Authorization"].removeprefix("Bearer ")
    looking = client(own_home.server, reader)
    assert list(looking.models.list())
    with pytest.raises(openai.PermissionDeniedError):
        looking.chat.completions.create(model="garden", messages=said(GOAL))


def test_the_envelope_has_the_name_of_what_is_wrong(home: Garden) -> None:
    found = home.client.post("/v1/responses", json={"model": "garden", "input": [{"role": 7}]}).json()["error"]
    assert found["param"] == "input[0].role"


def test_a_server_that_is_full_says_when_to_come_again(tmp_path: Path) -> None:
    with garden(tmp_path, limits=ServerLimits(runs=1, waiting=0)) as home, ThreadPoolExecutor(1) as pool:
        home.hold()
        first = pool.submit(client(home.server).chat.completions.create, model="garden", messages=said(GOAL))
        _until(lambda: bool(home.client.get("/api/runs").json()["runs"]))
        with pytest.raises(openai.RateLimitError) as caught:
            client(home.server).chat.completions.create(model="garden", messages=said(BOTH))
        assert int(caught.value.response.headers["retry-after"]) >= 1
        home.let_go()
        assert "48.00" in (first.result(20).choices[0].message.content or "")


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_run_that_comes_to_nothing_is_an_error_that_is_not_tried_again(tmp_path: Path, status: int) -> None:
    with desk(tmp_path, "") as (server, fake):
        fake.think = lambda _: Answer(status=status)
        with pytest.raises(openai.InternalServerError) as caught:
            client(server, max_retries=2).chat.completions.create(model="desk", messages=said("Do it."))
        assert caught.value.code == "run_failed"
        assert f"answered {status}" in caught.value.message
        assert caught.value.response.headers["x-run-id"] in caught.value.message
        runs = httpx.get(f"{server.url}/api/runs", headers=server.headers).json()["runs"]
        assert len(runs) == 1
        with pytest.raises(openai.APIError) as late:
            list(client(server).chat.completions.create(model="desk", messages=said("Do it."), stream=True))
        assert late.value.code == "run_failed"


def test_a_run_that_is_cancelled_ends_its_stream_with_an_error(home: Garden) -> None:
    home.hold()
    stream = client(home.server).chat.completions.create(model="garden", messages=said(GOAL), stream=True)
    run = stream.response.headers["x-run-id"]
    home.tool_called(run)
    assert home.client.post(f"/api/runs/{run}/cancel", json={}).status_code == 200
    home.let_go()
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "run_cancelled"


def test_a_person_who_is_asked_is_told_how_to_answer(own_home: Garden, tmp_path: Path) -> None:
    team = tmp_path / "asks"
    (team / "notes").mkdir(parents=True)
    for name in ("tools.py", "notes/tomatoes.md"):
        (team / name).write_text((tmp_path / "team" / name).read_text())
    text = (tmp_path / "team" / "team.yaml").read_text().replace("name: garden", "name: careful")
    (team / "team.yaml").write_text(f"{text}\npolicy: {{approve: true}}\n")
    with running(settings_in(tmp_path / "other", teams=(team / "team.yaml",), grace=0.5)) as server:
        calling = client(server)
        found = calling.responses.create(model="careful", input=GOAL)
        run = found.id.removeprefix("resp_")
        assert "- t1 (buyer): What do 40 tomato seedlings cost?" in found.output_text
        assert f"POST /api/runs/{run}/answer" in found.output_text
        assert '"number": 1' in found.output_text
        answer = {"number": 1, "verdict": "approve"}
        told = httpx.post(f"{server.url}/api/runs/{run}/answer", json=answer, headers=server.headers)
        assert told.status_code == 200, told.text
        _until(lambda: "48.00 euros" in calling.responses.retrieve(f"{found.id}~1").output_text)
        assert calling.responses.retrieve(found.id) == found, "a response that is over never changes"


# --- calls that are made again, and clients that go away


def test_a_call_with_the_same_key_is_the_same_run_and_another_body_is_refused(home: Garden) -> None:
    calling = client(home.server)
    key = {"Idempotency-Key": "once"}
    create = calling.chat.completions.with_raw_response.create
    first = create(model="garden", messages=said(GOAL), extra_headers=key)
    second = create(model="garden", messages=said(GOAL), extra_headers=key)
    assert first.headers["x-run-id"] == second.headers["x-run-id"]
    assert first.parse() == second.parse()
    with pytest.raises(openai.BadRequestError):
        create(model="garden", messages=said(BOTH), extra_headers=key)


def test_a_client_that_gave_up_and_calls_again_joins_the_run_it_began(home: Garden) -> None:
    home.hold()
    threading.Timer(0.4, home.let_go).start()
    hasty = client(home.server, max_retries=8, timeout=0.2)
    found = hasty.chat.completions.create(model="garden", messages=said(GOAL))
    assert "48.00 euros" in (found.choices[0].message.content or "")
    (run,) = home.client.get("/api/runs").json()["runs"]
    entries = home.client.get(f"/api/runs/{run['run']}/entries").json()["entries"]
    recorded = entries[0]["event"]["client"]
    assert (recorded["api"], recorded["body"]) == ("openai", {"model": "garden"})
    assert recorded["digest"]
    assert not any(entry["event"]["type"] == "noted" and "garden" in entry["event"]["text"] for entry in entries)


def test_a_call_that_is_made_again_after_a_restart_finds_its_run(tmp_path: Path) -> None:
    body = {"model": "garden", "messages": said(GOAL)}
    with garden(tmp_path) as home:
        run = home.client.post("/v1/chat/completions", json=body).headers["x-run-id"]
    with garden(tmp_path) as home:
        again = home.client.post("/v1/chat/completions", json=body, headers={"x-stainless-retry-count": "1"})
        assert again.headers["x-run-id"] == run
        fresh = home.client.post("/v1/chat/completions", json=body)
        assert fresh.headers["x-run-id"] != run


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_nothing(home: Garden, stream: object) -> None:
    home.hold()
    body = {"model": "garden", "messages": said(GOAL), "stream": stream}
    with pytest.raises(httpx.ReadTimeout):
        home.client.post("/v1/chat/completions", json=body, timeout=0.2)
    _until(lambda: bool(home.client.get("/api/runs").json()["runs"]))
    home.let_go()
    run = home.client.get("/api/runs").json()["runs"][0]["run"]
    shown: Any = home.wait(run)
    assert "48.00 euros" in shown["answer"]


def test_a_stream_that_a_stop_cuts_off_says_so_and_its_run_goes_on_after_the_restart(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    held = team.with_name("held")
    held.touch()
    with served(tmp_path / "data", "--team", str(team), "--grace", "0.2") as process:
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key=TOKEN) as calling:
            stream = calling.responses.create(model="garden", input=GOAL, stream=True)
            name = next(one.response.id for one in stream if one.type == "response.created")
            threading.Timer(0.3, process.popen.terminate).start()
            last = list(stream)[-1]
        assert (last.type, getattr(last, "code", "")) == ("error", "cut")
    held.unlink()
    with (
        served(tmp_path / "data", "--team", str(team)) as process,
        openai.OpenAI(base_url=f"{process.url}/v1", api_key=TOKEN) as calling,
    ):
        _until(lambda: calling.responses.retrieve(name).status == "completed")
        assert "48.00 euros" in calling.responses.retrieve(name).output_text


async def test_two_at_once_do_not_mix(home: Garden) -> None:
    async def ask(calling: openai.AsyncOpenAI, count: int) -> None:
        goal = f"What do {count} tomato seedlings cost?"
        stream = await calling.chat.completions.create(model="garden", messages=said(goal), stream=True)
        text = "".join([one.choices[0].delta.content or "" async for one in stream if one.choices])
        assert f"{count} tomato seedlings" in text
        assert f"{count * 1.2:.2f} euros" in text

    async with (
        openai.AsyncOpenAI(base_url=f"{home.server.url}/v1", api_key=home.server.token) as calling,
        asyncio.TaskGroup() as jobs,
    ):
        for count in range(10, 18):
            jobs.create_task(ask(calling, count))


def test_another_tenant_sees_nothing_of_it(own_home: Garden, tmp_path: Path) -> None:
    found = client(own_home.server).responses.create(model="garden", input=GOAL)
    token = key_for(tmp_path, "other")["Authorization"].removeprefix("Bearer ")
    other = client(own_home.server, token)
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(found.id)


def _until(ready: Callable[[], bool]) -> None:
    for _ in range(500):
        if ready():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")
