"""Forms of text: those that can be put together from results, and how a request names the form it wants."""

import re

from chargehand.models.offline.words import stem

_FORMS = """memo letter report email mail briefing brief summary note overview paragraph recommendation list newsletter
release reply response message comparison text page table answer digest recap minutes bullet point sentence proposal
advice handout explanation description statement update post announcement reminder invitation conclusion outline word
line abstract review card notice introduction headline"""
_KNOWN = frozenset(map(stem, _FORMS.split()))
_WANTED = re.compile(
    r"\b(?:write|draft|compose|create|make|invent|produce)\s+(?:me |us |up )?(?:a|an|one|some|the|another|two|three)\s+"
    r"(?P<phrase>(?:[\w-]+\s+){0,4}?[\w-]+)(?=\s+(?:about|on|of|for|to|from|that|which|in|with|based|explaining|saying|using|and|"
    r"comparing|covering)\b|\s*[,.?!;:]|\s*$)",
    re.IGNORECASE,
)
_WRITING = re.compile(r"^(?:please )?(?:write|draft|compose|invent)\b", re.IGNORECASE)
ABLE = "it puts results together as memos, letters, summaries and lists, and writes nothing freely"


def unknown_form(text: str) -> str:
    """The form of text that is asked for where it is none that can be put together from results; else empty."""
    found = _WANTED.search(text)
    if found is None or not _WRITING.search(text[: found.end()].strip()):
        return ""
    said = found["phrase"].lower().split()
    return "" if any(stem(word) in _KNOWN for word in re.findall(r"[a-z]+", " ".join(said))) else said[-1]
