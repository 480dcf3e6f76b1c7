"""What clients can make the server do through agents: calls because of one message, and which addresses are called."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from chargehand.server.letta.model_access import may_name
from chargehand.server.settings import Limits, Settings
from tests.server.model_server import Answer, Call, Question, fake_model
from tests.server.running import running, settings_in

ALL = "send_message_to_agents_matching_tags"


def _pass_on(question: Question) -> Answer:
    """Write to all others, and answer when their replies are there."""
    if question.results:
        return Answer(f"They said: {question.results[-1][:200]}")
    return Answer(calls=(Call(ALL, {"message": "What do you know?", "match_all": ["crowd"]}),))


@pytest.mark.parametrize("cap", [10, 40])
def test_agents_that_write_to_each_other_stop_at_the_cap_of_calls(tmp_path: Path, cap: int) -> None:
    with (
        fake_model(_pass_on) as model,
        running(settings_in(tmp_path, limits=Limits(message_calls=cap))) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        sent = {"model": model.handle, "tags": ["crowd"], "tools": [ALL]}
        agents = [client.post("/v1/agents/", json={"name": f"a{n}", **sent}).json()["id"] for n in range(5)]
        messages = [{"role": "user", "content": "What does everybody know?"}]
        told = client.post(f"/v1/agents/{agents[0]}/messages", json={"messages": messages})
        assert told.status_code == 200, told.text
        answers = [one["content"] for one in told.json()["messages"] if one["message_type"] == "assistant_message"]
        assert answers, "whom the client wrote to answers"
        asked_first = 2  # for whom to write to, and with the replies
        assert cap < len(model.questions) <= cap + asked_first


@pytest.mark.parametrize(
    ("handle", "is_allowed"),
    [
        ("openai/gpt-5-mini", True),
        ("openai+https://models.example/v1#m", True),
        ("openai+http://8.8.8.8/v1#m", True),
        ("openai+http://127.0.0.1:9000/v1#m", False),
        ("openai+http://127.1/v1#m", False),
        ("openai+http://2130706433/v1#m", False),
        ("openai+http://[::1]:80/v1#m", False),
        ("openai+http://localhost:9000/v1#m", False),
        ("openai+http://10.0.0.7/v1#m", False),
        ("openai+http://169.254.169.254/latest#m", False),
        ("openai+http://box/v1#m", False),
        ("openai+http://127.0.0.1:9001/v1#m", True),
        ("openai+http://gpu.internal:8000/v1#m", True),
        ("ollama/llama3", False),
        ("vllm:m", True),
        ("llamacpp/m", True),
    ],
)
def test_addresses_of_this_machine_are_called_where_the_operator_named_them(handle: str, is_allowed: bool) -> None:
    settings = Settings(Path(), model="vllm:m", model_urls=True, model_hosts=("127.0.0.1:9001", "gpu.internal"))
    lookup: Callable[[str], str | None] = {"LLAMACPP_BASE_URL": "http://127.0.0.1:8080/v1"}.get
    assert may_name(handle, settings, lookup) == is_allowed


def test_an_agent_with_an_address_nobody_named_makes_no_call(tmp_path: Path) -> None:
    with (
        fake_model(lambda _: "yes") as model,
        running(settings_in(tmp_path, model_hosts=("127.0.0.1:1",))) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        agent = client.post("/v1/agents/", json={"name": "ada", "model": model.handle}).json()["id"]
        messages = [{"role": "user", "content": "What is 2 + 2?"}]
        client.post(f"/v1/agents/{agent}/messages", json={"messages": messages})
        assert model.questions == []
        named = [one["name"] for one in client.get("/v1/providers/").json()]
        assert not {"ollama", "vllm", "llamacpp"} & set(named)
