"""What each event of the journal says, in a sentence. Events have no room for it; a new one must get its line here."""

SAYS = {
    "run.requested": "a run was asked for: goal, roster, policy, budget, deadline, seed, perhaps a plan; always first",
    "run.offered": "the finished results of another run may be used again here",
    "run.resumed": "a new process took over; what was under way died with the old one",
    "run.pause_set": "new tasks may start, or may not",
    "run.cancel_requested": "somebody wants it to stop",
    "run.time_ran_out": "no more tasks: what is left of the time belongs to the answer",
    "run.ended": "the ending, its reason, and the gaps; always last",
    "supervision.started": "the supervisor was asked to plan, to rewrite a task, or to write the answer; said again of "
    "what is under way, it holds money for more calls",
    "supervision.failed": "that came to nothing; a plan that cannot run comes with its findings",
    "plan.grown": "tasks joined the plan; the plan may be closed with it",
    "input.requested": "a person is asked to approve the plan or a call of a tool, or what became of an effect",
    "input.answered": "what the person said",
    "answer.written": "the answer",
    "attempt.started": "a worker has begun a task; the same number again: taken up after a crash",
    "step.started": "a call inside an attempt is about to be made; money is reserved for it",
    "step.finished": "what the call returned; from now on it is not made again",
    "attempt.succeeded": "the result of the task",
    "attempt.failed": "why it did not work, with a kind; `approval` when it waits for a person and keeps its steps",
    "task.retry_scheduled": "it is tried again, at a time, perhaps by another worker",
    "task.backoff_ended": "the wait before the retry is over",
    "task.refined": "the supervisor rewrote the instruction after a failure",
    "task.expanded": "a task with `for_each` became one task an item",
    "task.joined": "its items are settled, and enough of them are done",
    "task.reused": "a result of another run was taken over",
    "task.failed": "the task was given up",
    "task.skipped": "it will not run: a needed input did not deliver, or money or time did not suffice",
    "prompt.sent": "what a model was first told for a piece of work, and its tools; a first message that an earlier "
    "entry has is only named. It decides nothing",
    "noted": "something worth showing that decides nothing",
}
