"""Kinds of work there are in general: how a request shows that it wants one, and a worker's card that it does one.

Subjects are not known here, only what is done: drawing, calculating, looking up, writing. Matching decides who does it.
"""

import re

from msgspec import Struct

from chargehand.models.offline.words import stem, tokens


class Kind(Struct, frozen=True):
    """`asked` are patterns of a clause and how surely they ask for it, `said` the words of a card that does it.

    A kind that is `open` may be asked for anything under the sun; others must know the subject. One that is `firm`
    goes before knowing the subject where it is asked for plainly: who draws need not know what the numbers are of.
    """

    name: str
    said: frozenset[str]
    asked: tuple[tuple[re.Pattern[str], float], ...]
    returns: str
    open: bool = True

    @property
    def firm(self) -> float:
        return {"documents": 0.2, "data": 0.0, "code": 0.2}.get(self.name, 0.4)


def _kind(name: str, said: str, asked: dict[str, float], returns: str, *, open_: bool = True) -> Kind:
    patterns = tuple((re.compile(pattern, re.IGNORECASE), strength) for pattern, strength in asked.items())
    return Kind(name, frozenset(map(stem, said.split())), patterns, returns, open_)


_MONEY = r"(?:EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|CZK|CAD|AUD|CNY|INR|euros?|dollars?|pounds?|francs?|yen|sterling)"
_UNIT = (
    r"(?:miles?|kilomet\w+|km|met(?:re|er)s?|feet|foot|inch(?:es)?|cm|mm|kg|kilograms?|grams?|pounds?|ounces?|lit(?:re|er)s?|"
    r"gallons?|celsius|fahrenheit|kelvin|hectares?|acres?)"
)
_PART = r"(?:month|year|day|week|quarter|region|country|city|branch|category|product|customer|person|kind|type|\w+)"

