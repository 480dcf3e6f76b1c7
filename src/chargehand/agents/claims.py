"""What is said, traced to what it rests on: numbers, days, addresses, quotations and names, to tools or to words alone.

Pure. Whether a statement follows from the sources in other ways is not known here: what is left out is not found.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice

import msgspec
from msgspec import Struct

from chargehand.agents.evidence import EMAIL, Evidence, addresses, listed, noun_behind, plain_words
from chargehand.agents.known_values import KnownNumbers, is_about
from chargehand.agents.row_labels import Placed, misplaced_pairs, misplaced_values
from chargehand.models.subject import Given
from chargehand.terms.tracing import Conflict, Kind, Origin, Untraced
from chargehand.text.dates import Date, find_dates
from chargehand.text.numbers import Quantity, find_counts, find_quantities
from chargehand.text.sentences import split_sentences
from chargehand.text.words import QUOTED

_LONGEST = 100_000  # characters of an answer that are looked at
_TOGETHER = 4_000_000  # characters of all results: of more nothing can be said to be missing
_MOST = 200
_MARK = 0xE000  # a quotation is taken out of its line as one sign of this private range
_WORDS = 4
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]{1,2000})`")
_BLOCK = re.compile(r"(?:^[ \t]*>[^\n]*(?:\n|\Z))+", re.MULTILINE)
_NOT_SHOWN = re.compile(r"^… (?:and )?[\d,]+ more rows$", re.MULTILINE)  # says how long a table is, not what it holds
_GAP = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]")
_LATE = re.compile(r"([.!?])[ \t]*((?:\[[^\]\n]{1,200}\][ \t]*)+)(?=\s|$)", re.MULTILINE)
CLAIMING = re.compile(
    r"[\d>\"'“”„«»\u2018\u2019@|]|://|www\."
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty)\b",
    re.IGNORECASE,
)
"""What a text has that says anything which could be looked up."""
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
_TOTAL = re.compile(
    r"\b(?:total\w*|together|sum|altogether|overall|combined|in all|plus|averag\w*|mean|makes?|come to|zusammen"
    r"|insgesamt|summe|gesamt\w*|durchschnitt\w*|im mittel)\b",
    re.IGNORECASE,
)
_APART = re.compile(
    r"\b(?:more|less|fewer|differ\w*|gap|higher|lower|rose|rise|fell|fall|up|down|increase\w*|decrease\w*|left|remain\w*"
    r"|above|below|than|change\w*|grew|growth|drop\w*|ahead|behind|margin|share|times|half|save\w*|extra|short|per|ratio|warmer|colder|older|younger|longer|shorter|larger"
    r"|bigger|smaller|cheaper|dearer|mehr|weniger|höher|niedriger|pro|anteil|differenz|unterschied|übrig|rest)\b",
    re.IGNORECASE,
)
_RESPECTIVELY = re.compile(r"\b(?:respectively|beziehungsweise|bzw|jeweils)\b", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")


class Claim(Struct, frozen=True):
    """Something that is said. `origin` is what it rests on; empty: nothing that was looked at.

    `cited` are the tasks it names, `elsewhere` other results that hold it. `conflict` says that it stands in the
    sources, but there of something else.
    """

    kind: Kind
    text: str
    sentence: str
    cited: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    origin: Origin = ""
    conflict: Conflict = ""

    @property
    def supported(self) -> bool:
        return self.origin in ("tool", "input")


class Source(Struct, frozen=True):
    """What statements may rest on. `words` is what stands in it that only a worker says."""

    evidence: Evidence
    origin: Origin = "tool"
    words: Evidence | None = None

    def reliable_numbers(self) -> Iterator[Decimal]:
        """The numbers of a short source, without those that only a worker says."""
        worded = () if self.words is None else self.words.few
        return (value for value in self.evidence.few if value not in worded)


def claiming(answer: str) -> bool:
    """Whether there is anything in an answer that could be looked up."""
    return CLAIMING.search(_CITED.sub("", answer[:_LONGEST])) is not None


def unsupported(
    answer: str,
    results: Sequence[Given],
    known: Sequence[str] = (),
    behind: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Claim, ...]:
    """What the answer says that stands in no result it cites, or, where it cites none, in no result.

    `known` are other texts it may rest on, like the request; `behind` says which results a result was made from.
    """
    found = trace_answer(answer, results, known, behind)
    return tuple(one for one in found if not one.supported)


def trace_answer(
    answer: str,
    results: Sequence[Given],
    known: Sequence[str] = (),
    behind: Mapping[str, Sequence[str]] | None = None,
    words: Mapping[str, Sequence[Untraced]] | None = None,
    today: date | None = None,
) -> tuple[Claim, ...]:
    """All that could be looked up in an answer, and what each rests on. Of `words` only their own workers knew."""
    sources: dict[str, Source] = {}
    if too_much(results):
        return ()
    for one in results:
        if one.value is None:
            continue
        evidence = Evidence(one.value, one.instruction)
        if not evidence.whole:
            return ()
        untraced = [item.text for item in (words or {}).get(one.task, ())]
        sources[one.task] = Source(evidence, words=Evidence(*untraced) if untraced else None)
    if not sources:
        return ()
    said = _NOT_SHOWN.sub("", answer[:_LONGEST])
    return tuple(islice(_Check(sources, Evidence(*known), behind or {}, today).claims(said), _MOST))


def size_of(results: Sequence[Given]) -> int:
    """How many characters some results have, about."""
    return sum([len(msgspec.json.encode(one.value)) for one in results])


def too_much(results: Sequence[Given]) -> bool:
    """Whether there is more in some results than is looked at."""
    return size_of(results) > _TOGETHER


def trace_text(text: str, sources: Mapping[str, Source], known: Evidence, today: date | None) -> tuple[Claim, ...]:
    """The same for what one worker says, against what it was given and what its tools returned."""
    return tuple(islice(_Check(sources, known, {}, today).claims(text[:_LONGEST]), _MOST))


_CONFLICTS = {
    "row": "it stands in another row",
    "unit": "it stands there in another unit",
    "label": "it is said of something else there",
}


def told(claim: Claim) -> str:
    """One claim in a line."""
    text = f"“{claim.text[:160]}”" if claim.kind == "quotation" else claim.text[:200]
    cited = f", cited from {_ids(claim.cited)}" if claim.cited else ""
    conflict = f" ({_CONFLICTS[claim.conflict]})" if claim.conflict else ""
    return text + cited + (f", but it stands in {_ids(claim.elsewhere)}" if claim.elsewhere else "") + conflict


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


class _Number(Struct):
    """A number of a sentence: what it rests on, and what speaks against it."""

    quantity: Quantity
    origin: Origin = ""
    conflict: Conflict = ""
    structural: bool = False


class _Check:
    def __init__(
        self, held: Mapping[str, Source], known: Evidence, behind: Mapping[str, Sequence[str]], today: date | None
    ) -> None:
        self._held = held
        self._known = Source(known, "input")
        self._behind = behind
        self._today = today
        self._quotes: list[str] = []
        self._counts: set[int] = {len(held)}  # how many there are of what is listed

    def claims(self, answer: str) -> Iterator[Claim]:
        for paragraph in answer.split("\n\n"):
            self._counts |= {listed(paragraph), listed(paragraph) - 1}  # a table has one line more than rows
        for paragraph in re.split(r"\n[ \t]*\n", self._prepared(answer)):
            borne: list[Decimal] = []
            for sentence in split_sentences(_LATE.sub(r" \2\1 ", paragraph)):
                yield from self._sentence(sentence, borne)

    def _prepared(self, answer: str) -> str:
        """The answer without code and list numbers, each quotation of some length as one sign."""
        text = _FENCE.sub("", answer)
        text = _CODE.sub(lambda found: found[1] if re.fullmatch(r"[\d.,\s%$€£]+", found[1]) else " ", text)
        text = _BLOCK.sub(lambda found: self._kept(_unquoted(found[0]), f"{found[0]}\n") + "\n", text)
        text = QUOTED.sub(lambda found: self._kept(next(one for one in found.groups() if one), found[0]), text)
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

        def claim(
            kind: Kind, text: str, holds: Callable[[Evidence], bool], origin: Origin, conflict: Conflict = ""
        ) -> Claim:
            searched = cited and not origin and not conflict
            elsewhere = [name for name, one in self._held.items() if holds(one.evidence)] if searched else ()
            return Claim(
                kind=kind,
                text=text,
                sentence=said,
                cited=cited,
                elsewhere=tuple(elsewhere),
                origin=origin,
                conflict=conflict,
            )

        def looked_up(kind: Kind, text: str, holds: Callable[[Evidence], bool]) -> Claim:
            return claim(kind, text, holds, _origin(sources, holds))

        for sign in sentence:
            if 0 <= (at := ord(sign) - _MARK) < len(self._quotes):
                quote = self._quotes[at]
                yield looked_up("quotation", quote, lambda source, quote=quote: _quotes(source, quote))
        plain = sentence
        for url, start, end in list(addresses(sentence))[:_MOST]:
            plain = plain[:start] + " " * (end - start) + plain[end:]
            yield looked_up("url", url, lambda source, url=url: source.links(url))
        plain = _CITED.sub(
            lambda found: found[0] if not citations(found[0], self._held) else " " * len(found[0]), plain
        )
        placed: list[Placed] = []
        checked: list[Claim] = []
        mails = [found[0] for found in islice(EMAIL.finditer(plain), _MOST)]
        checked += [looked_up("email", mail, lambda source, mail=mail: source.mails(mail)) for mail in mails]
        plain = EMAIL.sub(lambda found: " " * len(found[0]), plain) if checked else plain
        for day in islice(find_dates(plain), _MOST):
            checked.append(self._day(day, sources, claim))
            placed.append(Placed(claim=len(checked) - 1, start=day.start, end=day.end, day=day))
            plain = plain[: day.start] + " " * (day.end - day.start) + plain[day.end :]
        for number in self._numbers(plain, sources, borne):
            one = number.quantity
            checked.append(
                claim("number", one.text, lambda source, one=one: source.holds(one), number.origin, number.conflict)
            )
            if number.origin and not number.structural:
                placed.append(Placed(claim=len(checked) - 1, start=one.start, end=one.end, quantity=one))
        yield from self._in_rows(
            sentence=sentence, sources=sources, placed=placed, checked=checked, said=said, cited=cited
        )

    def _in_rows(
        self,
        sentence: str,
        sources: Sequence[Source],
        placed: Sequence[Placed],
        checked: list[Claim],
        said: str,
        cited: tuple[str, ...],
    ) -> Iterator[Claim]:
        """The claims of a sentence; those whose row in the sources is another than the one it names are doubted."""
        evidence = [source.evidence for source in sources]
        wrong = misplaced_values(sentence, evidence, placed) if not _RESPECTIVELY.search(sentence) else ()
        for at in wrong:
            one = checked[at]
            checked[at] = Claim(
                kind=one.kind, text=one.text, sentence=said, cited=cited, elsewhere=(), origin="", conflict="row"
            )
        yield from checked
        for text in misplaced_pairs(sentence, evidence):
            yield Claim(kind="name", text=text, sentence=said, cited=cited, elsewhere=(), origin="", conflict="row")

    def _day(self, day: Date, sources: Sequence[Source], claim: Callable[..., Claim]) -> Claim:
        def holds(source: Evidence) -> bool:
            return source.days.hold(day)

        origin = _origin(sources, holds)
        if not origin and self._today is not None and is_about(day, self._today):
            origin = "input"
        if not origin:
            terms = {int(number) for source in sources for number in source.evidence.few if number == int(number)}
            if any(source.evidence.days.reach(day, terms) for source in sources):
                origin = "tool"
        return claim("date", day.text, holds, origin)

    def _numbers(self, plain: str, sources: Sequence[Source], borne: list[Decimal]) -> list[_Number]:
        """The numbers of a sentence, and what each rests on, or which of those beside it, it follows from."""
        found: list[_Number] = []
        adds = _TOTAL.search(plain) is not None
        apart = _APART.search(plain) is not None
        for one in islice(find_quantities(plain), _MOST):
            rough = _ROUGH.search(plain[max(0, one.start - 16) : one.start]) is not None
            number = _Number(one, _origin(sources, lambda source, one=one, rough=rough: source.holds(one, rough=rough)))
            if not number.origin:
                number.origin = _origin(sources, lambda source, one=one: source.writes(plain, one.start, one.end))
            if number.origin:
                number.conflict = _conflict(one, plain, sources)
                if not number.conflict and number.origin != "words":
                    borne.append(one.readings[0][0])
            if (not number.origin or number.conflict) and self._structural(one, plain, sources):
                number.origin = number.origin or "tool"
                number.conflict = ""
                number.structural = True
            found.append(number)
        worded = [number.quantity.readings[0][0] for number in found if number.origin == "words"]
        for number in found:
            if not number.origin or number.conflict:
                self._derive(number, plain, sources, borne, adds=adds, apart=apart)
            if not number.origin and worded and _follows(number.quantity, worded, adds=adds, apart=apart):
                number.origin = "words"
        listing = [number for number in found if not (number.structural and number.origin == "tool")]
        return [*listing, *self._spelled_out(plain, sources)]

    def _derive(
        self,
        number: _Number,
        plain: str,
        sources: Sequence[Source],
        borne: Sequence[Decimal],
        *,
        adds: bool,
        apart: bool,
    ) -> None:
        """Accept a number that was worked out from others: a sum, a mean, a difference, a share, another unit."""
        one = number.quantity
        apart = apart or "%" in plain
        in_table = plain.lstrip().startswith("|")
        derived = any(source.evidence.sums.hold(one) for source in sources if adds or len(_digits(one)) > 2)
        derived = derived or any(source.evidence.measured(one) for source in sources)
        if apart or in_table:
            derived = derived or any(source.evidence.differences.hold(one) for source in sources)
        derived = derived or _follows(one, borne[-12:], adds=adds, apart=apart)
        if not derived:
            few = [value for source in sources for value in source.reliable_numbers() if value][:12]
            derived = _follows(one, few, adds=False, apart=apart and (one.unit == "%" or "." in one.text))
            derived = derived or (len(_digits(one)) > 1 and _multiplies(one, few))
        if derived:
            number.origin = "tool"
            number.conflict = ""
            number.structural = False
        elif number.conflict:
            number.origin = ""

    def _spelled_out(self, plain: str, sources: Sequence[Source]) -> Iterator[_Number]:
        """Numbers in words, where the sources say another number of the same: five hours for three."""
        for one in islice(find_counts(plain), _MOST):
            noun = noun_behind(plain, one.end)
            counted = [value for source in sources for value in source.evidence.counted(noun)] if noun else []
            if not counted or any(source.evidence.holds(one) for source in sources):
                continue
            if not self._structural(one, plain, sources, value=int(one.readings[0][0])):
                yield _Number(one)

    def _structural(self, one: Quantity, plain: str, sources: Sequence[Source], value: int = -1) -> bool:
        """Whether a number says which or how many of what is listed."""
        if _PLACE.search(plain[max(0, one.start - 12) : one.start]):
            return True
        if one.unit == "%" and one.text == "100":
            return True
        if (not one.text.isdigit() and value < 0) or one.unit in ("%", "eur", "usd", "gbp", "jpy"):
            return False
        count = int(one.text) if value < 0 else value
        if self._today is not None and count == self._today.year:
            return True
        return count in self._counts or any(count in source.evidence.counts for source in sources)

    def _sources(self, cited: Sequence[str]) -> list[Source]:
        names = dict.fromkeys(cited)
        for name in cited:
            names |= dict.fromkeys(self._behind.get(name, ()))
        return [*(self._held[one] for one in names or self._held if one in self._held), self._known]

    def _told(self, sentence: str) -> str:
        whole = "".join(
            f"“{self._quotes[at]}”" if 0 <= (at := ord(sign) - _MARK) < len(self._quotes) else sign for sign in sentence
        )
        return " ".join(whole.split())[:300]


def _origin(sources: Sequence[Source], holds: Callable[[Evidence], bool]) -> Origin:
    """What the first source that holds a statement is; one that only a worker says is better than none."""
    origin: Origin = ""
    for source in sources:
        if not holds(source.evidence):
            continue
        if source.words is None or not holds(source.words):
            return source.origin
        origin = "words"
    return origin


def _conflict(one: Quantity, plain: str, sources: Sequence[Source]) -> Conflict:
    """Why a number that stands in the sources is not the one that is meant: another unit, or of another thing."""
    places = [place for source in sources for place in source.evidence.occurrences(one)]
    if not places:
        return ""
    if one.measure and all(place.unit and place.unit != one.measure for place in places):
        return "unit"
    noun = "" if one.measure else noun_behind(plain, one.end)
    if not noun or any(noun in place.about or not place.about for place in places):
        return ""
    return "label" if any(source.evidence.counted(noun) for source in sources) else ""


def _digits(one: Quantity) -> str:
    return re.sub(r"\D", "", one.text)


def _quotes(source: Evidence, quote: str) -> bool:
    """Whether a source holds a quotation, every piece of it where something was left out."""
    pieces = [plain_words(one) for one in _GAP.split(quote)]
    return all(source.says(piece) for piece in pieces if piece.strip())


def _unquoted(block: str) -> str:
    """A block of quoted lines as its words; who said it is not part of them."""
    lines = [re.sub(r"^[ \t>]+", "", line).strip() for line in block.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("\u2014", "\u2013", "- ", "(")))


def _multiplies(one: Quantity, few: Sequence[Decimal]) -> bool:
    """Whether a number is the product of two others: so many, at such a price."""
    products = (first * second for at, first in enumerate(few) for second in few[at + 1 :])
    return KnownNumbers(products).hold(one)


def _follows(one: Quantity, borne: Sequence[Decimal], *, adds: bool, apart: bool) -> bool:
    """Whether a number is a sum, a difference or a share of some that stand before or beside it, and says so."""
    found: list[Decimal] = []
    pairs = [(first, second) for at, first in enumerate(borne) for second in borne[at + 1 :]]
    if borne and adds:
        found += [sum(borne, Decimal(0)), sum(borne, Decimal(0)) / len(borne), *(a + b for a, b in pairs)]
    for first, second in pairs if apart or one.unit == "%" else ():
        found.append(abs(first - second))
        found.append(first * second / 100)
        for a, b in ((first, second), (second, first)):
            found += [a / b, a / b * 100, abs(a - b) / b * 100] if b else []
    return KnownNumbers(found).hold(one)
