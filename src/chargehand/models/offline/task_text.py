"""The text of a task taken apart: what is asked, without what is said about its form, and its subject as a title."""

import re

from chargehand.models.offline.references import object_of, subject_of
from chargehand.models.offline.words import stem

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
_FORM = re.compile(
    r"(?:return|reply|respond|answer|state|report back|hand back|give back|say (?:so|where|which|that)|name the|cite|"
    r"use the results?|work from|rest on|earlier this failed|ask for at most|words that matter)\b",
    re.IGNORECASE,
)
_CALLED = re.compile(
    r"\b(?:titled?|called|captioned|with the title)\s*:?\s+[\"'\u201c\u2018](.+?)[\"'\u201d\u2019]", re.IGNORECASE
)
_LEAD = re.compile(
    r"^(?:please\s+)?(?:(?:draw|plot|make|create|produce|show|render|generate|prepare|visuali[sz]e|graph|chart|illustrate|"
    r"sketch)\s+)?"
    r"(?:(?:me|us)\s+)?(?:(?:a|an|the|one)\s+)?(?:[\w-]+\s+){0,2}?(?:chart|graph|plot|diagram|picture|histogram)?\s*"
    r"(?:(?:of|for|showing|comparing|that shows|about|from|with)\s+)?(?:the\s+)?",
    re.IGNORECASE,
)
_POINTER = re.compile(r"\s*\((?:the results? of|from|see|using) t\d+[^()]*\)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(?:of|about|for|on|with|from)\s+the\s+(?:\w+\s+){1,4}(?:that|which|who)\s+[^()]*\(the results? of t\d+[^()]*\)",
    re.IGNORECASE,
)
_TO = r"(?:to|of|for|about|on)\b"
_HEAD = re.compile(
    rf"\b(?:a|an|the)\s+(?:(?!{_TO})\w+\s+){{1,3}}?{_TO}\s+(?=(?:(?!\b{_TO})[^()])*\(the results? of t\d)",
    re.IGNORECASE,
)
_TAIL = re.compile(r"\s+(?:in|as|with|using)\s+(?:a|an)\s+[\w -]*?(?:chart|graph|plot|diagram)$", re.IGNORECASE)
_AND_MORE = re.compile(
    r",?\s+and\s+(?:a|an|the)\s+(?:\w+\s+)?(?:chart|graph|plot|diagram|memo|summary)\b.*$", re.IGNORECASE
)
_HOLLOW = re.compile(
    r"\bresults? of t\d|^(?:it|this|that|them|these|those|the (?:results?|data|numbers|findings)|recommendation)?$",
    re.IGNORECASE,
)
_SAY_SO = re.compile(r"[:;,]?\s*(?:and )?say so\.?\s*\Z", re.IGNORECASE)
_MANY = re.compile(
    r"^(?:find out\s+)?how (?:many|much)\s+(?P<thing>.+?)\s+(?:are|is|were|was)(?:\s+there)?"
    r"(?:\s+(?P<where>(?:in|on|at|of|from|for|with|under|over|to|behind|left)\b.*))?$",
    re.IGNORECASE,
)
_COST = re.compile(
    r"^(?:find out\s+)?what\s+(?:do|does|did)\s+(?P<thing>.+?)\s+cost(?:\s+(?P<where>(?:in|on|at|for|per)\b.*))?$",
    re.IGNORECASE,
)
_BROAD = re.compile(
    r"^(?:please\s+)?(?:conduct|do|make|carry out|prepare|provide|give(?:\s+(?:me|us))?)\s+(?:a|an)\s+"
    r"(?:comprehensive|broad|full|thorough|complete|detailed|general)\s+"
    r"(?:analysis|study|review|overview|survey|assessment|picture|account)\s+of\s+(?P<what>.+?)"
    r"(?:\s+from\s+(?:all|every|each)\s+(?:perspective|angle|side|point of view|viewpoint)s?)?[.!]*$",
    re.IGNORECASE,
)
_ALL_OF = re.compile(
    r"^(?:please\s+)?(?:tell|show|give)(?:\s+(?:me|us))?\s+(?:everything|all|all that)\s+"
    r"(?:(?:there is|is|you|we|to)\s+(?:to\s+)?(?:know|known?)\s+)?(?:about|on)\s+(?P<what>.+?)[.!]*$",
    re.IGNORECASE,
)
# whom to ask says nothing of what is asked
_ADDRESSED = re.compile(r"(?:please\s+)?ask\s+(?:the|your|our|all|every)\s+(?:the\s+)?\w+\s*:\s*(?=\S)", re.IGNORECASE)
_LONGEST = 80


def asked(text: str) -> str:
    """The task without the sentences that only say what the result should look like.

    A comprehensive analysis of something asks each for what they know of it.
    """
    bare = _addressed(_POINTER.sub("", text.strip()))
    kept = [
        _ALL_OF.sub(r"Tell us about \g<what>.", _BROAD.sub(r"Tell us about \g<what>.", part))
        for part in _SENTENCE.split(bare)
        if part and not _FORM.match(part) and not _SAY_SO.search(part)
    ]
    return " ".join(kept) or bare


def _addressed(text: str) -> str:
    said = _ADDRESSED.match(text)
    return f"{text[said.end()].upper()}{text[said.end() + 1 :]}" if said else text


def hollow(text: str) -> bool:
    """Whether a text asks for nothing: it only says what a result should look like, or says nothing."""
    parts = [part for part in _SENTENCE.split(_POINTER.sub("", text.strip())) if part.strip(" .,;:!?")]
    return all(_FORM.match(part) for part in parts)


def without_pointers(text: str) -> str:
    """What is asked, without phrases for results at hand: "of the products that sold best (the result of t1)"."""
    return asked(_CLAUSE.sub(" ", text))


def without_head(text: str) -> str:
    """What is asked of the thing an earlier result was about: Ash, where that was "a path to Ash (the result of t1)".

    Empty where nothing of the kind is said.
    """
    bare = _HEAD.sub("", text)
    return asked(bare) if bare != text else ""


def to_say(text: str) -> list[str]:
    """What the task wants said in the result, word for word: sentences that end with "say so"."""
    parts = [part for part in _SENTENCE.split(text.strip()) if _SAY_SO.search(part)]
    return [_SAY_SO.sub("", part).strip() + "." for part in parts]


def title(text: str) -> str:
    """A heading for what the task is about; empty where it only points to something else."""
    if called := _CALLED.search(text):
        return called[1][:_LONGEST]
    plain = object_of(asked(text)).strip().rstrip(".?! ")
    bare = _LEAD.sub("", plain, count=1).strip() or plain
    bare = _AND_MORE.sub("", _TAIL.sub("", bare))
    if len(bare) > _LONGEST:
        bare = bare[:_LONGEST].rsplit(" ", 1)[0]
    return "" if _HOLLOW.search(bare) else bare[:1].upper() + bare[1:]


def counted(text: str) -> str:
    """What a number is of: "Loaves on the upper shelf" for the question how many there are."""
    plain = asked(text).strip().rstrip("?.! ")
    if found := _MANY.match(plain):
        thing = f"{found['thing']} {found['where'] or ''}".strip()
    elif found := _COST.match(plain):
        thing = f"cost of {found['thing']} {found['where'] or ''}".strip()
    else:
        thing = plain if plain.lower().startswith("how") else subject_of(plain) or plain
    return thing[:1].upper() + thing[1:_LONGEST]


def says(text: str, *words: str) -> bool:
    """Whether one of these words is in a text, in whatever form."""
    present = {stem(one) for one in re.findall(r"[a-z]+", text.lower())}
    return any(stem(word) in present for word in words)
