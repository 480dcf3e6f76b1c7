"""Wrong results made from right ones, by six kinds of mistakes. The same seed makes the same. Pure."""

import re
from random import Random

from chargehand.text.numbers import find_quantities

KINDS = ("number", "missing", "empty", "half", "address", "other")
_SENTENCE = re.compile(r"(?<=[.!?;,])\s+|\n+")
_OTHER = "The meeting was moved to the large hall because the small one is being painted."


def seeded(right: str, random: Random) -> dict[str, str]:
    """Results with one mistake each, by its kind; kinds that this text has no room for are left out."""
    made = {
        "number": _number(right, random),
        "missing": _missing(right, random),
        "empty": "",
        "half": right[: len(right) // 2].rstrip() if len(right.split()) > 3 else right,
        "address": f"{right} See https://records.example/{random.randrange(1000, 9999)}.",
        "other": _OTHER,
    }
    return {kind: text for kind, text in made.items() if text != right}


def _number(right: str, random: Random) -> str:
    """Another number in the place of one of them."""
    found = list(find_quantities(right))
    if not found:
        return right
    one = random.choice(found)
    digits = [at for at in range(one.start, one.end) if right[at].isdigit()]
    at = digits[0] if len(digits) == 1 else random.choice(digits[:2])
    return f"{right[:at]}{(int(right[at]) + random.randrange(1, 9)) % 10}{right[at + 1 :]}"


def _missing(right: str, random: Random) -> str:
    """One part less, not the first: what is left still reads well."""
    parts = [part for part in _SENTENCE.split(right) if part]
    if len(parts) < 2:
        return right
    del parts[random.randrange(1, len(parts))]
    return " ".join(parts)
