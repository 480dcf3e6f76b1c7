"""The providers that can be named in a handle, what is known of them beforehand, and how extras are installed."""

import re
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.models.http import PATIENCE, Timeouts
from chargehand.models.limits import Pace

WireProtocolName: TypeAlias = Literal["openai", "anthropic"]
OpenAIApi: TypeAlias = Literal["", "chat", "responses"]
"""Which API of OpenAI's is spoken; empty: that goes by the host and the name of the model."""
BUILT_IN = "demo"
"""The model that needs no key, no network and no language model; it is used where no other is named."""
LOCAL = "local"
"""The provider of models that are pulled to this machine and run in this process."""
RECORDED = "recorded"
"""`recorded:FILE` replays the calls in a file."""
RECORDING = "recording"
"""`recording:FILE#HANDLE` is the model HANDLE, whose calls are added to a file."""
HIDDEN = "…"
"""What stands for a secret that is not shown."""
_URL = re.compile(r"://(?P<user>[^/\s#]*@)?(?P<rest>[^\s?#]*)(?P<query>\?[^\s#]+)?")

# A machine of one's own reads long prompts slowly and takes a few calls at a time.
_OWN_MACHINE = Timeouts(first=240.0, idle=60.0)
_A_FEW = Pace(concurrency=8)


class Place(Struct, frozen=True):
    """Where a provider is and how it is talked to.

    `key`, `base` and `headers` name variables. `free`: its calls cost nothing.
    """

    protocol: WireProtocolName
    url: str
    key: str
    base: str
    headers: str = ""
    needs_key: bool = True
    free: bool = False
    reports_cost: bool = False
    window: int = 128_000
    pace: Pace = Pace()
    timeouts: Timeouts = PATIENCE
    api: OpenAIApi = ""


_OPENAI = Place(
    protocol="openai",
    url="https://api.openai.com/v1",
    key="OPENAI_API_KEY",
    base="OPENAI_BASE_URL",
    headers="OPENAI_CUSTOM_HEADERS",
)


def _server(name: str, url: str, pace: Pace) -> Place:
    return Place(
        protocol="openai",
        url=url,
        key=f"{name.upper()}_API_KEY",
        base=f"{name.upper()}_BASE_URL",
        headers=f"{name.upper()}_CUSTOM_HEADERS",
        needs_key=False,
        free=True,
        window=32_000,
        pace=pace,
        timeouts=_OWN_MACHINE,
    )


OWN: dict[str, Place] = {
    "openai": _OPENAI,
    "openai-chat": structs.replace(_OPENAI, api="chat"),
    "openai-responses": structs.replace(_OPENAI, api="responses"),
    "anthropic": Place(
        protocol="anthropic",
        url="https://api.anthropic.com",
        key="ANTHROPIC_API_KEY",
        base="ANTHROPIC_BASE_URL",
        headers="ANTHROPIC_CUSTOM_HEADERS",
        window=200_000,
    ),
    "openrouter": Place(
        protocol="openai",
        url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        base="OPENROUTER_BASE_URL",
        headers="OPENROUTER_CUSTOM_HEADERS",
        reports_cost=True,
    ),
    "ollama": _server("ollama", "http://127.0.0.1:11434/v1", _A_FEW),
    "vllm": _server("vllm", "http://127.0.0.1:8000/v1", Pace()),
    "llamacpp": _server("llamacpp", "http://127.0.0.1:8080/v1", _A_FEW),
}

NO_PLACE = Place(protocol="openai", url="", key="", base="")
"""Of a provider whose own library knows where it is."""

# What pydantic_ai knows besides. Their keys are called NAME_API_KEY unless it is said here.
OTHERS: dict[str, str] = {
    "alibaba": "",
    "azure": "AZURE_OPENAI_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "cerebras": "",
    "cohere": "CO_API_KEY",
    "deepseek": "",
    "fireworks": "",
    "google": "",
    "google-cloud": "GOOGLE_API_KEY",
    "groq": "",
    "heroku": "HEROKU_INFERENCE_KEY",
    "huggingface": "HF_TOKEN",
    "litellm": "",
    "mistral": "",
    "moonshotai": "",
    "nebius": "",
    "ovhcloud": "",
    "sambanova": "",
    "together": "",
    "vercel": "VERCEL_AI_GATEWAY_API_KEY",
    "xai": "",
    "zai": "",
}

_OWN_EXTRAS = frozenset(("bedrock", "cohere", "groq", "huggingface", "mistral", "xai"))
"""Those whose library comes with an extra of their name; the others share the extra `providers`."""

# Where they are, apart from their key: what their clients call it, and the variable that holds it.
VARIABLES: dict[str, dict[str, str]] = {
    "azure": {"azure_endpoint": "AZURE_OPENAI_ENDPOINT", "api_version": "OPENAI_API_VERSION"},
    "bedrock": {"region_name": "AWS_DEFAULT_REGION"},
    "google-cloud": {"project": "GOOGLE_CLOUD_PROJECT", "location": "GOOGLE_CLOUD_LOCATION"},
    "heroku": {"base_url": "HEROKU_INFERENCE_URL"},
    "litellm": {"api_base": "LITELLM_BASE_URL"},
}


_READS_PDFS = re.compile(r"^(ft:)?(gpt-4o|gpt-4\.1|gpt-[5-9]|o1(?!-mini|-preview)|o3(?!-mini)|o4)(?!.*audio)")
_REASONS = re.compile(
    r"(?:ft:)?(?:gpt-(?:[5-9]|[1-9]\d)(?![a-z\d])(?!-chat|.*-search)|o[1-9](?![a-z\d])|codex-)", re.IGNORECASE
)
"""Models of OpenAI that reason, and whatever comes later. gpt-5-chat does not; those for search speak only chat."""


def reasons(name: str) -> bool:
    """Return whether a model of OpenAI reasons, by its name."""
    return _REASONS.match(name) is not None


def reads_pdfs(name: str) -> bool:
    """Return whether a model of OpenAI takes PDFs, by its name."""
    return _READS_PDFS.match(name) is not None


def is_openai(host: str) -> bool:
    """Return whether a host is OpenAI's own, in any region."""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_in_process(handle: str) -> bool:
    """Whether the model of a handle runs in this process."""
    return handle == BUILT_IN or _provider(handle) == LOCAL


def is_free(handle: str) -> bool:
    """Whether calls of the model of a handle cost nothing, as far as its provider tells."""
    place = OWN.get(_provider(handle))
    return is_in_process(handle) or (place is not None and place.free)


def _provider(handle: str) -> str:
    return handle.replace("/", ":").partition(":")[0].lower()


def key_variable(provider: str) -> str:
    """Where the key of one of the others is looked for."""
    return OTHERS[provider] or f"{provider.upper().replace('-', '_')}_API_KEY"


def extra_of(provider: str) -> str:
    """Return the extra that brings the library of one of the others."""
    return provider if provider in _OWN_EXTRAS else "providers"


def without_secrets(text: str) -> str:
    """A handle or URL without user, password and query: people put keys there, and they are shown nowhere."""

    def bare(url: re.Match[str]) -> str:
        return f"://{HIDDEN if url['user'] else ''}{url['rest']}{HIDDEN if url['query'] else ''}"

    return _URL.sub(bare, text)
