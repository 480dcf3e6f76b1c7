"""A run as one JSON document, for programs. The whole of it, prompt by prompt, is what `runs export` gives."""

from collections.abc import Sequence
from pathlib import Path

from chargehand.core.state import RunState
from chargehand.runtime.traced import TaskTrace, Trace
from chargehand.terms.plan import Task


def document(trace: Trace, state: RunState, *, team: str, notice: str, saved: Sequence[Path] = ()) -> dict[str, object]:
    """Run, ending, answer, plan with goal and tasks, results, gaps, usage, cost, times."""
    planned = {one.id: one for one in trace.tasks}
    tasks = [one.task for one in state.tasks.values() if one.mother is None]
    results = {one.id: one.result for one in trace.tasks if one.result is not None}
    whole = trace.combine == "none" and state.ended is not None  # then the results are the answer
    return {
        "run": trace.run,
        "team": team,
        "notice": notice,
        "ending": trace.ending or ("needs_input" if state.input is not None else "unfinished"),
        "reason": trace.reason,
        "answer": results if whole and trace.answer is None else trace.answer,
        "plan": {"goal": trace.goal, "combine": trace.combine, "tasks": [_task(one, planned[one.id]) for one in tasks]},
        "results": results,
        "gaps": trace.gaps,
        "usage": {"tokens": trace.used.tokens, "calls": trace.used.calls},
        "cost_usd": trace.used.micros / 1_000_000,
        "seconds": round(trace.seconds, 3),
        "seconds_one_at_a_time": round(trace.serial, 3),
        "critical_path": trace.critical_path,
        "saved": [str(path) for path in saved],
    }


def _task(task: Task, found: TaskTrace) -> dict[str, object]:
    took = None if found.began is None or found.ended is None else round(found.ended - found.began, 3)
    return {
        "id": task.id,
        "instruction": task.instruction,
        "worker": found.worker,
        "after": found.after,
        "status": found.status,
        "attempts": len(found.attempts),
        "seconds": took,
        "tokens": found.used.tokens,
        "cost_usd": found.used.micros / 1_000_000,
    }
