"""Who is a request for? `python examples/exercises/experts.py`.

Four experts and a generalist, chosen by the words of their cards; then research, writing or code, chosen by a model
that replies in JSON. A team with data and tools for the same: teams/expert_router.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import re

from chargehand import Route, ScriptedModel, Supervisor, Team, Worker

EXPERTS = {
    "legal": ["ending a lease", "a deposit the landlord keeps", "withdrawing from a contract", "dismissal"],
    "medical": ["a fever", "a burn", "bad sleep", "when to see a doctor"],
    "technical": ["a slow wireless network", "a laptop that does not start", "backups of files"],
    "financial": ["savings", "the instalment of a loan", "the tax return"],
}
MAKERS = {
    "research": "finds facts in sources and says where they stand",
    "writing": "writes letters, articles and summaries",
    "code": "writes functions in Python and mends their errors",
}
REQUESTS = {
    "My landlord keeps the deposit. What can I do?": "legal",
    "My child has a fever. Must we see a doctor?": "medical",
    "The laptop does not start after I made backups.": "technical",
    "May I pay a loan back before the last instalment?": "financial",
    "What rhymes with orange?": "generalist",
}
PROMPTS = {
    "Find facts about tents in our sources": "research",
    "Write a letter to our customers": "writing",
    "Write a Python function that reverses a list": "code",
}


def worker(name: str, does: str = "") -> Worker:
    """Somebody who signs what it says: what it says is not the point here."""
    says = ScriptedModel([f"{name} took it."], repeat=True)
    return Worker(name, does, model=says, skills=EXPERTS.get(name, ()))


def show(team: Team, wanted: dict[str, str]) -> None:
    right = 0
    for text, expected in wanted.items():
        result = team.run_sync(text)
        (task,) = result.trace().tasks
        note = result.trace().notes[0].text
        sure = re.search(r"confidence (\d\.\d\d)", note)
        right += task.worker == expected
        print(f"  {text:50} {task.worker:10} {sure[0] if sure else note}")
    print(f"  {right} of {len(wanted)} as expected")


if __name__ == "__main__":
    experts = [worker(name, f"answers {name} questions") for name in EXPERTS]
    print("by the words of their cards")
    strategy = Route(router="words", generalist="generalist")
    show(Team([*experts, worker("generalist")], supervisor=Supervisor(strategy=strategy)), REQUESTS)
    print("by a model's JSON (here the demo model speaks it)")
    show(Team([worker(*one) for one in MAKERS.items()], supervisor=Supervisor(strategy=Route(router="model"))), PROMPTS)
