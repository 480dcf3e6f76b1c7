"""A stand-in for a model provider: `python model_server.py --port 8790`.

It speaks OpenAI's chat completions protocol on 127.0.0.1, so the programs in this folder run without a key. It calls
the offered tool that fits the request best, repeats what tools returned, or else repeats the lines that hold a number.
"""

import argparse
import asyncio
import json
import re
from typing import Any

from aiohttp import web

PRODUCTS = ("anvils", "bellows", "tongs")


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
    return re.sub(r"</?data[^>]*>", "", text).strip().strip('"')


def choose_tool(tools: list[dict[str, Any]], request: str) -> dict[str, Any] | None:
    """The tool that shares most words with the request, by its name and description; None where none shares any."""
    asked = words(request)
    scored = [(len(words(f"{tool['name']} {tool.get('description', '')}") & asked), tool) for tool in tools]
    score, tool = max(scored, key=lambda pair: pair[0], default=(0, None))
    return tool if score else None


def arguments_for(tool: dict[str, Any], request: str) -> dict[str, str]:
    product = next((name for name in PRODUCTS if name in request.lower()), PRODUCTS[0])
    return dict.fromkeys(tool.get("parameters", {}).get("properties", {}), product)


def reply_to(body: dict[str, Any]) -> dict[str, Any]:
    messages = body["messages"]
    last_user = max(number for number, message in enumerate(messages) if message["role"] == "user")
    request = text_of(messages[last_user])
    returned = [text_of(message) for message in messages[last_user + 1 :] if message["role"] == "tool"]
    tools = [tool["function"] for tool in body.get("tools") or [] if tool["function"]["name"] != "give_up"]
    handed_over = bool(returned) and any(tool["name"] in ("stock", "price") for tool in tools)
    tool = choose_tool(tools, request) if not returned or (handed_over and "transfer" in str(messages[-2])) else None
    if tool is not None:
        call = {"name": tool["name"], "arguments": json.dumps(arguments_for(tool, request))}
        calls = [{"id": f"call_{len(messages)}", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if returned:
        return {"role": "assistant", "content": f"The tool says: {returned[-1]}"}
    lines = [line.strip() for line in request.splitlines() if not line.startswith("(Today is")]
    figures = [line for line in lines if re.search(r"\d", line)]
    return {"role": "assistant", "content": "In short: " + "; ".join(figures or [request[:80]])}


async def complete(request: web.Request) -> web.Response:
    body = await request.json()
    message = reply_to(body)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": body["model"]}
    if not body.get("stream"):
        return web.json_response({**head, "choices": [choice], "usage": usage})
    delta = dict(message)
    if message.get("tool_calls"):
        delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(message["tool_calls"])]
    chunks = [
        {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return web.Response(text=lines, content_type="text/event-stream")


async def serve(port: int) -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8790, help="0: any that is free")
    asyncio.run(serve(parser.parse_args().port))
