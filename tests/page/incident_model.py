"""The model of the incident team: plans, calls tools, gives up, rewrites and answers by a script."""

import json
import re
import threading

from tests.page.attacks import ATTACKS, EVERYTHING
from tests.server.model_server import Answer, Call, Question

DAY = "2026-11-12"
_LONGEST_HOLD = 60.0
"""Seconds after which a held answer is sent anyway."""
_INSTRUCTIONS: dict[str, tuple[str, list[str], str]] = {
    "t1": (
        "logs",
        [],
        "Read the checkout service logs of 2026-11-12 between 09:00 and 12:00 UTC and list the error classes with their counts and first occurrence.",
    ),
    "t2": (
        "metrics",
        [],
        "Compute the p50 and p99 latency of POST /checkout per 10 minutes on 2026-11-12 and say when p99 first passed 2,000 ms.",
    ),
    "t3": (
        "deploys",
        [],
        "List the deployments to checkout and payments on 2026-11-11 and 2026-11-12 with author, time and changed files.",
    ),
    "t4": (
        "vendor",
        [],
        "Find whether the payment provider reported an incident on 2026-11-12 and quote its status page.",
    ),
    "t5": (
        "analyst",
        ["t1", "t2", "t3", "t4?"],
        "Decide which change or dependency caused the slowdown. Weigh the error classes, the moment p99 rose and the deployments against each other.",
    ),
    "t6": (
        "metrics",
        ["t2"],
        "Count the customers whose checkout failed or took over 10 s on 2026-11-12, and list the 3 with the highest order value.",
    ),
    "t7": (
        "billing",
        ["t6"],
        "Refund the shipping fee of the 3 customers with the highest order value among those affected.",
    ),
    "t8": (
        "archivist",
        ["t5"],
        "Find the runbook for connection pool exhaustion and say which of its steps were skipped.",
    ),
    "t9": (
        "writer",
        ["t5", "t7?"],
        "Write a status note of at most 120 words for customers: what happened, since when it is fixed, what we do about it.",
    ),
    "t10": (
        "writer",
        ["t1", "t2", "t3", "t5"],
        "Write the timeline of the incident in UTC with one line per event and its source.",
    ),
}
_TITLES = {
    "t1": "Error classes in the checkout logs",
    "t2": "Latency of checkout per 10 minutes",
    "t3": "Deployments to checkout and payments",
    "t4": "Incident at the payment provider?",
    "t5": "Decide what caused the slowdown",
    "t6": "Customers that were hit",
    "t7": "Refund shipping of the three worst cases",
    "t8": "Runbook steps that were skipped",
    "t9": "Status note for customers",
    "t10": "Timeline of the incident",
}
_MOVES: dict[str, tuple[Call | None, str, float]] = {
    "checkout service logs": (
        Call("read_logs", {"service": "checkout", "day": DAY}),
        "Three error classes on 2026-11-12: `PoolTimeout` 1,914 times, first at 09:41:07; `UpstreamReset` 212 times, first at 09:43:55; `CardDeclined` 88 times, spread evenly.",
        1.4,
    ),
    "p50 and p99": (
        Call("latency", {"route": "POST /checkout", "day": DAY, "minutes": 10}),
        "p99 first passed 2,000 ms in the bucket 09:40 (2,480 ms) and peaked at 10:20 with 11,900 ms.",
        1.0,
    ),
    "deployments to checkout": (
        Call("deployments", {"services": ["checkout", "payments"], "since": "2026-11-11", "until": DAY}),
        "Two deployments. The one that matters: checkout 4.18.0 at 09:36 on 2026-11-12 by mara (pool.toml).",
        1.1,
    ),
    "payment provider": (Call("status_page", {"vendor": "payline", "day": DAY}), "The provider reported nothing.", 1.0),
    "caused the slowdown": (
        None,
        "The cause is checkout 4.18.0 of 09:36 [t3]. `PoolTimeout` begins five minutes later [t1] and p99 passes 2,000 ms in the same bucket [t2]. What the payment provider reported is not known.",
        3.4,
    ),
    "Count the customers": (
        Call("affected", {"day": DAY, "slower_than_s": 10}),
        "Three customers lead the list: C-1041 (1,280 EUR), C-2210 (970 EUR), C-0073 (905 EUR).",
        1.1,
    ),
    "Refund the shipping": (
        Call("refund", {"customers": ["C-1041", "C-2210", "C-0073"], "cents": 490}),
        "Refunded 4.90 EUR to C-1041, C-2210 and C-0073 (batch R-7731).",
        1.0,
    ),
    "runbook": (Call("deployments", {}), "", 0.9),
    "status note": (
        None,
        "On 12 November from 09:40 UTC checkout was slow or failed for some of you. A change to our database connections was the cause; it was undone at 11:02. We have refunded shipping for those hit hardest. We are sorry.",
        2.2,
    ),
    "timeline of the incident": (
        None,
        "09:36 checkout 4.18.0 deployed [t3]\n09:40 p99 over 2,000 ms [t2]\n09:41:07 first PoolTimeout [t1]\n10:20 p99 peak 11,900 ms [t2]\n11:02 roll-back to 4.17.3 [t3]",
        2.0,
    ),
}
_CALLS_BY_WORDS = {
    "which language": Call("ask_person", {"question": "In which language?", "options": ["English", "German"]}),
    "which city": Call("ask_person", {"question": "In which city?", "options": ["Bonn", "Kiel"], "free_text": True}),
    "how many letters": Call("ask_person", {"question": "How many letters?", "schema": {"type": "integer"}}),
    "in the archive": Call("archival_memory_search", {"query": "size of the pool"}),
    "into the archive": Call(
        "archival_memory_insert", {"content": "Pool of checkout 4.18.0 was too small.", "tags": ["pool"]}
    ),
    "call the echo": Call("echo", {"text": EVERYTHING}),
    "call the failure": Call("fail", {"text": EVERYTHING, EVERYTHING[:60]: EVERYTHING}),
    "call the person": Call("ask_person", {"question": EVERYTHING, "options": [*ATTACKS[:4]], "free_text": True}),
}
_ANSWER = (
    "**The slowdown was our own change.** Release checkout 4.18.0 went out at 09:36 UTC [t3]; pool timeouts began at "
    "09:41 [t1] and p99 passed 2,000 ms in the same ten minutes [t2, t5].\n\n"
    "| | |\n|---|---|\n| worst | p99 11,900 ms at 10:20 [t2] |\n| errors | `PoolTimeout` 1,914 times [t1] |\n"
    "| undone | roll-back at 11:02 [t10] |\n| refunded | C-1041, C-2210, C-0073 [t7] |\n\n"
    "The status note is ready [t9].\n\n**Not known:** whether the payment provider had an incident too: its status "
    "page could not be read [t4], and which steps of the runbook were skipped [t8]."
)
_REWRITTEN_LOGS = " If the log store resets the connection, ask once more; it is the same query."
_REWRITTEN_DEPLOYS = " The deployment log holds one service per query: ask for `checkout` and for `payments` separately and join the two lists."
_UNSERVED = "Nobody on the team can say how much revenue was lost: there is no sales forecast to compare with."


