"""What an answer says that no result bears out: numbers, addresses and quotations, against the results it cites.

Pure. Whether a statement follows from the results in other ways is not known here: what is left out is not found.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Literal

from msgspec import Struct

from chargehand.agents.evidence import Evidence, addresses, listed, plain_words
from chargehand.agents.quantities import Numbers, Quantity, quantities
from chargehand.models.subject import Given

_LONGEST = 100_000  # characters of an answer that are looked at
_TOGETHER = 1_000_000  # characters of all results: of more nothing can be said to be missing, and others wait meanwhile
_MOST = 200
_SHOWN = 8
_MARK = 0xE000  # a quotation is taken out of its line as one sign of this private range
_WORDS = 4
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]{1,2000})`")
_QUOTED = re.compile(r"“([^“”\n]{1,999})”|„([^„“”\n]{1,999})[“”]|«([^«»\n]{1,999})»|(?<!\w)\"([^\"\n]{1,999})\"")
_BLOCK = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.MULTILINE)
_NOT_SHOWN = re.compile(r"^… (?:and )?[\d,]+ more rows$", re.MULTILINE)  # says how long a table is, not what it holds
_GAP = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]")
_LATE = re.compile(r"([.!?])[ \t]*((?:\[[^\]\n]{1,200}\][ \t]*)+)(?=\s|$)", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)|\n+")
_CLAIMING = re.compile(r"[\d>\"'“”„«»\u2018\u2019]|://|www\.")
_CITED = re.compile(r"[\[(]((?:[^\[\]()\n]|\[\d{1,4}\]){1,200})[\])]")
_NUMBERED = re.compile(r"^[ \t>#*-]{0,12}\d{1,3}[.)]\s", re.MULTILINE)
_PLACE = re.compile(
    r"(?:\b(?:step|part|section|option|figure|fig|table|item|point|phase|task|chapter|page|no|top|level|tier)s?\.?"
    r"|§|#|\[)\s?$",
    re.IGNORECASE,
)
_ROUGH = re.compile(
    r"(?:\b(?:about|around|roughly|approximately|approx\.?|some|nearly|almost|over|under|above|below|circa|ca\.?"
    r"|more than|less than|at least|at most|up to|close to|just)|[~≈<>])\s?[$€£¥]?$",
    re.IGNORECASE,
)
_TOTAL = re.compile(r"\b(?:total|together|sum|altogether|overall|combined|in all|plus|average|mean)\b", re.IGNORECASE)
_APART = re.compile(
    r"\b(?:more|less|fewer|differ\w*|gap|higher|lower|rose|rise|fell|fall|up|down|increase\w*|decrease\w*|left|remain\w*"
    r"|above|below|than|change\w*|grew|growth|drop\w*|ahead|behind|margin|share|times|half|save\w*|extra)\b",
    re.IGNORECASE,
)
Kind = Literal["number", "url", "quotation"]


class Claim(Struct, frozen=True):
    """Something that is said, and whether what is `cited` bears it out; `elsewhere` are other results that hold it."""

    kind: Kind
    text: str
    sentence: str
    cited: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    supported: bool = False


def claiming(answer: str) -> bool:
    """Whether there is anything in an answer that could be looked up."""
    return _CLAIMING.search(_CITED.sub("", answer[:_LONGEST])) is not None


def unsupported(
    answer: str,
    results: Sequence[Given],
    known: Sequence[str] = (),
    behind: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Claim, ...]:
    """What the answer says that stands in no result it cites, or, where it cites none, in no result.

    `known` are other texts it may rest on, like the request; `behind` says which results a result was made from.
    """
    return _checked(answer, results, known, behind or {}, every=False)


def checked(
    answer: str,
    results: Sequence[Given],
    known: Sequence[str] = (),
    behind: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Claim, ...]:
    """All that could be looked up, also what was found. Numbers that only count or number what is listed are none."""
    return _checked(answer, results, known, behind or {}, every=True)


def _checked(
    answer: str, results: Sequence[Given], known: Sequence[str], behind: Mapping[str, Sequence[str]], *, every: bool
) -> tuple[Claim, ...]:
    held: dict[str, Evidence] = {}
    for one in results:
        if one.value is not None:
            held[one.task] = Evidence(one.value, one.instruction)
            if not held[one.task].whole or sum(two.size for two in held.values()) > _TOGETHER:
                return ()
    if not held:
        return ()
    said = _NOT_SHOWN.sub("", answer[:_LONGEST])
    return tuple(_Check(held, Evidence(*known), behind, every=every).claims(said))[:_MOST]


def section(claims: Sequence[Claim]) -> str:
    """What was not found, to be read below the answer."""
    lines = [f"- {told(one)}" for one in claims[:_SHOWN]]
    if len(claims) > _SHOWN:
        lines.append(f"- and {len(claims) - _SHOWN} more")
    return "Not found in the results:\n" + "\n".join(lines)


def told(claim: Claim) -> str:
    """One claim in a line."""
    text = f"“{claim.text[:160]}”" if claim.kind == "quotation" else claim.text[:200]
    cited = f", cited from {_ids(claim.cited)}" if claim.cited else ""
    return text + cited + (f", but it stands in {_ids(claim.elsewhere)}" if claim.elsewhere else "")


def citations(sentence: str, tasks: Mapping[str, object]) -> tuple[str, ...]:
    """The tasks that are named in brackets, of those there are."""
    found: dict[str, None] = {}
    for match in _CITED.finditer(sentence):
        names = [re.sub(r"\[\d+\]$", "", one) for one in re.split(r"[,;&\s]+(?:and\s+)?|\btasks?\b", match[1]) if one]
        if all(name in tasks for name in names):
            found |= dict.fromkeys(names)
    return tuple(found)


def _ids(tasks: Sequence[str]) -> str:
    return ", ".join(f"[{one}]" for one in tasks)


class _Check:
    def __init__(
        self, held: Mapping[str, Evidence], known: Evidence, behind: Mapping[str, Sequence[str]], *, every: bool
    ) -> None:
        self._held, self._known, self._behind, self._every = held, known, behind, every
        self._quotes: list[str] = []
        self._counts: set[int] = {len(held)}  # how many there are of what is listed

    def claims(self, answer: str) -> Iterator[Claim]:
        for paragraph in answer.split("\n\n"):
            self._counts |= {listed(paragraph), listed(paragraph) - 1}  # a table has one line more than rows
        for paragraph in re.split(r"\n[ \t]*\n", self._prepared(answer)):
            borne: list[Decimal] = []
            for sentence in _SENTENCE.split(_LATE.sub(r" \2\1 ", paragraph)):
                if sentence.strip():
                    yield from self._sentence(sentence, borne)

    def _prepared(self, answer: str) -> str:
        """The answer without code and list numbers, each quotation of some length as one sign."""
        text = _FENCE.sub("", answer)
        text = _CODE.sub(lambda found: found[1] if re.fullmatch(r"[\d.,\s%$€£]+", found[1]) else " ", text)
        text = _BLOCK.sub(lambda found: self._kept(_unquoted(found[0]), f"{found[0]}\n") + "\n", text)
        text = _QUOTED.sub(lambda found: self._kept(next(one for one in found.groups() if one), found[0]), text)
        return _NUMBERED.sub(" ", text)

    def _kept(self, quote: str, whole: str) -> str:
        if len(plain_words(_GAP.sub(" ", quote)).split()) < _WORDS or len(self._quotes) >= _MOST:
            return whole
        self._quotes.append(quote)
        cited = " ".join(found[0] for found in _CITED.finditer(quote)) if ">" in whole[:4] else ""
        return f"{chr(_MARK + len(self._quotes) - 1)} {cited}"

    def _sentence(self, sentence: str, borne: list[Decimal]) -> Iterator[Claim]:
        cited = citations(sentence, self._held)
        sources = self._sources(cited)
        said = self._told(sentence)

        def claims(kind: Kind, text: str, holds: Callable[[Evidence], bool], *, good: bool) -> Iterator[Claim]:
            if not good:
                elsewhere = [name for name, one in self._held.items() if holds(one)] if cited else ()
                yield Claim(kind, text, said, cited, tuple(elsewhere))
            elif self._every:
                yield Claim(kind, text, said, cited, supported=True)

        for sign in sentence:
            if 0 <= (at := ord(sign) - _MARK) < len(self._quotes):
                quote = self._quotes[at]
                holds = partial(_quotes, quote=quote)
                yield from claims("quotation", quote, holds, good=any(map(holds, sources)))
        plain = sentence
        for url, start, end in list(addresses(sentence))[:_MOST]:
            plain = plain[:start] + " " * (end - start) + plain[end:]
            holds = partial(_links, url=url)
            yield from claims("url", url, holds, good=any(map(holds, sources)))
        plain = _CITED.sub(
            lambda found: found[0] if not citations(found[0], self._held) else " " * len(found[0]), plain
        )
        for one, good in self._numbers(plain, sources, borne):
            yield from claims("number", one.text, partial(_numbered, one=one), good=good)

    def _numbers(self, plain: str, sources: Sequence[Evidence], borne: list[Decimal]) -> list[tuple[Quantity, bool]]:
        """The numbers of a sentence, and whether each stands in what it cites, or follows from those beside it."""
        found: list[tuple[Quantity, bool]] = []
        adds, apart = _TOTAL.search(plain) is not None, _APART.search(plain) is not None
        for one in islice(quantities(plain), _MOST):
            rough = _ROUGH.search(plain[max(0, one.start - 16) : one.start]) is not None
            if any(source.numbers.hold(one, rough=rough) for source in sources):
                borne.append(one.readings[0][0])
                found.append((one, True))
            elif not self._structural(one, plain, sources, adds=adds):
                found.append((one, False))
        return [(one, good or _follows(one, borne[-12:], adds=adds, apart=apart)) for one, good in found]

    def _structural(self, one: Quantity, plain: str, sources: Sequence[Evidence], *, adds: bool) -> bool:
        """Whether a number says which or how many of what is listed, or what a column comes to."""
        if _PLACE.search(plain[max(0, one.start - 12) : one.start]):
            return True
        if adds and any(source.sums.hold(one) for source in sources):
            return True
        if not one.text.isdigit() or one.unit in ("%", "eur", "usd", "gbp", "jpy"):
            return False
        return int(one.text) in self._counts or any(int(one.text) in source.counts for source in sources)

    def _sources(self, cited: Sequence[str]) -> list[Evidence]:
        names = dict.fromkeys(cited)
        for name in cited:
            names |= dict.fromkeys(self._behind.get(name, ()))
        return [self._known, *(self._held[one] for one in names or self._held if one in self._held)]

    def _told(self, sentence: str) -> str:
        whole = "".join(
            f"“{self._quotes[at]}”" if 0 <= (at := ord(sign) - _MARK) < len(self._quotes) else sign for sign in sentence
        )
        return " ".join(whole.split())[:300]


def _quotes(source: Evidence, quote: str) -> bool:
    """Whether a source holds a quotation, every piece of it where something was left out."""
    pieces = [plain_words(one) for one in _GAP.split(quote)]
    return all(source.says(piece) for piece in pieces if piece.strip())


def _links(source: Evidence, url: str) -> bool:
    return source.links(url)


def _numbered(source: Evidence, one: Quantity) -> bool:
    return source.numbers.hold(one)


def _unquoted(block: str) -> str:
    """A block of quoted lines as its words; who said it is not part of them."""
    lines = [re.sub(r"^[ \t>]+", "", line).strip() for line in block.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("\u2014", "\u2013", "- ", "(")))


def _follows(one: Quantity, borne: Sequence[Decimal], *, adds: bool, apart: bool) -> bool:
    """Whether a number is a sum, a difference or a share of some that stand before or beside it, and says so."""
    found: list[Decimal] = []
    pairs = [(first, second) for at, first in enumerate(borne) for second in borne[at + 1 :]]
    if borne and adds:
        found += [sum(borne, Decimal(0)), sum(borne, Decimal(0)) / len(borne), *(a + b for a, b in pairs)]
    for first, second in pairs if apart or one.unit == "%" else ():
        found.append(abs(first - second))
        for a, b in ((first, second), (second, first)):
            found += [a / b, a / b * 100, abs(a - b) / b * 100] if b else []
    return Numbers(found).hold(one)
