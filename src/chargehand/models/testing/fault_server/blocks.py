"""The Anthropic messages protocol, as a server writes it."""

import msgspec

from chargehand.models.testing.fault_server.shapes import MODEL, Called, Json, Said, Why, dump, pieces

_WHY: dict[Why, str] = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "refused": "refusal"}


class BlockShape:
    def whole(self, said: Said) -> Json:
        content: list[Json] = []
        if said.text is not None:
            content.append({"type": "text", "text": said.text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            for call in said.calls
        ]
        body = _message(content, said)
        body["stop_reason"] = _WHY[said.why]
        return body

    def events(self, said: Said) -> list[bytes]:
        frames = [event({"type": "message_start", "message": _message([], said)}), event({"type": "ping"})]
        at = 0
        if said.text is not None:
            frames.append(_opened(0, {"type": "text", "text": ""}))
            frames += [_delta(0, {"type": "text_delta", "text": piece}) for piece in pieces(said.text)]
            frames.append(event({"type": "content_block_stop", "index": 0}))
            at = 1
        for index, call in enumerate(said.calls, at):
            frames += call_frames(index, index, call)
        ended: Json = {"type": "message_delta", "delta": {"stop_reason": _WHY[said.why], "stop_sequence": None}}
        if said.usage is not None:
            ended["usage"] = {"output_tokens": said.usage[1]}
        return [*frames, event(ended), event({"type": "message_stop"})]

    def error(self, status: int, message: str) -> Json:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}

    def stream_error(self, message: str) -> bytes:
        return event({"type": "error", "error": {"type": "overloaded_error", "message": message}})

    def hollow(self) -> Json:
        return self.whole(Said(None, usage=(1, 0)))


def event(body: Json) -> bytes:
    return b"event: " + str(body["type"]).encode() + b"\ndata: " + dump(body) + b"\n\n"


def call_frames(first: int, rest: int, call: Called) -> list[bytes]:
    """A call whose block is `first` and whose arguments go to block `rest`: the same one, if all is well."""
    frames = [_opened(first, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}})]
    frames += [_delta(rest, {"type": "input_json_delta", "partial_json": piece}) for piece in pieces(call.arguments)]
    return [*frames, event({"type": "content_block_stop", "index": first})]


def _opened(index: int, block: Json) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def _delta(index: int, delta: Json) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": delta})


def _message(content: list[Json], said: Said) -> Json:
    body: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content}
    body["stop_reason"] = body["stop_sequence"] = None
    if said.usage is not None:
        body["usage"] = {"input_tokens": said.usage[0], "output_tokens": said.usage[1]}
    return body


def _input(arguments: str) -> object:
    """Arguments are an object in this protocol; what is no JSON can only be sent as the wrong thing, a string."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