KINDS: tuple[Kind, ...] = (
    _kind(
        "draw",
        "chart plot graph draw diagram svg visualise visualize picture histogram",
        {
            r"\b(?:draw|plot|visuali[sz]e|sketch|graph)\b|^chart\b": 1.0,
            r"\b(?:chart|graph|plot|histogram|diagram|picture)\b": 0.9,
        },
        "Return the chart with a title that says what it shows.",
    ),
    _kind(
        "currency",
        "currency exchange convert conversion eur usd",
        {
            rf"\bconvert\b.*\b{_MONEY}\b": 1.0,
            rf"\b(?:{_MONEY}|that|it|this|them|amount|total)\s+(?:in|into|to)\s+{_MONEY}\b": 0.9,
            rf"\b(?:exchange|in|into|expressed in|worth in)\s+(?:rate\b|{_MONEY}\b)": 0.5,
            r"\bexchange rates?\b": 1.0,
        },
        "Return the converted amount and the rate that was used.",
    ),
    _kind(
        "units",
        "unit units measure metric imperial length weight temperature convert",
        {rf"\bconvert\b.*\b{_UNIT}\b": 1.0, rf"\b{_UNIT}\s+(?:in|into|to|as)\s+{_UNIT}\b": 0.9},
        "Return the converted value with its unit.",
    ),
    _kind(
        "calculate",
        "calculate calculator calculation arithmetic math maths compute expression formula multiply",
        {
            r"\d\s*[-+*/^\u00d7\u00f7]\s*\(?\d": 1.0,
            r"\d\s*(?:%|percent|per cent)\s+of\b": 1.0,
            r"\b(?:multipl\w+|divided by|divide|subtract|square root|to the power|ratio (?:of|between))\b": 0.9,
            r"\bpercent\w*\b.*\b(?:grow|grew|rise|rose|fall|fell|change|changed|increase|decrease|drop|dropped)\b": 0.9,
            r"\b(?:grow|grew|rise|rose|fall|fell|change|changed|increase|decrease|dropped)\b.*\bpercent": 0.9,
            r"\b(?:calculate|compute|work out|percent\w*|per cent|ratio|difference|growth|margin|plus|minus)\b": 0.5,
        },
        "Return the number and how it was worked out.",
    ),
    _kind(
        "write",
        "write writer writes draft memo summary summarise summarize recommend recommendation editor prose letter",
        {
            r"^(?:write|draft|compose|summari[sz]e|recommend|advise|suggest|propose|conclude|outline|prepare)\b": 1.0,
            # what is made for a newsletter is not the newsletter, and "when is it sent" asks for no text
            r"^(?!(?:when|who|where|why|how|which|is|are|did|does|has|have|may)\b).*"
            r"(?<!\bfor the )(?<!\bfor a )(?<!\bfor our )\b(?:memo|letter|briefing|summary|recommendation|"
            r"press release|newsletter|paragraph|e-?mail)\b": 0.9,
            r"^(?:compare|contrast|weigh|assess|explain|discuss|review)\b": 0.6,
            r"\b(?:should we|what do you (?:think|advise|recommend))\b": 0.6,
        },
        "Return short prose that rests only on the results it was given and names them.",
    ),
    _kind(
        "time",
        "date time clock calendar weekday timezone duration",
        {
            r"\b(?:what day|weekday|day of the week|what time|today'?s? date|the date today|time zone)\b": 1.0,
            r"\b(?:how many|number of)\s+(?:\w+\s+)?(?:days|weeks|hours|months|years)\s+(?:are there |is it )?"
            r"(?:between|until|since|from|to)\b": 1.0,
            r"\b(?:days?|weeks?|months?)\s+(?:after|before|from now)\b": 0.6,
        },
        "Return the date or the span of time, and from what it was reckoned.",
    ),
    _kind(
        "fetch",
        "http url web fetch download website internet online",
        {r"https?://": 1.0, r"\b(?:web ?(?:page|site)|url|download)\b": 0.9, r"\b(?:online|internet|the web)\b": 0.7},
        "Return what the page says about it, with its address.",
    ),
    _kind(
        "code",
        "python code script program sandbox execute",
        {r"\b(?:python|simulate|simulation|script|(?:run|execute|write) (?:some )?code|program)\b": 0.9},
        "Return what the program printed.",
    ),
    _kind(
        "documents",
        "document documents handbook manual policy policies notes articles search knowledge guide wiki passage archive "
        "minutes faq reviews leaflet folder brochure booklet pages",
        {
            r"\b(?:documents?|handbook|manual|polic(?:y|ies)|guidelines?|notes|leaflet|minutes|faq|wiki|guide)\b": 0.9,
            r"\b(?:says?|said|writes?|wrote|written|mentions?|stands?)\s+(?:about|on|in|of|regarding)\b": 1.0,
            r"\baccording to\b|^(?:research|investigate|read up on|look into)\b": 0.9,
            r"\b(?:allowed|permitted|forbidden|entitled|eligible)\b": 0.9,
            r"\b(?:rules?|procedures?)\b": 0.6,
            r"^(?:can|may|must|should|are|is)\s+(?:we|i|you|one|customers?|members?|patients?|staff|\w+s)\b": 0.6,
            r"^(?:how|when|where|what|who)\s+(?:do|can|should|must|may)\s+(?:we|i|you|one|a|an|the|\w+s)\b": 0.8,
            r"^why\b|\bwhat happen(?:s|ed)\b|\bwhat (?:is|are) (?:our|the) (?:rules?|terms|conditions|opening)\b": 0.6,
            r"\bdo(?:es)?\s+(?:\w+\s+){0,4}say\b": 0.9,
        },
        "Return the passages that say so, with their sources.",
    ),
    _kind(
        "data",
        "database sql table tables record records row rows query dataset data csv spreadsheet ledger register figures",
        {
            r"\b(?:how many|how much|number of|total|sum|average|mean|median|count|tally)\b": 0.8,
            r"\b(?:most|least|top|highest|lowest|largest|biggest|smallest|best|worst|busiest|fewest|oldest|youngest|newest|latest|"
            r"cheapest|longest|shortest|heaviest)\b": 0.7,
            rf"\b(?:by|per|each)\s+{_PART}\b": 0.6,
            r"^(?:list|which|who|rank|count)\b": 0.6,
            r"^what did (?:we|they|i|you) (?:win|lose)\b": 0.7,
            r"^how (?:did|has|have)\b.*\b(?:change|develop|grow|grown|fall|rise|increase)\w*\b.*\d": 0.8,
        },
        "Return the figures as a small table with the names they belong to.",
        open_=False,
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
OTHERWISE = "Return the answer and where it comes from."
_DAY = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?\b")
_CODES = frozenset(("eur", "usd"))
_DOING = """information find search look show list give tell draw plot chart graph picture write draft memo summarise
summarize summary report recommend compare convert exchange calculate compute work count total sum average
number amount top most least best worst highest lowest largest smallest many much percent percentage figure
figures value values result results answer detail details describe explain short brief long line bar pie table
per by say says passage name rank sort identify determine check get produce create make prepare include using
used"""
_GENERIC = frozenset(map(stem, _DOING.split()))


def asked(text: str) -> dict[str, float]:
    """The kinds of work a clause asks for, and how surely."""
    found: dict[str, float] = {}
    text = _DAY.sub("that day", text)  # which is no subtraction
    for kind in KINDS:
        strength = max((sure for pattern, sure in kind.asked if pattern.search(text)), default=0.0)
        if strength:
            found[kind.name] = strength
    return found


def done(name: str, says: str, tools: str) -> dict[str, float]:
    """The kinds of work somebody does who is called so, says this of themselves, and whose tools say that."""
    found: dict[str, float] = {}
    own, theirs = [{stem(word) for word in tokens(text)} for text in (f"{name} {says}", tools)]
    for kind in KINDS:
        if kind.name == "currency" and not kind.said & (own | theirs) - _CODES:
            continue  # a column of prices in euros converts nothing
        hits = len(kind.said & own) + (0.5 * len(kind.said & theirs) if kind.name not in ("write", "documents") else 0)
        if hits:
            found[kind.name] = min(1.0, 0.6 + 0.2 * hits)
    return found


def generic(term: str) -> bool:
    """Whether a term says what is to be done rather than what about."""
    return term in _GENERIC or term.isdigit()
