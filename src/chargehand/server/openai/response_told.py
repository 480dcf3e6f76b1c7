"""A response as clients of OpenAI know it, read off a run: under way, over, or waiting for a person."""

from msgspec import Struct

from chargehand.server.api.reading import Seen
from chargehand.server.openai.order import Order
from chargehand.server.openai.outcome import Spent, Told, told
from chargehand.server.openai.problem import AboutRun

PREFIX = "resp_"


class Head(Struct, frozen=True):
    """What a response has from its beginning."""

    run: str
    created: float
    order: Order

    @property
    def id(self) -> str:
        return f"{PREFIX}{self.run}"

    @property
    def message(self) -> str:
        return f"msg_{self.run}"

    @property
    def reasoning(self) -> str:
        return f"rs_{self.run}"


def response(head: Head, status: str, output: list[dict[str, object]], **more: object) -> dict[str, object]:
    order = head.order
    return {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status,
        "model": order.model,
        "output": output,
        "background": order.background,
        "error": None,
        "incomplete_details": None,
        "instructions": order.instructions or None,
        "metadata": order.metadata or {},
        "parallel_tool_calls": False,
        "previous_response_id": order.previous or None,
        "store": order.stored,
        "tool_choice": "none",
        "tools": [],
        "text": {"format": {"type": "text"}},
        "usage": None,
        **more,
    }


def completed(head: Head, came: Told, output: list[dict[str, object]]) -> dict[str, object]:
    about = {"run": came.run, "ending": came.ending}
    return response(head, "completed", output, usage=_usage(came.spent), chargehand=about)


def failed(head: Head, problem: AboutRun) -> dict[str, object]:
    if problem.code == "run_cancelled":
        return response(head, "cancelled", [])
    return response(head, "failed", [], error={"code": "server_error", "message": problem.detail})


def as_it_stands(head: Head, one: Seen) -> dict[str, object]:
    """The response of a run, whatever has become of it so far."""
    if one.state.ended is None and one.state.input is None:
        return response(head, "in_progress", [])
    try:
        came = told(one)
    except AboutRun as problem:
        return failed(head, problem)
    return completed(head, came, [message(head, came.text)])


def message(head: Head, text: str | None) -> dict[str, object]:
    """The answer as an item; with no text, one that is being written."""
    parts = [] if text is None else [part(text)]
    state = "in_progress" if text is None else "completed"
    return {"id": head.message, "type": "message", "role": "assistant", "status": state, "content": parts}


def reasoning(head: Head, text: str | None) -> dict[str, object]:
    summary = [] if text is None else [{"type": "summary_text", "text": text}]
    return {"id": head.reasoning, "type": "reasoning", "summary": summary}


def part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(spent: Spent) -> dict[str, object]:
    return {
        "input_tokens": spent.input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": spent.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent.total,
    }
