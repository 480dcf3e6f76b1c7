"""Which model a new team begins with: that of a key in the environment, one of an Ollama that runs here, or none."""

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import cast
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from msgspec import Struct

from chargehand.models.known import BUILT_IN, OWN, is_free
from chargehand.models.prices import is_local

_USUAL_NAMES = {"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5", "openrouter": "openai/gpt-5-mini"}
_MODEL = "CHARGEHAND_MODEL"
_PATIENCE = 0.5  # seconds: it runs on this machine, or it does not run
_MOST_BYTES = 1_000_000


class Detected(Struct, frozen=True):
    """A model by its handle, and why it was chosen. `charged`: its calls cost money."""

    handle: str
    why: str
    charged: bool = False


def detect_model(environment: Mapping[str, str]) -> Detected:
    """Nothing is sent but one question to the Ollama of this machine, and that only where no key is set."""
    if handle := environment.get(_MODEL, "").strip():
        return Detected(handle, f"{_MODEL} names it", charged=not is_free(handle))
    for provider, name in _USUAL_NAMES.items():
        if environment.get(OWN[provider].key, "").strip():
            return Detected(f"{provider}:{name}", f"{OWN[provider].key} is set", charged=True)
    place = OWN["ollama"]
    url = environment.get(place.base, "").strip() or place.url
    where = urlsplit(url).netloc.rpartition("@")[2]
    names = ollama_models(url)
    if names:
        return Detected(f"ollama:{names[0]}", f"Ollama runs on {where} and has it")
    if names is not None:
        return Detected(BUILT_IN, f"no key is set, and Ollama on {where} has no model yet (ollama pull NAME)")
    return Detected(BUILT_IN, f"no key is set, and no Ollama answers on {where}")


def ollama_models(url: str) -> list[str] | None:
    """The models an Ollama on this machine has; None where none runs there."""
    if not is_local(url):
        return None
    address = f"{url.rstrip('/').removesuffix('/v1')}/api/tags"
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=_PATIENCE) as reply:
            listed: object = json.loads(reply.read(_MOST_BYTES))
    except (URLError, HTTPException, OSError, ValueError):
        return None
    models = cast("dict[str, object]", listed).get("models") if isinstance(listed, dict) else None
    if not isinstance(models, list):
        return None
    named = [cast("dict[str, object]", model) for model in cast("list[object]", models) if isinstance(model, dict)]
    return [str(model["name"]) for model in named if model.get("name")]