class HeldTask:
    """A task whose answers are kept back until it is released."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


class IncidentModel:
    """Answers by the script.

    `pace` is how long a second of the script takes, in seconds.
    """

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._held: list[HeldTask] = []

    def hold(self, words: str) -> HeldTask:
        """Keep back answers for tasks with these words in their instruction, so that they are under way."""
        held = HeldTask(words)
        self._held.append(held)
        return held

    def think(self, question: Question) -> Answer:
        task = question.user.split("Task:")[-1]
        for held in self._held:
            if held.words in task:
                held.released.wait(_LONGEST_HOLD)
        answer = _answer(question)
        answer.seconds *= self._pace
        answer.pause *= self._pace
        return answer


def _answer(question: Question) -> Answer:
    """Return what the model says to anything it is asked, with the seconds of the script."""
    system = question.system
    if "Break the request into tasks" in system:
        answer = Answer(_plan(question.user), seconds=3.2)
    elif "A worker failed at a task" in system:
        answer = Answer(_rewritten(question.user), seconds=1.3)
    elif "Your team has finished" in system:
        text = f"{EVERYTHING} [t1]" if "hacked" in question.user else _ANSWER
        answer = Answer(text, seconds=2.0, pause=0.01)
    else:
        answer = _work(question)
    size = sum(len(str(message["content"])) for message in question.messages) // 4
    read = size + 40 * len(question.tools)
    written = len(answer.text or str(answer.calls)) // 4 + 12
    answer.usage = (read, written)
    answer.cost = read * 1.25e-6 + written * 10e-6
    return answer


def _plan(request: str) -> str:
    tasks: dict[str, dict[str, object]] = {}
    for name, (worker, needs, instruction) in _INSTRUCTIONS.items():
        text = (
            instruction.replace("checkout service logs", "archive service logs")
            if "archive" in request
            else instruction
        )
        tasks[name] = {
            "title": _TITLES[name],
            "instruction": text,
            "worker": worker,
            "after": [need.rstrip("?") for need in needs],
            "optional": [need.rstrip("?") for need in needs if need.endswith("?")],
        }
    assumed = ["Times are UTC", "'Hit' means failed or slower than 10 s"]
    return json.dumps({"tasks": tasks, "combine": "merge", "assumptions": assumed, "unserved": [_UNSERVED]})


def _rewritten(asked: str) -> str:
    for name, more in (("t1", _REWRITTEN_LOGS), ("t3", _REWRITTEN_DEPLOYS)):
        instruction = _INSTRUCTIONS[name][2]
        if instruction[-60:] in asked:
            return (
                instruction
                if "archive service" not in asked
                else instruction.replace("checkout service", "archive service")
            ) + more
    return _INSTRUCTIONS["t8"][2] + " Ask the runbooks by the words of the title."


def _work(question: Question) -> Answer:
    task = question.user
    named = next((call for words, call in _CALLS_BY_WORDS.items() if words in task), None)
    if named is not None:
        calls = () if question.results else (named,)
        return Answer(f"It came to {question.results[-1:]}.", calls=calls, seconds=0.3)
    last = question.messages[-1]
    if last["role"] == "tool" and '"error"' in str(last["content"])[:300]:
        found = re.search(r'"error":\s*"([^"]+)"', str(last["content"]))
        reason = found[1] if found else "the tool failed"
        return Answer(calls=(Call("give_up", {"reason": reason, "final": "does not answer" in reason}),), seconds=0.5)
    for words, (call, text, seconds) in _MOVES.items():
        if words.replace("checkout service", "").strip() not in task.split("Task:")[-1]:
            continue
        if call is None or (question.results and text):
            return Answer(text, seconds=seconds)
        if words == "runbook":
            return Answer(
                calls=(Call("give_up", {"reason": "The runbook names no step by number", "final": False}),),
                seconds=seconds,
            )
        arguments = dict(call.arguments)
        if "separately" in task:
            arguments["services"] = ["checkout"]
        if "archive service" in task:
            arguments["service"] = "archive"
        return Answer(calls=(Call(call.name, arguments),), seconds=seconds)
    return Answer(f"Done as asked: {task.split('Task:')[-1].strip()}", seconds=0.5)
