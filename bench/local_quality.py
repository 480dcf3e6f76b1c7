"""`python -m bench.local_quality --model qwen-coder-0.5b`: what a small local model can be trusted with.

Four questions on a handful of cases each: does it take the right tool, the right worker, does it write plans that
hold, and does it get to the right answer with real tools. Small numbers: they tell models apart, no more.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from chargehand.models.local import LocalModel
from chargehand.models.local.pull import pull
from chargehand.models.messages import Message, Request, Settings, ToolSpec
from chargehand.models.model import Model, ModelFailed

MOST_STEPS = 4
STRAIGHT = Settings(temperature=0.0, max_tokens=400)
STOCK = {"bolts": 1250, "nuts": 840, "washers": 3100}
OPENING = {"monday": "9 to 17", "saturday": "10 to 14", "sunday": "closed"}


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def tool(name: str, does: str, **arguments: str) -> ToolSpec:
    fields = {key: {"type": kind} for key, kind in arguments.items()}
    return ToolSpec(name, does, raw({"type": "object", "properties": fields, "required": list(fields)}))


TOOLS = (
    tool("calculate", "Work out an arithmetic expression.", expression="string"),
    tool("stock_of", "Say how many pieces of an article are in stock.", article="string"),
    tool("opening_hours", "Say when the shop is open on a day of the week.", day="string"),
    tool("search_handbook", "Search the staff handbook for rules about something.", query="string"),
    tool("send_mail", "Send a mail to somebody.", to="string", text="string"),
)
# (request, the tool it needs, a word its arguments must hold)
CHOICES = (
    ("What is 312 divided by 8?", "calculate", "312"),
    ("How many washers do we have?", "stock_of", "washer"),
    ("When can I come in on Saturday?", "opening_hours", "aturday"),
    ("What are our rules about parental leave?", "search_handbook", "parental"),
    ("Tell anna@example.com that the delivery is late.", "send_mail", "anna@example.com"),
    ("Add up 19, 23 and 58.", "calculate", "58"),
    ("Thank you, that is all!", "final_answer", ""),
)
WORKERS = {
    "research": "finds facts in documents and on the web",
    "data": "queries the sales database and computes figures",
    "writing": "writes, shortens and translates texts",
    "coding": "writes and fixes programs",
}
SHOTS = (
    ("Find studies about sleep.", "research"),
    ("What was the average order last year?", "data"),
    ("Make this paragraph friendlier.", "writing"),
    ("The script crashes on empty files.", "coding"),
    ("What do reviewers say about this phone?", "research"),
    ("Count the orders per month.", "data"),
    ("Draft a letter to the landlord.", "writing"),
    ("Add a test for the parser.", "coding"),
)
ROUTES = (
    ("Which regions sold the most in March?", "data"),
    ("Translate the announcement into Spanish.", "writing"),
    ("Write a function that reverses a list.", "coding"),
    ("Look up what the law says about refunds.", "research"),
    ("Why does the build fail with a type error?", "coding"),
    ("Sum the revenue per customer.", "data"),
)
# (request, workers that a sensible plan cannot do without)
GOALS = (
    ("Query last year's sales per region and write a one-page summary.", {"data", "writing"}),
    ("Find out what competitors charge, then write a short pitch.", {"research", "writing"}),
    ("Fix the import script, then count the rows it loads into the database.", {"coding", "data"}),
    ("Look up the new tax rules and compute what we owe from the sales database.", {"research", "data"}),
)
ENDS = (
    ("What is 17 * 23?", "391"),
    ("How many nuts are in stock?", "840"),
    ("When is the shop open on Sunday?", "closed"),
    ("How many bolts and nuts together are in stock?", "2090"),
    ("What is (250 + 50) / 4?", "75"),
)


Outcomes: TypeAlias = dict[str, list[bool]]
Trial: TypeAlias = Callable[[Model], Coroutine[Any, Any, Outcomes]]


class Score(Struct, frozen=True):
    what: str
    right: int
    cases: int
    seconds: float


async def right_tool(model: Model) -> Outcomes:
    outcomes: list[bool] = []
    for text, wanted, word in CHOICES:
        reply = await model.reply(Request((Message("user", text),), tools=TOOLS, settings=STRAIGHT))
        chosen = reply.calls[0].name if reply.calls else "final_answer"
        arguments = reply.calls[0].arguments if reply.calls else ""
        outcomes.append(chosen == wanted and word in arguments)
        note(outcomes[-1], text, f"{chosen} {arguments or reply.text}")
    return {"right tool": outcomes}


def crew() -> str:
    return "Workers:\n" + "\n".join(f"- {name}: {does}" for name, does in WORKERS.items())


async def routing(model: Model) -> Outcomes:
    schema = raw({"type": "object", "properties": {"worker": {"enum": list(WORKERS)}}, "required": ["worker"]})
    shots = [turn for text, worker in SHOTS for turn in shot(text, {"worker": worker})]
    outcomes: list[bool] = []
    for text, wanted in ROUTES:
        messages = (Message("system", f"Choose the worker for a request. {crew()}"), *shots, Message("user", text))
        reply = await model.reply(Request(messages, schema=schema, settings=STRAIGHT))
        outcomes.append(msgspec.json.decode(reply.text).get("worker") == wanted)
        note(outcomes[-1], text, reply.text)
    return {"right worker": outcomes}


def shot(text: str, answer: object) -> tuple[Message, Message]:
    return Message("user", text), Message("assistant", msgspec.json.encode(answer).decode())


def plan_schema(most: int = 4) -> Raw:
    """A task may only come after earlier ones, so that no plan can go in a circle."""
    tasks: dict[str, object] = {}
    for number in range(1, most + 1):
        earlier = [f"t{before}" for before in range(1, number)]
        fields: dict[str, object] = {"do": {"type": "string", "maxLength": 120}, "worker": {"enum": list(WORKERS)}}
        if earlier:
            fields["after"] = {"type": "array", "items": {"enum": earlier}, "maxItems": number - 1}
        tasks[f"t{number}"] = {"type": "object", "properties": fields, "required": list(fields)}
    return raw({"type": "object", "properties": tasks, "required": ["t1", "t2"]})


async def plans(model: Model) -> Outcomes:
    example = {
        "t1": {"do": "Look up the opening hours of the archive", "worker": "research"},
        "t2": {"do": "Write an invitation with the hours", "worker": "writing", "after": ["t1"]},
    }
    told = Message("system", f"Split the request into as few tasks as will do, each for one worker. {crew()}")
    valid: list[bool] = []
    fitting: list[bool] = []
    for text, needed in GOALS:
        messages = (told, *shot("Find the archive's opening hours and invite people.", example), Message("user", text))
        reply = await model.reply(Request(messages, schema=plan_schema(), settings=STRAIGHT))
        plan = msgspec.json.decode(reply.text, type=dict[str, Any]) if reply.finish == "stop" else {}
        named = {before for task in plan.values() for before in task.get("after", ())}
        valid.append(bool(plan) and named <= set(plan))
        fitting.append(needed <= {task["worker"] for task in plan.values()})
        note(valid[-1] and fitting[-1], text, reply.text)
    return {"valid plan": valid, "fitting plan": fitting}


def run_tool(name: str, arguments: str) -> str:
    given = msgspec.json.decode(arguments, type=dict[str, Any])
    if name == "calculate":
        return worked_out(str(given["expression"]))
    if name == "stock_of":
        return str(STOCK.get(str(given["article"]).lower(), "no such article"))
    if name == "opening_hours":
        return OPENING.get(str(given["day"]).lower(), "9 to 17")
    return "nothing found"


def worked_out(expression: str) -> str:
    """Sums of the kind that are asked here: two numbers at a time, brackets first."""
    import re

    text = expression.replace(" ", "")
    number = r"(-?\d+(?:\.\d+)?)"
    for _ in range(20):
        text = re.sub(rf"\({number}\)", r"\1", text)
        found = re.search(rf"{number}([*/]){number}", text) or re.search(rf"{number}([+-]){number}", text)
        inner = re.search(r"\(([^()]+)\)", text)
        if inner and not re.fullmatch(number, inner[1]):
            text = text.replace(inner[0], worked_out(inner[1]))
        elif found:
            one, sign, other = float(found[1]), found[2], float(found[3])
            if sign == "/" and other == 0:
                return "division by zero"
            value = {"*": one * other, "+": one + other, "-": one - other, "/": one / (other or 1)}[sign]
            text = text.replace(found[0], f"{value:g}", 1)
        else:
            return text
    return text


async def answers(model: Model) -> Outcomes:
    outcomes: list[bool] = []
    for text, wanted in ENDS:
        messages = [Message("user", text)]
        said = "(no answer)"
        for _ in range(MOST_STEPS):
            reply = await model.reply(Request(tuple(messages), tools=TOOLS[:3], settings=STRAIGHT))
            if not reply.calls:
                said = reply.text
                break
            results = [Message("tool", run_tool(call.name, call.arguments), call=call.id) for call in reply.calls]
            messages += [reply.message(), *results]
        outcomes.append(wanted in said.replace(",", "").lower())
        note(outcomes[-1], text, said)
    return {"right answer": outcomes}


def note(right: bool, asked: str, came: str) -> None:
    print(f"  {'+' if right else '-'} {asked}  ->  {' '.join(came.split())[:150]}")


TRIALS: dict[str, Trial] = {"tools": right_tool, "routing": routing, "plans": plans, "answers": answers}


async def measured(name: str, folder: Path, threads: int | None) -> list[Score]:
    model = LocalModel(name, folder=folder, threads=threads)
    scores: list[Score] = []
    try:
        for what, trial in TRIALS.items():
            print(f"{name}: {what}")
            began = time.perf_counter()
            try:
                found = await trial(model)
            except (ModelFailed, msgspec.DecodeError) as error:
                print(f"  broke off: {error}")
                found = {what: [False]}
            seconds = time.perf_counter() - began
            scores += [Score(title, sum(right), len(right), seconds) for title, right in found.items()]
    finally:
        await model.close()
    return scores


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.local_quality", description=__doc__)
    parser.add_argument("--model", action="append", help="a model of the catalog; may be given again")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("CHARGEHAND_MODELS") or ".venv/models"))
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(arguments)
    table: dict[str, list[Score]] = {}
    for name in options.model or ["qwen-coder-0.5b"]:
        pull(name, options.folder, lambda what, done, total: None)
        table[name] = asyncio.run(measured(name, options.folder, options.threads))
    print()
    for name, scores in table.items():
        for score in scores:
            each = score.seconds / score.cases
            print(f"{name:<18} {score.what:<14} {score.right:>2} of {score.cases:<3} {each:6.1f} s each")


if __name__ == "__main__":
    main()
