"""What an earlier result stands for in a question for a database: its names, in place of the phrase that points to it.

How such phrases come about is the business of planning; how they are searched for, that of `searching`.
"""

import re
from collections.abc import Sequence

from chargehand.models.offline.material import gather
from chargehand.models.subject import Given

_POINTED = re.compile(
    r"\bthe\s+(?:(?!(?:the|of|for|in|by|to)\b)[\w-]+\s+){1,4}?(?:that|which|who)\s+[^()]*?\s*"
    r"\(the results? of (?P<task>t\d+)\)",
    re.IGNORECASE,
)
_MOST = 5  # names; more are no longer said in a sentence


def with_names(instruction: str, inputs: Sequence[Given]) -> str:
    """The task with names for phrases: "of Ash and Birch" for "of the trees that grew most (the result of t1)"."""
    held = {one.task: _names(one.value) for one in inputs}
    return _POINTED.sub(lambda found: " and ".join(held.get(found["task"], ())) or found[0], instruction)


def _names(value: object) -> list[str]:
    """What the rows of its only table are called, where there are few and each has a name."""
    tables = gather([value]).tables
    rows = tables[0].rows if len(tables) == 1 and not tables[0].more else ()
    found = [row[0] for row in rows if row]
    return [one for one in found if isinstance(one, str)] if 0 < len(found) <= _MOST else []
