"""A model of a test's own behind a real socket: it is shown what it was asked, and says what the test wants it to."""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Question:
    """One call of the model."""

    messages: list[dict[str, Any]]
    tools: list[str]
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    """All of the request, as it was sent."""

    @property
    def system(self) -> str:
        return "\n".join(str(one["content"]) for one in self.messages if one["role"] == "system")

    @property
    def user(self) -> str:
        return "\n".join(str(one["content"]) for one in self.messages if one["role"] == "user")

    @property
    def results(self) -> list[str]:
        """What tools returned so far."""
        return [str(one["content"]) for one in self.messages if one["role"] == "tool"]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Answer:
    """`seconds` pass before it, and `pause` between its words where they are sent one by one."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    seconds: float = 0.0
    pause: float = 0.0
    status: int = 200
    finish: str = ""
    usage: tuple[int, int] = (11, 7)
    """Tokens read and written."""
    details: tuple[int, int, int] = (0, 0, 0)
    """Of these tokens: read from the cache, written to it, and thought."""
    cost: float = 0.0
    """In dollars, where the provider says what a call cost."""
    thought: str = ""
    """What it thinks before it says anything, as DeepSeek writes it."""


Think = Callable[[Question], Answer | str]


class FakeModel:
    """`handle` is what an agent names it by; `questions` are all it was asked."""

    def __init__(self, think: Think) -> None:
        self.think: Think = think
        self.questions: list[Question] = []
        self.handle = ""
        self.url = ""


class _Served(BaseHTTPRequestHandler):
    model: FakeModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the second of two small writes waits for the other side

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Nobody reads it."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given: list[dict[str, Any]] = body.get("tools") or []
        tools = [str(one["function"]["name"]) for one in given]
        question = Question(body["messages"], tools, body)
        self.model.questions.append(question)
        said = self.model.think(question)
        answer = Answer(said) if isinstance(said, str) else said
        time.sleep(answer.seconds)
        try:
            self._send(answer, streamed=bool(body.get("stream")))
        except OSError:
            self.close_connection = True  # whoever asked went away

    def _send(self, answer: Answer, *, streamed: bool) -> None:
        if answer.status != 200:
            return self._whole({"error": {"message": "out of order"}}, answer.status)
        if streamed and not answer.calls:
            return self._word_by_word(answer)
        calls = [
            {
                "id": f"call_{at}",
                "type": "function",
                "function": {"name": one.name, "arguments": json.dumps(one.arguments)},
            }
            for at, one in enumerate(answer.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if calls:
            message["tool_calls"] = calls
        if answer.thought:
            message["reasoning_content"] = answer.thought
        choice = {"index": 0, "message": message, "finish_reason": answer.finish or ("tool_calls" if calls else "stop")}
        return self._whole(
            {
                "id": "x",
                "object": "chat.completion",
                "model": "fake",
                "choices": [choice],
                "usage": _usage(answer),
            }
        )

    def _whole(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _word_by_word(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if answer.thought:
            self._chunk({"reasoning_content": answer.thought[:8]}, None)
            self._chunk({"reasoning_content": answer.thought[8:]}, None)
        words = answer.text.split(" ")
        for at, word in enumerate(words):
            time.sleep(answer.pause)
            self._chunk({"content": word if at == len(words) - 1 else f"{word} "}, None)
        self._chunk({}, "stop")
        if answer.usage != Answer.usage:
            self._event(
                {"id": "x", "object": "chat.completion.chunk", "model": "fake", "choices": [], "usage": _usage(answer)}
            )
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._event({"id": "x", "object": "chat.completion.chunk", "model": "fake", "choices": [choice]})

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


def _usage(answer: Answer) -> dict[str, Any]:
    read, written = answer.usage
    usage: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    cached, cache_written, thought = answer.details
    usage["prompt_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": cache_written}
    usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    return {**usage, "cost": answer.cost} if answer.cost else usage


@contextmanager
def fake_model(think: Think) -> Generator[FakeModel]:
    model = FakeModel(think)

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Served,), {"model": model}))
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    model.handle = f"openai+{model.url}#fake"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
