"""A model on 127.0.0.1 that writes word by word, as OpenAI's API streams it, and may refuse calls at first."""

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WritingModel:
    """Replies in turn, the last one again and again. `refuse` calls are answered with 429 and Retry-After first."""

    def __init__(self, *replies: str, pause: float = 0.02, refuse: int = 0, retry_after: float = 1) -> None:
        self.replies: Sequence[str] = replies
        self.pause = pause
        self.refuse = refuse
        self.retry_after = retry_after
        self.calls = 0
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.answer(self, stream=bool(body.get("stream")))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, call: BaseHTTPRequestHandler, *, stream: bool) -> None:
        with self._lock:
            number = self.calls
            self.calls += 1
        if number < self.refuse:
            self._send(call, 429, json.dumps({"error": {"message": "slow down"}}), "application/json")
            return
        text = self.replies[min(number - self.refuse, len(self.replies) - 1)]
        usage = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
        if not stream:
            message = {"role": "assistant", "content": text}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
            self._send(call, 200, json.dumps(whole), "application/json")
            return
        call.send_response(200)
        call.send_header("Content-Type", "text/event-stream")
        call.end_headers()
        try:
            for word in text.split(" "):
                delta = {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]}
                call.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
                call.wfile.flush()
                time.sleep(self.pause)
            nothing: dict[str, str] = {}
            last = {"choices": [{"index": 0, "delta": nothing, "finish_reason": "stop"}], "usage": usage}
            call.wfile.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
        except OSError:  # whoever listened went away
            return

    def _send(self, call: BaseHTTPRequestHandler, status: int, body: str, kind: str) -> None:
        call.send_response(status)
        call.send_header("Content-Type", kind)
        call.send_header("Content-Length", str(len(body)))
        if status == 429:
            call.send_header("Retry-After", str(self.retry_after))
        call.end_headers()
        call.wfile.write(body.encode())
