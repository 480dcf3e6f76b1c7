"""What clients can make the server do through agents: calls because of one message, and which addresses are called."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from chargehand.engine.failure import Failure
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.server.letta.models import MessageAllowances, forbidden_reason
from chargehand.server.settings import ServerLimits, ServerSettings
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
        running(settings_in(tmp_path, limits=ServerLimits(message_calls=cap))) as server,
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
    settings = ServerSettings(Path(), model="vllm:m", model_urls=True, model_hosts=("127.0.0.1:9001", "gpu.internal"))
    lookup: Callable[[str], str | None] = {"LLAMACPP_BASE_URL": "http://127.0.0.1:8080/v1"}.get
    assert (forbidden_reason(handle, settings, lookup) == "") == is_allowed


def test_an_agent_with_an_address_nobody_named_is_refused(tmp_path: Path) -> None:
    with (
        fake_model(lambda _: "yes") as model,
        running(settings_in(tmp_path, model_hosts=("127.0.0.1:1",))) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client,
    ):
        refused = client.post("/v1/agents/", json={"name": "ada", "model": model.handle})
        assert (refused.status_code, "--model-host" in refused.text) == (422, True)
        assert model.questions == []


class _Billed:
    """A model whose every call costs the same, as the provider says; `card` may have no price."""

    def __init__(self, micros: int | None, card: ModelCard) -> None:
        self.card = card
        self.calls = 0
        self._micros = micros

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        return Reply("yes", micros=self._micros, usage=Usage(10, 10))


async def test_agents_that_write_to_each_other_stop_at_the_cap_of_dollars() -> None:
    allowances = MessageAllowances(ServerLimits(message_micros=1_000_000))
    billed = _Billed(300_000, ModelCard("dear", micros_in=1.0, micros_out=1.0))
    metered = [allowances.metered("letta-1", (billed,))[0] for _ in range(3)]  # agents at work because of one message
    for number in range(4):
        await metered[number % 3].reply(Request(()))
    with pytest.raises(ModelFailed, match=r"used \$1\.00, which is all they may") as stopped:
        await metered[0].reply(Request(()))
    assert stopped.value.failure.kind == "budget"
    assert not stopped.value.billed
    assert billed.calls == 4
    other = allowances.metered("letta-2", (billed,))[0]
    assert (await other.reply(Request(()))).text == "yes", "another message of a client has dollars of its own"


async def test_a_failed_call_between_agents_counts_what_it_used() -> None:
    class Failing(_Billed):
        async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
            raise ModelFailed(Failure("network", "gone"), usage=Usage(600_000, 0))

    failing = Failing(None, ModelCard("dear", micros_in=1.0, micros_out=1.0))
    metered = MessageAllowances(ServerLimits(message_micros=1_000_000)).metered("letta-1", (failing,))[0]
    for _ in range(2):
        with pytest.raises(ModelFailed, match="gone"):
            await metered.reply(Request(()))
    with pytest.raises(ModelFailed, match="which is all they may"):
        await metered.reply(Request(()))


async def test_calls_between_agents_are_capped_where_dollars_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    unpriced = _Billed(None, ModelCard("mystery"))
    metered = MessageAllowances(ServerLimits(message_micros=200_000)).metered("letta-1", (unpriced,))[0]
    for _ in range(20):  # a call for each cent
        await metered.reply(Request(()))
    with pytest.raises(ModelFailed, match=r"used \$0\.20"):
        await metered.reply(Request(()))
    warnings = [
        record.getMessage() for record in caplog.records if "the price of mystery is unknown" in record.getMessage()
    ]
    assert len(warnings) == 1, "once a message of a client"
    assert "at most 20 calls are made instead" in warnings[0]
