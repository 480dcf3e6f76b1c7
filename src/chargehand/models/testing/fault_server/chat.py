"""The OpenAI chat protocol, as a server writes it."""

from collections.abc import Sequence

from chargehand.models.testing.fault_server.shapes import MODEL, Called, Json, Said, Why, dump, pieces

_WHY: dict[Why, str] = {"stop": "stop", "tools": "tool_calls", "length": "length", "refused": "content_filter"}


class ChatShape:
    def whole(self, said: Said) -> Json:
        message: Json = {"role": "assistant", "content": said.text}
        if said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        choice: Json = {"index": 0, "message": message, "finish_reason": _WHY[said.why]}
        body: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": MODEL}
        body["choices"] = [choice]
        if said.usage is not None:
            body["usage"] = _usage(*said.usage)
        return body

    def events(self, said: Said) -> list[bytes]:
        frames = [_delta({"role": "assistant", "content": None})]
        frames += [_delta({"content": piece}) for piece in pieces(said.text or "")]
        for index, call in enumerate(said.calls):
            frames += call_frames(index, index, call)
        frames.append(_frame([{"index": 0, "delta": {}, "finish_reason": _WHY[said.why]}]))
        if said.usage is not None:
            frames.append(_frame([], usage=_usage(*said.usage)))
        return [*frames, b"data: [DONE]\n\n"]

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "server_error", "param": None, "code": status}}

    def stream_error(self, message: str) -> bytes:
        return b"data: " + dump(self.error(500, message)) + b"\n\n"

    def hollow(self) -> Json:
        return {**self.whole(Said("", usage=(1, 0))), "choices": []}


def call_frames(first: int, rest: int, call: Called) -> list[bytes]:
    """A call that begins at index `first` and whose arguments go to index `rest`: the same one, if all is well."""
    begun: Json = {"index": first, "id": call.id, "type": "function"}
    begun["function"] = {"name": call.name, "arguments": ""}
    written: list[Json] = [{"index": rest, "function": {"arguments": piece}} for piece in pieces(call.arguments)]
    return [_delta({"tool_calls": [part]}) for part in (begun, *written)]


def _call(call: Called) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(read: int, written: int) -> Json:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _delta(delta: Json) -> bytes:
    return _frame([{"index": 0, "delta": delta, "finish_reason": None}])


def _frame(choices: Sequence[Json], usage: Json | None = None) -> bytes:
    body: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    body["choices"] = choices
    body["usage"] = usage
    return b"data: " + dump(body) + b"\n\n"
