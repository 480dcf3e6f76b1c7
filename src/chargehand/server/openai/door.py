"""The door of OpenAI's clients: every route of it. What Letta's client calls by the same path is not for it."""

from chargehand.server.doors import Door
from chargehand.server.openai import chat, models, responses
from chargehand.server.openai.problem import enveloped


def openai_door() -> Door:
    """Stands behind Letta's door, which takes its own calls for `/v1/models`."""
    door = Door("openai", enveloped)
    door.add("GET", "/v1/models", models.listing, "read")
    door.add("GET", "/v1/models/{model:path}", models.show, "read")
    door.add("POST", "/v1/chat/completions", chat.complete, "run")
    door.add("POST", "/v1/responses", responses.create, "run")
    door.add("GET", "/v1/responses/{response}", responses.retrieve, "read")
    door.add("POST", "/v1/responses/{response}/cancel", responses.cancel, "run")
    return door
