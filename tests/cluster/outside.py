"""`python -m tests.cluster.outside LOG`: a model on this machine that writes down every call it gets.

It speaks the protocol of OpenAI. The model `work-300-2` takes 300 ms a reply, asks for the tool `note` in its first two
replies and is done with the third. What a call is for it reads off the task: "errand NAME part pNUMBER";
letters before the numbers, because a number in a result must come from a tool. Each process calls under a path with its
name. The log is one JSON object a line: it is the truth about calls that the journal is compared with.
"""

import asyncio
import os
import re
import sys
import time
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

Phase: TypeAlias = Literal["begin", "end", "cut"]
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
_ERRAND = re.compile(r"errand (\S+) part p(\d+)")


class Call(Struct, frozen=True):
    """One line of the log: a call began, ended, or was cut off by the caller."""

    what: Literal["model", "tool"]
    errand: str
    part: int
    turn: int
    """The reply of the model it is for, counted from 0; of a tool, the reply that asked for it."""
    phase: Phase
    at: float
    process: str = ""
    """The name of the process that made it, as the cluster calls it."""


class CallLog:
    """Lines in a file. Each is written at once and whole, so any number of processes may write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, call: Call) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, msgspec.json.encode(call) + b"\n")
        finally:
            os.close(file)

    def read(self) -> list[Call]:
        if not self._path.exists():
            return []
        decode = msgspec.json.Decoder(Call).decode
        return [decode(line) for line in self._path.read_bytes().splitlines()]


class _Message(Struct):
    role: str
    content: object = None


class _Request(Struct):
    model: str
    messages: list[_Message]


class Model:
    def __init__(self, log: CallLog) -> None:
        self._log = log

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")))
        request = msgspec.json.decode(await reader.readexactly(length), type=_Request)
        _, milliseconds, tool_calls = request.model.split("-")
        errand, part = find_errand(request.messages)
        turn = sum(message.role == "assistant" for message in request.messages)
        process = head.split(b"/", 2)[1].decode()
        self._note(errand, part, turn, "begin", process)
        if await _is_cut_off(reader, int(milliseconds) / 1000):
            self._note(errand, part, turn, "cut", process)
            return False
        body = msgspec.json.encode(_reply(errand, part, turn, calls_tool=turn < int(tool_calls)))
        self._note(errand, part, turn, "end", process)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()
        return True

    def _note(self, errand: str, part: int, turn: int, phase: Phase, process: str) -> None:
        self._log.write(Call("model", errand, part, turn, phase, time.time(), process))


def find_errand(messages: list[_Message]) -> tuple[str, int]:
    """What the task of these messages is for."""
    found = [match for message in messages for match in _ERRAND.finditer(str(message.content))]
    return (found[0][1], int(found[0][2])) if found else ("", 0)


async def _is_cut_off(reader: StreamReader, seconds: float) -> bool:
    """Wait so long; True if the caller hangs up before."""
    try:
        async with asyncio.timeout(seconds):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def _reply(errand: str, part: int, turn: int, *, calls_tool: bool) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": f"Done: errand {errand} part p{part} turn t{turn}."}
    if calls_tool:
        arguments = msgspec.json.encode({"about": f"errand {errand} part p{part} turn t{turn}"}).decode()
        call = {"id": f"call{turn}", "type": "function", "function": {"name": "note", "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls_tool else "stop"}
    return {"id": f"{errand}-{part}-{turn}", "model": "work", "choices": [choice], "usage": _USAGE}


async def main() -> None:
    server = await asyncio.start_server(Model(CallLog(Path(sys.argv[1]))).serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
