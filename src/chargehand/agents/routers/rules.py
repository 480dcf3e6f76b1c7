"""Routing by rules: a word or phrase, and the worker it goes to. Nothing is guessed."""

import re
from collections.abc import Mapping

from chargehand.agents.routers.decision import Decision, nobody


def by_rules(text: str, rules: Mapping[str, str]) -> Decision:
    """The worker of the longest phrase that stands in the text as whole words; of equals, of the first."""
    hits = [
        (-len(" ".join(phrase.split())), found.start(), phrase)
        for phrase in rules
        if phrase.split() and (found := _pattern(phrase).search(text))
    ]
    if not hits:
        return nobody("rules", "no rule matches")
    hits.sort()
    phrase = hits[0][2]
    worker = rules[phrase]
    second = next((rules[one] for _, _, one in hits if rules[one] != worker), None)
    return Decision(
        worker=worker,
        second=second,
        confidence=1.0,
        scores=((worker, 1.0),),
        why=f"the rule for {phrase!r}",
        router="rules",
    )


def _pattern(phrase: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
