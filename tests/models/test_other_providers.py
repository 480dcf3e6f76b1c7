"""Every handle that the page on models lists can be made, and three clouds are asked as the page says."""

import json
import re
import ssl
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from chargehand.errors import Invalid
from chargehand.models.http import Timeouts
from chargehand.models.messages import Message, Request
from chargehand.models.model import ClosableModel, ModelFailed
from chargehand.models.providers import OTHERS, VARIABLES, extra_of, key_variable
from chargehand.models.pydantic_ai_models import provider_model
from chargehand.models.resolve import find_model
from tests.models.loopback import Asked, Loopback, Move, loopback, self_signed, whole
from tests.support.hearing import hear_answer

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
LIBRARIES = {
    "bedrock": "boto3",
    "cohere": "cohere",
    "groq": "groq",
    "huggingface": "huggingface_hub",
    "mistral": "mistralai",
    "xai": "xai_sdk",
}
ENDPOINTS = {
    "AZURE_OPENAI_ENDPOINT": "https://azure.invalid/openai/v1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "LITELLM_BASE_URL": "http://litellm.invalid",
}
HELLO = Request([Message("user", "hello")])


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key or address of the machine reaches a library that looks for it by itself."""
    for name in (*map(key_variable, OTHERS), *(name for names in VARIABLES.values() for name in names.values())):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("provider", OTHERS)
def test_every_handle_is_made_or_names_its_extra(provider: str) -> None:
    known = {**ENDPOINTS, key_variable(provider): "dummy"}
    library = LIBRARIES.get(provider, "openai")
    if find_spec(library) is not None:
        assert find_model(f"{provider}:some-model", known.get).card.handle == f"{provider}:some-model"
        return
    advice = rf"{provider}:some-model: {provider} needs the extra `{provider}`: pip install .*\[{provider}\]'"
    with pytest.raises(Invalid, match=advice):
        find_model(f"{provider}:some-model", known.get)


@pytest.mark.parametrize("provider", LIBRARIES)
def test_a_library_that_is_missing_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    for name in [
        name for name in sys.modules if name.startswith((f"pydantic_ai.providers.{provider}", LIBRARIES[provider]))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, LIBRARIES[provider], None)
    with pytest.raises(Invalid, match=rf"needs the extra `{provider}`: pip install .*\[{provider}\]'"):
        find_model(f"{provider}:some-model", {key_variable(provider): "dummy"}.get)


def test_a_service_that_was_retired_is_no_provider() -> None:
    with pytest.raises(Invalid, match="there is no provider 'github'"):
        find_model("github:gpt-5", ENDPOINTS.get)


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {extra_of(provider) for provider in OTHERS} <= set(project["optional-dependencies"])
    assert {provider for provider in OTHERS if extra_of(provider) == provider} == set(LIBRARIES)


# --- the clouds, with the settings of the page


def settings(heading: str) -> dict[str, str]:
    """Return the variables that the page shows below a heading."""
    block = re.search(rf"^#### {heading}\n.*?^```env\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    pairs = (line.partition("=") for line in block[1].splitlines())
    return {name: "dummy-key" if value == "..." else value for name, _, value in pairs}


async def ask(handle: str, known: dict[str, str]) -> str:
    model = find_model(handle, known.get, timeouts=Timeouts(first=10.0, whole=10.0))
    try:
        return (await model.reply(HELLO)).text
    finally:
        assert isinstance(model, ClosableModel)
        await model.close()


async def with_server(
    reply: object, handle: str, known: Callable[[Loopback], dict[str, str]], tls: ssl.SSLContext | None = None
) -> tuple[str, list[Asked]]:
    def play(asked: Asked) -> list[Move]:
        if asked.path.endswith("/token"):
            return whole({"access_token": "ya29.dummy", "expires_in": 3600, "token_type": "Bearer"})
        return whole(reply)

    async with loopback(play, tls) as server:
        return await ask(handle, known(server)), server.asked


async def test_azure_is_asked_as_the_page_says() -> None:
    message = {"role": "assistant", "content": "hi"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice]}
    known = settings("Azure")

    def there(server: Loopback) -> dict[str, str]:
        assert known["AZURE_OPENAI_ENDPOINT"].endswith("/openai/v1")
        return {**known, "AZURE_OPENAI_ENDPOINT": f"http://127.0.0.1:{server.port}/openai/v1"}

    text, (asked,) = await with_server(reply, "azure:my-deployment", there)
    assert text == "hi"
    assert asked.path == "/openai/v1/chat/completions"
    assert asked.json["model"] == "my-deployment"
    assert "dummy-key" in asked.headers.get("api-key", "") + asked.headers.get("authorization", "")


async def test_bedrock_is_asked_as_the_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if find_spec("boto3") is None:
        with pytest.raises(Invalid, match="needs the extra `bedrock`"):
            find_model("bedrock:anthropic.claude", settings("Amazon Bedrock").get)
        return
    reply = {
        "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4},
        "metrics": {"latencyMs": 1},
    }

    def there(server: Loopback) -> dict[str, str]:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", f"https://127.0.0.1:{server.port}")
        return settings("Amazon Bedrock")

    certificate = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    text, (asked,) = await with_server(reply, "bedrock:eu.anthropic.claude-sonnet-4-5-20250929-v1:0", there, tls)
    assert text == "hi"
    assert asked.path.startswith("/model/eu.anthropic.claude-sonnet-4-5-20250929-v1")
    assert asked.headers["authorization"] == "Bearer dummy-key"


def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


async def test_vertex_is_asked_as_the_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = {"role": "model", "parts": [{"text": "hi"}]}
    reply = {
        "candidates": [{"content": parts, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4},
        "modelVersion": "gemini",
    }

    def there(server: Loopback) -> dict[str, str]:
        url = f"http://127.0.0.1:{server.port}"
        monkeypatch.setenv("GOOGLE_VERTEX_BASE_URL", url)
        account = {"type": "service_account", "client_email": "a@b.invalid", "private_key": _private_key()}
        (tmp_path / "key.json").write_text(json.dumps({**account, "token_uri": f"{url}/token"}), encoding="utf-8")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        return {**settings("Vertex AI"), "GOOGLE_API_KEY": "for-google"}

    text, asked = await with_server(reply, "google-cloud:gemini-3-flash", there)
    assert text == "hi"
    first, last = asked
    assert first.path == "/token"
    assert "/projects/my-project/locations/europe-west4/publishers/google/models/gemini-3-flash" in last.path
    assert last.headers["authorization"] == "Bearer ya29.dummy"
    assert "x-goog-api-key" not in last.headers


# --- credentials that are missing or cannot be fetched


async def fail(handle: str, known: dict[str, str], *, streamed: bool) -> ModelFailed:
    """Return how a call without a key fails, at the model itself: nothing around it tidies up its errors."""
    provider, _, name = handle.partition(":")
    where = {argument: known[named] for argument, named in VARIABLES[provider].items() if named in known}
    model = provider_model(handle, provider, name, "", where=where, variable=key_variable(provider))
    try:
        with pytest.raises(ModelFailed) as caught:
            await model.reply(HELLO, hear_answer([]) if streamed else None)
    finally:
        await model.close()
    return caught.value


@pytest.mark.parametrize("streamed", [False, True])
async def test_bedrock_without_credentials_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, streamed: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    failed = await fail("bedrock:anthropic.claude", {"AWS_DEFAULT_REGION": "eu-central-1"}, streamed=streamed)
    assert (failed.failure.kind, failed.failure.permanent, failed.sent, failed.billed) == (
        "resource",
        True,
        False,
        False,
    )
    assert "Unable to locate credentials; set AWS_BEARER_TOKEN_BEDROCK" in failed.failure.message


def test_a_profile_that_is_not_there_is_named_when_the_model_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Invalid, match=r"bedrock:x: its library cannot make the call: .*nobody.*AWS_PROFILE"):
        find_model("bedrock:x", {"AWS_DEFAULT_REGION": "eu-central-1"}.get)


@pytest.mark.parametrize("streamed", [False, True])
async def test_vertex_without_credentials_or_a_way_to_them_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, streamed: bool
) -> None:
    account = {"type": "service_account", "client_email": "a@b.invalid", "private_key": _private_key()}
    file = tmp_path / "key.json"
    file.write_text(json.dumps({**account, "token_uri": "http://127.0.0.1:9/token"}), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    handle = "google-cloud:gemini-3-flash"
    unreached = await fail(handle, settings("Vertex AI"), streamed=streamed)
    assert (unreached.failure.kind, unreached.failure.permanent) == ("network", False)
    assert "did not get through (TransportError)" in unreached.failure.message
    file.write_text("{}", encoding="utf-8")
    refused = await fail(handle, settings("Vertex AI"), streamed=streamed)
    assert (refused.failure.kind, refused.failure.permanent, refused.sent) == ("resource", True, False)
    assert "gcloud auth application-default login" in refused.failure.message
