"""What the fields of the journal's events mean, by event. Their types and defaults are in the code.

Shapes that events hold have their words in `shape_fields`; what an event says as a whole is in `event_words`.
"""

_TASK = "the task's id"
_ATTEMPT = "which attempt of the task: 1, 2, 3 …"
_USED = "what it cost; `null`: as much as was reserved"
_RESERVE = "what is set aside for it; `null`: nothing"
_ITEMS = "how long the list is; -1: the result is no list"
_ROUND = "which round of planning, counted from 1"
_WARNINGS = "what the check of the plan advises against, though it may run"

EVENT_FIELDS: dict[str, dict[str, str]] = {
    "run.requested": {
        "goal": "the request, as it was put",
        "roster": "who may be given tasks",
        "policy": "the numbers the run is decided by",
        "budget": "the most it may use",
        "deadline": "when it must have ended, in seconds since 1970",
        "seed": "all the randomness there is: waits before retries come from it",
        "plan": "a plan that was given; `null`: the supervisor is asked for one",
        "parent": "who waits for it, if it is a run inside another",
        "warnings": "what the check of a plan that was given advises against, though it may run",
        "team": "the name of the team",
        "turns": "of a run in the background: earlier runs by name, each with `true` (it covers that one) or `false` "
        "(left to the next)",
    },
    "run.offered": {
        "run": "the run the results are from",
        "offers": "its finished results, each under a key",
        "unserved": "what its plan left out of the same request, in words",
    },
    "run.resumed": {"epoch": "the number of the new lease; what an older one writes is refused"},
    "run.released": {},
    "run.pause_set": {
        "paused": "`true`: no new task starts; `false`: they start again",
        "reason": "why, in the words of who asked",
    },
    "run.cancel_requested": {"reason": "why, in the words of who asked"},
    "run.time_ran_out": {},
    "run.ended": {
        "ending": "how it ended",
        "reason": "why it ended so",
        "gaps": "what the answer has to do without",
    },
    "supervision.started": {
        "duty": "what the supervisor is asked for",
        "number": "which round of planning, which try at the answer, or after how many failures of the task",
        "until": "when it must be done, in seconds since 1970",
        "task": "the task to put better; empty for the other duties",
        "why": "of a plan: the first one, more tasks, the last was rejected, the last try failed, or something is "
        "missing (`replan`)",
        "reserve": _RESERVE,
    },
    "supervision.failed": {
        "duty": "what the supervisor was asked for",
        "number": "as when it started",
        "failure": "why it came to nothing",
        "task": "the task that was to be put better",
        "findings": "what is wrong with the plan that was proposed; the next try is told",
        "used": _USED,
    },
    "plan.grown": {
        "number": _ROUND,
        "tasks": "the tasks that joined, checked",
        "combine": "how results become one answer; `null`: as it was",
        "done": "this round of planning is over; `false`: more comes while tasks already run",
        "closed": "the plan is complete; `false`: the planner is asked again",
        "wake": "when it is asked again: after `any` task has settled, or after `all`",
        "used": _USED,
        "warnings": _WARNINGS,
        "unserved": "parts of the request that nobody on the team can do anything about, in words",
    },
    "input.requested": {
        "number": "which question of the run: 1, 2, 3 …",
        "what": "a plan to approve, a call of a tool to approve, or an effect whose outcome nobody knows",
        "task": "whose call or effect it is; empty for the plan of this run",
        "text": "the call itself, with its arguments, in one line",
        "question": "the same in fields: which call, who wants it, and why it is asked",
    },
    "input.answered": {
        "number": "the question that is answered",
        "verdict": "plans: approve, edit, reject; calls: approve, reject; effects: done, again, fail",
        "feedback": "why it is rejected; the planner or the worker reads it",
        "plan": "the plan in its place, with `edit`",
        "result": "what the effect came to, with `done`",
        "also": "verdicts on other calls of the same reply, those that the question names under `also`",
    },
    "answer.written": {
        "number": "which try at the answer",
        "answer": "text; or whatever a function of yours returned",
        "used": _USED,
        "tracing": "what its figures rest on, if it was worded anew or chosen",
        "cut": "why it is not whole, if its writer was cut off; empty if it is",
    },
    "attempt.started": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "worker": "who does it",
        "until": "when it must be done, in seconds since 1970",
        "reserve": _RESERVE,
        "probes": "breakers that this attempt tries out, such as `worker:bob`: they close if it works",
    },
    "step.started": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "step": "which step of the attempt: 1, 2, 3 …",
        "name": "`model`, the name of a tool, or another thing done once, such as `make worker`",
        "effect": "what the call does to the world, which decides what happens after a crash",
        "request": "a hash of what is asked: after a crash the same request is read back, another is made anew",
        "reserve": _RESERVE,
    },
    "step.finished": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "step": "which step of the attempt",
        "result": "what came back: a model's reply, a tool's result, or its error",
        "good": "`false`: the call failed, and may be made again in a later attempt even if it acts",
        "used": _USED,
    },
    "step.failed": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "step": "which step of the attempt",
        "used": _USED,
    },
    "attempt.succeeded": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "result": "what the task came to",
        "items": _ITEMS,
        "used": _USED,
        "tracing": "what its figures rest on, if it has any",
        "exit_tool": "the tool after which a rule `exit_loop` ended the attempt",
    },
    "attempt.failed": {
        "task": _TASK,
        "attempt": _ATTEMPT,
        "failure": "why",
        "used": _USED,
        "refused": "a hash of the result that a check did not accept",
    },
    "task.retry_scheduled": {
        "task": _TASK,
        "after": "not before this, in seconds since 1970",
        "worker": "who takes over; empty: the same as before",
    },
    "task.backoff_ended": {"task": _TASK},
    "task.refined": {
        "task": _TASK,
        "number": "after how many failures",
        "instruction": "what is asked from now on",
        "used": _USED,
    },
    "task.expanded": {
        "task": _TASK,
        "count": "how many items, and so how many tasks: `ID[0]`, `ID[1]` …",
    },
    "task.joined": {"task": _TASK},
    "task.reused": {
        "task": _TASK,
        "key": "a hash of who may do it, what is asked and what goes in: the same there and here",
        "run": "the run it is from",
        "source": "the task's id there",
        "result": "what that task came to",
        "items": _ITEMS,
    },
    "task.failed": {
        "task": _TASK,
        "failure": "why the last attempt failed",
    },
    "task.skipped": {
        "task": _TASK,
        "reason": "what was missing: an input, money, time, or the leave of a person",
        "because": "the task that did not deliver, if it was an input",
    },
    "prompt.sent": {
        "duty": "for which piece of work",
        "number": "which attempt, round of planning or try",
        "model": "the model's handle",
        "messages": "what it was told, each with its role; `(as in entry 12)` stands for a text that entry has",
        "task": "the task's id; empty for a plan or an answer",
        "tools": "names of the tools it may call",
    },
    "noted": {
        "text": "what there is to say",
        "task": "about which task; empty: about the run",
        "attempt": "about which attempt; 0: none",
        "failure": "what was met where somebody else stood in: another model, or who plans without one",
        "code": "`diverged`: a step did not go on as recorded; `assumed`: by the planner; `accepted`: by a check",
    },
}
"""By the type of the event, and the field in it."""
