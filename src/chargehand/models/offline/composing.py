"""Text out of the results of others: their facts in order, in the form that was asked for. It adds no facts."""

import re
from collections.abc import Sequence
from decimal import Decimal

from chargehand.models.offline.material import gather, series, words_of
from chargehand.models.offline.phrasing import capital, chart_text, figure_text, passages_text, table_text
from chargehand.models.offline.task_text import says, title
from chargehand.models.subject import Given
from chargehand.terms.failure import Gap

_LONGEST = 20_000
_BULLETS = re.compile(r"\bbullets?\b|\bbullet points?\b|\bas a list\b|\bkey points\b", re.IGNORECASE)
_PARAGRAPH = re.compile(r"\b(?:one|single|a|short) paragraph\b|\bin prose\b", re.IGNORECASE)
_SENTENCES = re.compile(r"\b(one|two|three|four|five|\d+)\s+sentences?\b", re.IGNORECASE)
_KINDS = ("memo", "letter", "report", "email", "briefing", "summary", "note")
_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_FRAME = re.compile(
    r"^(?:(?:short|brief|one-page)\s+)?(?:memo|letter|report|note|briefing|summary)\s+(?:about|on|of|for)\s+",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SOURCE = re.compile(r"\s*\([^()\s]+\.(?:md|txt|markdown)[^()\s]*\)")


def compose(text: str, inputs: Sequence[Given], gaps: Sequence[Gap]) -> str:
    """What the inputs say, as the task wants it; empty where there are none."""
    facts = [fact for given in inputs if (fact := _fact(given, text))]
    if not facts:
        return ""
    facts += _advice(text, inputs)
    missing = [f"Missing: {one.message}" for one in gaps if one.message]
    lines = [line for fact in facts for line in fact.splitlines() if line.strip()]
    if wanted := _SENTENCES.search(text):
        count = _COUNTS.get(wanted[1].lower()) or int(wanted[1])
        return " ".join(_sentences(lines)[:count])
    if _BULLETS.search(text):
        body = "\n".join(f"- {line.removeprefix('- ')}" for line in [*lines, *missing])
    elif _PARAGRAPH.search(text):
        body = " ".join([*_sentences(lines), *missing])
    else:
        body = "\n\n".join([*facts, *missing])
    return _headed(text, body, facts[0])


def _advice(text: str, inputs: Sequence[Given]) -> list[str]:
    """What numbers can say where a recommendation is wanted: what they put first. The rest is for people."""
    if not says(text, "recommend", "recommendation", "advise", "advice", "suggest", "suggestion"):
        return []
    for table in gather(one.value for one in inputs).tables:
        found = series(table, text)
        if found is not None and len(found.values) > 1:
            ranked = sorted(zip(map(Decimal, found.values), found.labels, strict=True))
            return [f"By {words_of(found.value)} {ranked[-1][1]} comes first and {ranked[0][1]} last."]
    return []


def _headed(text: str, body: str, fact: str) -> str:
    kind = next((one for one in _KINDS if re.search(rf"\b{one}\b", text, re.IGNORECASE)), "")
    about = _about(text) or fact.partition("\n")[0].partition(":")[0].rstrip(".")
    if re.match(r"[\d,]+ rows", about):
        about = "what was found"
    if kind in {"letter", "email"}:
        return f"Subject: {capital(about)}\n\nDear all,\n\n{body}\n\nKind regards"
    return f"{capital(kind)}: {about}\n\n{body}" if kind in {"memo", "report", "briefing", "note"} else body


def _about(text: str) -> str:
    return capital(_FRAME.sub("", title(text)))


def _fact(given: Given, text: str) -> str:
    """What one input says: its own words where it has some, else its exhibits in words."""
    have = gather([given.value])
    if have.texts:
        return have.texts[0].strip()[:_LONGEST]
    parts = [table_text(one, text) for one in have.tables]
    parts += [figure_text(one) for one in have.figures]
    parts += [passages_text(one, text) for one in have.passages]
    parts += [chart_text(one) for one in have.charts]
    parts += [", ".join(f"{key} {value}" for key, value in one.items()) for one in have.objects]
    return "\n".join(parts)


def _sentences(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        bare = _SOURCE.sub("", line.removeprefix("- ")).strip()
        found += [part if part.endswith((".", "!", "?")) else f"{part}." for part in _SENTENCE.split(bare) if part]
    return found


def writes(text: str) -> bool:
    """Whether a task asks for text out of what is there."""
    return says(text, "write", "draft", "compose", "summarise", "summarize", "summary", "memo", "letter", "report",
                "recommend", "recommendation", "explain", "combine", "merge", "conclude", "compare")  # fmt: skip
