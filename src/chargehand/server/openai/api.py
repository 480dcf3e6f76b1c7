"""The door of OpenAI's clients: every route of it. What Letta's client calls by the same path is not for it."""

from chargehand.server.openai import chat, models, responses
from chargehand.server.openai.problem import enveloped
from chargehand.server.routing import Api


def openai_api() -> Api:
    """Stands behind Letta's door, which takes its own calls for `/v1/models`."""
    api = Api("openai", enveloped)
    api.add("GET", "/v1/models", models.listing, "read")
    api.add("GET", "/v1/models/{model:path}", models.show, "read")
    api.add("POST", "/v1/chat/completions", chat.complete, "run")
    api.add("POST", "/v1/responses", responses.create, "run")
    api.add("GET", "/v1/responses/{response}", responses.retrieve, "read")
    api.add("POST", "/v1/responses/{response}/cancel", responses.cancel, "run")
    return api
