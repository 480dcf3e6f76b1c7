"""What the keys of a team file mean that say how a team is led, in words, by section. Their types are in `shapes`."""

LEADING: dict[str, dict[str, str]] = {
    "": {
        "version": "the version of this format",
        "name": "what the team is called",
        "description": "a sentence for people",
        "examples": "requests that suit the team",
        "defaults": "what holds unless a worker says otherwise",
        "timeout": "the time a run has, from the request to the answer, such as `5m`",
        "budget": "the most one run may use",
        "cache": "for how long another run may use a result again instead of doing the same once more, such as `10m`; "
        "left out, never. Only for workers whose tools all only read, while they are the same",
        "hedge": "`true`, or settings: a worker's call that takes unusually long is made twice",
        "supervisor": "who plans, refines and answers",
        "workers": "by name: who does the work. One that is only a text is its description",
        "tools": "by name: what they may use. One that is only a text is `module:attribute`, or the word of a source "
        "that needs no settings",
        "factory": "workers made on the fly; left out, none are",
        "memory": "what the team remembers together: blocks and archives",
        "checks": "by name: what results must pass",
    },
    "defaults": {
        "model": "a handle such as `offline`, `openai:gpt-5-mini` or `anthropic:claude-sonnet-4-5`",
        "timeout": "how long an attempt may take",
        "retry": "how often what failed is tried again",
        "steps": "how many times a worker may call its model in one attempt",
        "temperature": "how free the model is; left out, the provider decides",
        "max_tokens": "the longest reply in tokens, thinking included; left out, it goes by the model and the budget",
    },
    "defaults.retry": {
        "attempts": "how often a task is tried by its worker",
        "fallback_attempts": "how often by each fallback",
        "backoff": "the waits in between, from the first ceiling to the highest",
        "obey_retry_after": "the longest wait a provider may ask for",
    },
    "budget": {
        "usd": "dollars; left out, no bound",
        "tokens": "tokens; left out, no bound",
        "calls": "model calls; left out, no bound",
    },
    "hedge": {
        "after": "how long is too long; left out, a tenth longer than 95 in 100 of the model's last calls",
        "most_usd": "what the second call may cost; left out, no more than the first",
        "share": "how many of all calls may be made twice",
    },
    "supervisor": {
        "instructions": "what it is told about the team",
        "model": "its model; left out, that of `defaults`",
        "planner": "the model that plans and refines; left out, its `model`",
        "judge": "the model that writes the answer; left out, its `model`",
        "combine": "how results become one answer; left out, the plan decides",
        "stream_plan": "tasks start while the plan is still being written",
        "review": "the planner sees the results and may add tasks",
        "refine": "a task that failed is put better before it is tried again",
        "timeout": "how long one plan, refined task or answer may take; left out, 120 seconds",
        "uncertain": "what becomes of an effect of which nobody knows whether it happened: the task fails, or a "
        "person is asked",
        "tainted_effects": "what becomes of an effect that a worker wants who has seen text from outside (results of "
        "tools, inputs, messages): a person is asked, or it is allowed",
        "way": "how the team is led: a name, or a table with one of them and its settings",
        "plan": "bounds for plans, and whether a person approves them",
        "prompts": "texts in the place of ours",
    },
    "supervisor.plan": {
        "max_tasks": "the most tasks of a plan",
        "max_depth": "the longest chain",
        "max_nesting": "how deep teams may be inside each other, counted from the outermost file, whose number holds",
        "approve": "whether a person is asked before anything starts",
    },
    "supervisor.prompts": {
        "plan": "told to the planner",
        "work": "told to a worker, about itself",
        "task": "told to a worker, about its task",
        "refine": "told to the planner, about a task that failed",
        "answer": "told to whoever writes the answer",
        "reduce": "told to whoever writes it in steps",
        "judge": "told to whoever decides between results",
        "verify": "told to whoever looks for what is wrong with a result",
        "review": "told to a worker who reviews the result of another",
        "make": "told to whoever makes a worker",
        "summary": "told to a worker, to shorten what it remembers",
        "route": "told to whoever chooses a worker (`way: route`)",
        "ledger": "told to whoever says what comes next (`way: loop`)",
        "speak": "told to whoever says who speaks next (`way: dynamic`)",
        "split": "told to whoever splits what is too big (`way: recursive`)",
    },
    "supervisor.way": {
        "route": "one task for the worker that fits best",
        "loop": "one task at a time, looking at what came of those before",
        "broadcast": "the request to everybody with certain tags",
        "round_robin": "everybody speaks in turn",
        "dynamic": "the supervisor says who speaks next",
        "recursive": "splitting what is too big, and the parts again",
    },
    "supervisor.way.route": {
        "router": "how the worker is found; `hybrid` is meaning first, and the model where it is close",
        "rules": "phrases and the worker each goes to, tried before all else",
        "secondary": "the second best gets it too",
        "generalist": "the worker for what nobody is meant for; left out, such a request is refused in words",
        "threshold": "how sure it must be; left out, as calibrated",
        "samples": "how often who is chosen does it, side by side; a judge picks one",
        "learn": "whether what came of earlier routes shifts later ones, within bounds",
        "embed": "what compares meanings: `auto` (a small model on this machine if it is there, `local:multilingual` "
        "where workers are not described in English; else words), `words`, `local:minilm`, `local:multilingual`, or a "
        "handle such as `openai:text-embedding-3-small`",
    },
    "supervisor.way.loop": {
        "most_turns": "the most tasks",
        "stalls": "turns without progress before it starts afresh",
        "fresh_starts": "how often it may",
    },
    "supervisor.way.broadcast": {
        "match_all": "tags a worker must have",
        "match_some": "tags of which it must have one",
    },
    "supervisor.way.round_robin": {
        "most_turns": "the most turns; left out, one for each worker",
        "token": "a word that ends the talk when a worker says it",
    },
    "supervisor.way.dynamic": {
        "most_turns": "the most turns; left out, one for each worker",
        "token": "a word that ends the talk when a worker says it",
    },
    "supervisor.way.recursive": {
        "depth": "how often a part may be split again",
        "breadth": "into how many parts",
    },
}
"""By the path of a section, and the key in it."""
