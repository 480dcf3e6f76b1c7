"""From handles to models: which one, with which key, and what is said when something is missing."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chargehand.engine.policy import Retry
from chargehand.errors import Invalid
from chargehand.models.guard import Guarded
from chargehand.models.http import Timeouts
from chargehand.models.limits import Pace
from chargehand.models.messages import Message, Request, Usage
from chargehand.models.model import Model, ModelFailed
from chargehand.models.openai import OpenAIChat
from chargehand.models.prices import flat
from chargehand.models.providers import OTHERS, OWN, key_variable
from chargehand.models.resolve import Finder, Lookup, Options, find_model, models_folder
from tests.models.loopback import loopback, whole
from tests.support.closing import closing

HELLO = Request([Message("user", "hello")])
CHAT = {
    "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1000},
}
MESSAGE = {"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
KEYS = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-anthropic", "OPENROUTER_API_KEY": " sk-router\n"}


def environment(**variables: str) -> Lookup:
    return (KEYS | variables).get


def guarded(model: Model) -> Guarded:
    assert isinstance(model, Guarded)
    return model


@pytest.mark.parametrize(
    ("handle", "url", "name"),
    [
        ("openai:gpt-5", "https://api.openai.com/v1/responses", "gpt-5"),
        ("openai/gpt-5", "https://api.openai.com/v1/responses", "gpt-5"),
        (" OpenAI:gpt-5 ", "https://api.openai.com/v1/responses", "gpt-5"),
        ("openai:gpt-4o", "https://api.openai.com/v1/chat/completions", "gpt-4o"),
        ("openai-chat:gpt-5", "https://api.openai.com/v1/chat/completions", "gpt-5"),
        ("openai-responses:gpt-4o", "https://api.openai.com/v1/responses", "gpt-4o"),
        ("openai-responses+http://host:99/v1#gpt-oss:20b", "http://host:99/v1/responses", "gpt-oss:20b"),
        ("anthropic:claude-x", "https://api.anthropic.com/v1/messages", "claude-x"),
        ("openrouter:meta/llama:free", "https://openrouter.ai/api/v1/chat/completions", "meta/llama:free"),
        ("openrouter/meta/llama:free", "https://openrouter.ai/api/v1/chat/completions", "meta/llama:free"),
        ("ollama:qwen2.5:0.5b", "http://127.0.0.1:11434/v1/chat/completions", "qwen2.5:0.5b"),
        ("ollama/qwen2.5:0.5b", "http://127.0.0.1:11434/v1/chat/completions", "qwen2.5:0.5b"),
        ("vllm:org/model", "http://127.0.0.1:8000/v1/chat/completions", "org/model"),
        ("llamacpp:any", "http://127.0.0.1:8080/v1/chat/completions", "any"),
        ("openai+http://host:99/v1#org/model:7b", "http://host:99/v1/chat/completions", "org/model:7b"),
        ("openai+http://host:99/v1:org/model:7b", "http://host:99/v1/chat/completions", "org/model:7b"),
        ("openai+https://host/a/b/v1/#m", "https://host/a/b/v1/chat/completions", "m"),
        ("openai+http://host:99#m", "http://host:99/chat/completions", "m"),
        ("openai+http://host:99:m", "http://host:99/chat/completions", "m"),
        ("openai+http://[::1]:99/v1#m", "http://[::1]:99/v1/chat/completions", "m"),
        ("anthropic+http://host:99#claude", "http://host:99/v1/messages", "claude"),
    ],
)
def test_a_handle_leads_to_the_right_place(handle: str, url: str, name: str) -> None:
    model = guarded(find_model(handle, environment()))
    adapter = model._model
    assert adapter._endpoint._url == url  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert adapter._name == name  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert model.card.handle == handle.strip()


def test_the_demo_model_needs_nothing_and_no_guard() -> None:
    model = find_model("demo", lambda _: None)
    assert not isinstance(model, Guarded)
    assert model.card.notice
    assert model.card.price(Usage(1000, 1000)) in (None, 0)


@pytest.mark.parametrize(
    ("base", "api"),
    [
        ("https://eu.api.openai.com/v1", "responses"),
        ("http://127.0.0.1:4000/v1", "chat/completions"),
        ("https://my.openai.azure.com/openai/v1", "chat/completions"),
        ("https://api.openai.com.example/v1", "chat/completions"),
    ],
)
def test_models_that_reason_are_called_by_chat_completions_at_other_addresses(base: str, api: str) -> None:
    def address(handle: str) -> str:
        model = guarded(find_model(handle, environment(OPENAI_BASE_URL=base)))
        return str(model._model._endpoint._url)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

    assert address("openai:gpt-5") == f"{base}/{api}"
    assert address("openai-responses:gpt-5") == f"{base}/responses"
    assert address("openai-chat:gpt-5") == f"{base}/chat/completions"


async def test_both_apis_of_openai_share_a_price_and_a_limit() -> None:
    finder = Finder(environment())
    models = [
        guarded(finder.find(f"{provider}:gpt-5-mini")) for provider in ("openai", "openai-chat", "openai-responses")
    ]
    await finder.prepare()
    assert len({model.card.rates for model in models}) == 1
    assert all(model.card.is_priced for model in models)
    assert len({id(model.limiter) for model in models}) == 1
    await finder.close()


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"CHARGEHAND_MODELS": "/m", "XDG_DATA_HOME": "/x", "HOME": "/h"}, Path("/m")),
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, Path("/x/chargehand/models")),
        ({"HOME": "/h"}, Path("/h/.local/share/chargehand/models")),
        ({}, None),
    ],
)
def test_local_models_lie_where_the_environment_says(variables: dict[str, str], folder: Path | None) -> None:
    assert models_folder(variables.get) == folder


def test_a_local_model_that_was_not_pulled_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="models pull smollm2-135m"):
        Finder(environment(), folder=tmp_path).find("local:smollm2-135m")
    with pytest.raises(Invalid, match="neither a GGUF file nor"):
        Finder(environment(), folder=tmp_path).find("local:no-such-model")


@pytest.mark.parametrize(
    ("handle", "says"),
    [
        ("", "no model is named"),
        ("openai", "write openai:NAME"),
        ("openai:", "write openai:NAME"),
        ("opnai:gpt-5", "did you mean openai"),
        ("antropic/claude", "did you mean anthropic"),
        ("olama", "near: ollama"),
        ("zzz:x", "there are anthropic, "),
        ("scripted:x", "ScriptedModel"),
        ("scripted", "ScriptedModel"),
        ("http://host/v1", "openai+http://host:port/v1#NAME"),
        ("openai+http://host:8080/v1", "openai+http://host:port/v1#NAME"),
        ("openai+http://host:8080", "openai+http://host:port/v1#NAME"),
        ("openai+ftp://host/v1#m", "openai+http://host:port/v1#NAME"),
        ("openai+http://user:pass@host/v1#m", "holds no user or password"),
        ("openai+http://host:99999/v1#m", "is no base URL"),
        ("openai+http://host/v1?x=1#m", "is no base URL"),
    ],
)
def test_a_handle_that_leads_nowhere_says_why(handle: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        find_model(handle, environment())
    assert says in str(caught.value)
    assert "pass" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize("handle", ["reckoner", "reckoner:x"])
def test_a_name_that_is_no_slip_of_the_finger_is_not_taken_for_a_provider(handle: str) -> None:
    with pytest.raises(Invalid) as caught:
        find_model(handle, environment())
    assert "cohere" not in str(caught.value)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "openrouter"])
def test_a_missing_key_names_its_variable(provider: str) -> None:
    with pytest.raises(Invalid, match=f"set {provider.upper()}_API_KEY") as caught:
        find_model(f"{provider}:m", lambda _: None)
    assert "demo" in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel", '"in-quotes"'])
def test_what_is_no_key_is_never_sent(key: str) -> None:
    with pytest.raises(Invalid, match="OPENAI_API_KEY holds is no key") as caught:
        find_model("openai:m", environment(OPENAI_API_KEY=key))
    assert key not in str(caught.value)


async def asked_headers(handle: str, lookup: Lookup, **options: object) -> dict[str, str]:
    content = MESSAGE if handle.startswith("anthropic") else CHAT
    async with loopback(lambda _: whole(content)) as server:
        finder = Finder(lambda variable: server.url if variable.endswith("_BASE_URL") else lookup(variable))
        async with closing(finder):
            given = Options(**options)  # pyright: ignore[reportArgumentType] - options of a test
            await finder.find(handle.replace("URL", server.url), **given).reply(HELLO)
    return server.asked[0].headers


async def test_every_provider_is_sent_its_own_key() -> None:
    assert (await asked_headers("openai:m", environment()))["authorization"] == "Bearer sk-openai"
    assert (await asked_headers("openrouter:m", environment()))["authorization"] == "Bearer sk-router"
    assert (await asked_headers("anthropic:m", environment()))["x-api-key"] == "sk-anthropic"


@pytest.mark.parametrize("handle", ["openai+URL#m", "anthropic+URL#m", "ollama:m", "vllm:m", "llamacpp:m"])
async def test_no_key_goes_where_it_was_not_meant_for(handle: str) -> None:
    headers = await asked_headers(handle, environment())
    assert "authorization" not in headers
    assert "x-api-key" not in headers


async def test_a_key_for_a_url_is_named_on_purpose() -> None:
    lookup = environment(MY_KEY="sk-mine", VLLM_API_KEY="sk-vllm")
    assert (await asked_headers("openai+URL#m", lookup, variable="MY_KEY"))["authorization"] == "Bearer sk-mine"
    assert (await asked_headers("openai+URL#m", lookup, key="sk-given"))["authorization"] == "Bearer sk-given"
    assert (await asked_headers("vllm:m", lookup))["authorization"] == "Bearer sk-vllm"


async def test_headers_of_a_handle_are_sent_with_every_call() -> None:
    beta = {"anthropic-beta": "one-2026"}
    assert (await asked_headers("anthropic:m", environment(), headers=beta))["anthropic-beta"] == "one-2026"
    assert (await asked_headers("openai+URL#m", environment(), headers={"X-Team": "blue"}))["x-team"] == "blue"
    lines = environment(OPENAI_CUSTOM_HEADERS="X-Team: blue\n\nX-Cost-Center: 12:7")
    headers = await asked_headers("openai:m", lines)
    assert (headers["x-team"], headers["x-cost-center"]) == ("blue", "12:7")
    assert "x-team" not in await asked_headers("openai+URL#m", lines), "of no provider, they are named on purpose"


def test_a_header_stands_in_for_one_that_is_sent_anyway() -> None:
    model = OpenAIChat("openai:m", "http://127.0.0.1:1/v1", "m", "sk-1", headers={"AUTHORIZATION": "Basic abc"})
    _, headers, _ = model._endpoint.ready()
    assert [value for name, value in headers.items() if name.lower() == "authorization"] == ["Basic abc"]


@pytest.mark.parametrize("headers", [{"X": 5}, {"X": None}, {7: "x"}, [("X", "5")], "X: 5"])
@pytest.mark.parametrize("handle", ["openai:m", "openai+http://127.0.0.1:1/v1#m", "groq:m"])
def test_headers_that_are_no_texts_are_refused_with_what_to_write(handle: str, headers: Any) -> None:
    with pytest.raises(Invalid, match=r'^.*header.*write (it|both as texts,) like \{"x-team": "'):
        find_model(handle, environment(), headers=headers)


async def test_the_value_of_a_header_is_in_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    async with loopback(lambda _: whole(CHAT)) as server:
        finder = Finder(environment(OPENAI_BASE_URL=server.url, OPENAI_CUSTOM_HEADERS="x-key: token-77"))
        async with closing(finder):
            await finder.find(f"recording:{file}#openai:m").reply(Request((Message("user", "Is it token-77?"),)))
    assert server.asked[0].headers["x-key"] == "token-77"
    assert "token-77" not in file.read_text()


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Content-Length": "5"}, "the header Content-Length is set for every call"),
        ({"x y": "secret-1"}, "'x y' is no name of a header"),
        ({"x-key": "secret-1\r\nx: y"}, "the header x-key is empty or holds characters"),
        ({"x-key": ""}, "the header x-key is empty"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers: dict[str, str], problem: str) -> None:
    with pytest.raises(Invalid, match=problem) as caught:
        find_model("openai:m", environment(), headers=headers)
    assert "secret-1" not in str(caught.value)
    with pytest.raises(Invalid, match="OPENAI_CUSTOM_HEADERS holds a line that is no header") as caught:
        find_model("openai:m", environment(OPENAI_CUSTOM_HEADERS="secret-1"))
    assert "secret-1" not in str(caught.value)


async def test_the_value_of_a_header_is_in_no_message() -> None:
    async with loopback(lambda _: whole({"error": {"message": "who is token-77?"}}, 401)) as server:
        finder = Finder(environment())
        async with closing(finder):
            with pytest.raises(ModelFailed) as caught:
                await finder.find(f"openai+{server.url}#m", headers={"x-key": "token-77"}).reply(HELLO)
        assert "token-77" not in str(caught.value)


async def test_models_of_one_credential_share_a_limiter_and_nothing_else_does() -> None:
    finder = Finder(environment(OTHER="sk-other"), paces={"openai": Pace(concurrency=3)})
    async with closing(finder):
        one = guarded(finder.find("openai:a"))
        two = guarded(finder.find("openai:b"))
        other = guarded(finder.find("openai:a", variable="OTHER"))
        assert one.limiter is two.limiter
        assert one.limiter is not other.limiter
        assert one.limiter.pace.concurrency == 3
        assert one.breaker is not two.breaker
        assert finder.find("openai:a") is one
        again = guarded(finder.find("openai:a", window=5))
        assert (again.breaker is one.breaker, again.card.window) == (True, 5)


async def test_a_found_model_answers_within_its_limits_and_names_its_price() -> None:
    async with loopback(lambda _: whole(CHAT)) as server:
        finder = Finder(environment())
        async with closing(finder):
            unpriced = await finder.find(f"openai+{server.url}#m").reply(HELLO)
            paid = await finder.find(f"openai+{server.url}#m", price=flat(1.0, 2.0)).reply(HELLO)
            assert (unpriced.text, unpriced.micros, paid.micros) == ("hi", None, 3000)
            assert server.connections == 1
            tiny = finder.find(f"openai+{server.url}#m", max_bytes=10, retry=Retry(attempts=1))
            with pytest.raises(ModelFailed, match="larger than 10 bytes"):
                await tiny.reply(HELLO)


async def test_cards_say_what_models_cost_once_that_was_looked_up() -> None:
    finder = Finder(environment())
    async with closing(finder):
        paid = finder.find("openai:gpt-4o")
        free = finder.find("ollama:any")
        assert (paid.card.price(Usage(1000, 1000)), free.card.price(Usage(1000, 1000))) == (None, 0)
        await finder.prepare()
        assert (paid.card.price(Usage(1000, 1000)) or 0) > 0


@pytest.mark.parametrize(
    ("handle", "variables"),
    [
        ("openai:gpt-4o", {"OPENAI_BASE_URL": "http://127.0.0.1:4000/v1"}),
        ("openai+http://localhost:4000/v1#gpt-4o", {}),
    ],
)
async def test_a_gateway_on_this_machine_does_not_make_a_providers_model_free(
    handle: str, variables: dict[str, str]
) -> None:
    finder = Finder({"OPENAI_API_KEY": "x", **variables}.get)
    own = Finder({"OPENAI_API_KEY": "x"}.get).find("openai:gpt-4o")
    behind = finder.find(handle)
    for model in (own, behind):
        await guarded(model).prepare()
    assert behind.card.price(Usage(1000, 1000)) == own.card.price(Usage(1000, 1000))
    assert not behind.card.free


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp"])
def test_local_engines_are_free_wherever_they_run(provider: str) -> None:
    elsewhere = {f"{provider.upper()}_BASE_URL": "http://gpu.invalid:8000/v1"}
    assert Finder(elsewhere.get).find(f"{provider}:any").card.price(Usage(1000, 1000)) == 0


async def test_a_model_found_on_its_own_is_closed_on_its_own() -> None:
    async with loopback(lambda _: whole(CHAT)) as server:
        model = guarded(find_model(f"openai+{server.url}#m", environment(), timeouts=Timeouts(first=1.0)))
        async with closing(model):
            assert (await model.reply(HELLO)).text == "hi"


def test_the_providers_pydantic_ai_has_are_named_as_it_names_them() -> None:
    from pydantic_ai.providers import infer_provider_class

    for name in OTHERS:
        with contextlib.suppress(ImportError):  # known, but its own library is not installed
            infer_provider_class(name)
    assert not set(OTHERS) & set(OWN)
    assert key_variable("google") == "GOOGLE_API_KEY"
    assert key_variable("cohere") == "CO_API_KEY"


def test_another_provider_is_found_with_its_key() -> None:
    model = guarded(find_model("deepseek:deepseek-chat", environment(DEEPSEEK_API_KEY="sk-d")))
    assert model.card.handle == "deepseek:deepseek-chat"
    with pytest.raises(Invalid, match="DEEPSEEK_API_KEY"):
        find_model("deepseek:deepseek-chat", environment())


def test_without_the_extra_it_is_named() -> None:
    script = """
import sys
sys.modules["pydantic_ai"] = None
from chargehand.errors import Invalid
from chargehand.models.resolve import find_model
try:
    find_model("google:gemini", lambda name: None)
except Invalid as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "[providers]'" in done.stdout
