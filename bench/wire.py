"""What a real HTTP call of a model costs: adapter, guard, limiter and journal beside bare aiohttp, over loopback."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

from bench.measure import MICRO, Lap, Laps, Settings, in_turn, timed
from bench.table import Row, Target
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Runner
from chargehand.team import Team

_TEXT = "It is done. " * 20
_BODY = (
    '{"id":"c1","object":"chat.completion","created":1,"model":"fake","choices":[{"index":0,"message":{"role":'
    f'"assistant","content":"{_TEXT}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":100,"completion_tokens":60,'
    '"total_tokens":160}}'
).encode()
_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY


def calls(settings: Settings) -> list[Row]:
    """W7: 32 at once. The server is another process, so only the client is measured."""
    count = 500 if settings.quick else 2000
    ours, floor = asyncio.run(_measured(count, settings.repeat))
    us = MICRO / count
    what = "a real HTTP model call in a run, 32 at once"
    return [
        Row(
            what=what,
            unit="CPU us a call",
            ours=ours.cpu(us),
            floor=floor.cpu(us),
            target=Target("<=", 250),
            also="floor: bare aiohttp",
        )
    ]


async def _measured(count: int, repeat: int) -> list[Laps]:
    async with _server() as port:
        return await in_turn(repeat, lambda: _ours(port, count), lambda: _bare(port, count))


async def _ours(port: int, count: int) -> Lap:
    tasks = tuple(Task(TaskId(f"t{n}"), f"Carry out part {n} of it.", "worker") for n in range(count))
    policy = Policy(limits=Limits(width=32, max_tasks=10**6, max_depth=10**6, fan_out=10**6))
    handle = f"openai+http://127.0.0.1:{port}/v1#fake"
    team = Team(
        [Worker("worker", "does parts")], supervisor=Supervisor(model=handle, plan=Plan(tasks, "none")), policy=policy
    )
    async with team.executor() as executor:
        request = team.request("the goal", time.time())
        with timed() as lap:
            found = await Runner(MemoryJournal(), executor).start("run", request)
    assert (found.ending, len(found.results)) == ("complete", count), found.gaps[:3]
    assert found.spent.tokens == 160 * count, "every call really happened"
    return lap


async def _bare(port: int, count: int) -> Lap:
    import aiohttp

    left = iter(range(count))
    body = {"model": "fake", "messages": [{"role": "user", "content": "Carry out part 1 of it."}]}

    async def worker(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as response:
                assert (await response.json())["choices"]

    async with aiohttp.ClientSession() as session:
        with timed() as lap:
            async with asyncio.TaskGroup() as jobs:
                for _ in range(32):
                    jobs.create_task(worker(session))
    return lap


@asynccontextmanager
async def _server() -> AsyncGenerator[int]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield await asyncio.to_thread(mine.recv)
    finally:
        process.kill()
        process.join(5)


def _serve(line: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                writer.write(_REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        line.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())
