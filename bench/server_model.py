"""`python -m bench.server_model`: a model on this machine that says what its name says, after as long as it says.

`#say-0` replies at once, `#say-1000` after a second. `#insert-0` first puts a line into the block `log` (what is asked
for behind `write:`, or a number), `#ask-0` first asks everybody who has the tag `team`. `#faulty-20` fails every fifth
time, by the dice, in one of the usual ways.
"""

import asyncio
import random
import re
import sys
from asyncio import StreamReader, StreamWriter

import msgspec

_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
_FAULTS = (b"500 Internal Server Error", b"503 Service Unavailable", b"429 Too Many Requests", b"")


class _Call(msgspec.Struct):
    role: str
    content: object = None


class _Asked(msgspec.Struct):
    model: str
    messages: list[_Call]
    stream: bool = False


_ASKED = msgspec.json.Decoder(_Asked)


class Model:
    def __init__(self, seed: int = 0) -> None:
        self._dice = random.Random(seed)
        self._number = 0

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while await self._turn(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _turn(self, reader: StreamReader, writer: StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        length = next((int(one[15:]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-length:")), 0)
        asked = _ASKED.decode(await reader.readexactly(length))
        kind, _, number = asked.model.rpartition("-")
        if kind == "faulty":
            if self._dice.random() * 100 < int(number):
                return await self._fail(writer)
        elif int(number):
            await asyncio.sleep(int(number) / 1000)
        body = msgspec.json.encode(self._reply(kind, asked))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()
        return True

    async def _fail(self, writer: StreamWriter) -> bool:
        status = self._dice.choice(_FAULTS)
        if not status:
            return False  # hang up
        writer.write(b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nretry-after: 0\r\n" % status)
        writer.write(b'content-length: 29\r\n\r\n{"error":{"message":"faulty"}}')
        await writer.drain()
        return True

    def _reply(self, kind: str, asked: _Asked) -> dict[str, object]:
        self._number += 1
        said: dict[str, object] = {"role": "assistant", "content": f"Found: {self._number} is the figure."}
        finish = "stop"
        called = any(one.role == "tool" for one in asked.messages)
        if kind in ("insert", "ask") and not called:
            finish = "tool_calls"
            said = {"role": "assistant", "content": None, "tool_calls": [self._call(kind, asked)]}
        choice = {"index": 0, "message": said, "finish_reason": finish}
        return {"id": f"c{self._number}", "model": asked.model, "choices": [choice], "usage": _USAGE}

    def _call(self, kind: str, asked: _Asked) -> dict[str, object]:
        wanted = re.findall(r"write:(\w+)", str(asked.messages[-1].content))
        line = wanted[-1] if wanted else f"line {self._number}"
        name, given = {
            "insert": ("memory_insert", {"label": "log", "new_string": line}),
            "ask": (
                "send_message_to_agents_matching_tags",
                {"message": "What is the figure?", "match_all": ["team"], "match_some": []},
            ),
        }[kind]
        function = {"name": name, "arguments": msgspec.json.encode(given).decode()}
        return {"id": f"call{self._number}", "type": "function", "function": function}


async def main() -> None:
    server = await asyncio.start_server(Model().serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
