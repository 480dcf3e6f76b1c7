"""What a worker makes of results: quoted passages, charts, conversions between currencies, and texts made of facts."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct

from chargehand.models.artifacts import Figure, FoundPassage, Table
from chargehand.models.demo.request import (
    Clause,
    RefusedError,
    Token,
    content_stems,
    join_words,
    number_value,
    stem,
    stem_set,
    stems,
    tokenize,
    word_set,
)
from chargehand.models.demo.results import (
    DemoMaterial,
    as_number,
    column_numbers,
    format_value,
    number_columns,
    read_product,
)
from chargehand.models.demo.tools import ToolCard, card_words
from chargehand.models.request_facts import WorkerCard, Working
from chargehand.text.words import split_sentences

# --- passages: they answer a clause if they say every word of it

_MOST_QUOTED = 3
_FEW_WORDS = 2
"""A question of so few words asks for a topic: all that a document says about it is quoted."""
_NEGATION = "<negation>"
_ASKING = word_set(
    """many much long often old far find keep keeps tell there take takes last happen happens mean means explain
    describe search summarise summarize come comes work works"""
)
"""Words that ask, and say nothing of what is asked about."""
_SOURCES = stem_set(
    "document documentation docs note paper page file text material archive already know known found kept memory"
)
"""Words for any source. One of a kind, such as a policy, is named by a card, a tool or the passage itself."""
_WANTS_EXACT = frozenset({"which", "who", "how many", "how much", "where", "when"})
_AMOUNT_OR_TIME = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|half|once|twice|daily|weekly|monthly|yearly|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning|evening|noon|spring|summer|autumn|winter|frost)\b",
    re.IGNORECASE,
)
_WANTED = dict.fromkeys(
    ("how much", "how long", "how often", "how old", "how far", "how high", "how big", "when"), _AMOUNT_OR_TIME
) | {
    "where": re.compile(r"\b(?:in|at|on|near|behind|beside|under|above|opposite|next to)\b", re.IGNORECASE),
    "why": re.compile(
        r"\b(?:because|since|so|due|reasons?|causes?|therefore|otherwise|means?|when|if|for)\b", re.IGNORECASE
    ),
}
"""What a passage must have to answer a question."""
_OPENING = re.compile(r"\A(?:find out|say|tell (?:me|us)|find|report)\s+", re.IGNORECASE)


def _search_words(clause: Clause, tool: ToolCard, worker: WorkerCard) -> list[Token]:
    """What has to be found: the words of a clause without those that only name where to look."""
    words = [token for token in clause.content if token.text.lower() not in _ASKING]
    about = clause.about
    if about is None:
        return words
    sources = _SOURCES | card_words(worker) | _words(f"{tool.name} {tool.description}")
    wanted = [token for token in words if token.end > about.end()]
    wanted += [token for token in words if token.start < about.start() and token.stem not in sources]
    return sorted(wanted or words, key=lambda token: token.start)


def search_query(clause: Clause, tool: ToolCard, worker: WorkerCard) -> str:
    """What to search for: the words that have to be found, and the months and years of a period."""
    words = [token.text for token in _search_words(clause, tool, worker)]
    words += [word for period in clause.periods for word in period.words.split() if len(word) > 1]
    return " ".join(dict.fromkeys(words))


def _key(token: Token) -> str:
    return _NEGATION if token.is_negation else token.stem


@lru_cache(maxsize=2_000)
def _words(text: str) -> frozenset[str]:
    """The stems of a text; all negations are one."""
    return frozenset(map(_key, tokenize(text.replace("_", " "))))


def _passage_words(passage: FoundPassage) -> frozenset[str]:
    return _words(f"{passage.source.replace('-', ' ')} {passage.text} {' '.join(passage.tags)}")


def _document(passage: FoundPassage) -> str:
    return passage.source.partition("#")[0]


def accept_passages(
    clause: Clause, passages: Sequence[FoundPassage], tool: ToolCard, worker: WorkerCard
) -> Sequence[FoundPassage]:
    """The passages that account for every word of a clause.

    A topic ("what do our notes say about X") may be spread over one document; a question is answered by one passage.
    """
    place = "the archive" if tool.kind == "archive" else "the documents"
    wanted = {_key(token): token.text for token in _search_words(clause, tool, worker)}
    times = {stem(word): word for period in clause.periods for word in period.words.split()}
    times = {word: text for word, text in times.items() if not text.isdigit() or len(text) == 4}
    wanted |= times
    if not wanted:
        raise RefusedError(f"{place} cannot be searched for this: it names nothing to look for")
    if _NEGATION in wanted and clause.question in _WANTS_EXACT:
        raise RefusedError(f"{place} cannot be asked what is not so")
    is_topic = clause.about is not None or (clause.question == "what" and len(wanted) <= _FEW_WORDS)
    documents: dict[str, set[str]] = {}
    for passage in passages:
        documents.setdefault(_document(passage), set()).update(_passage_words(passage))
    accepted: list[FoundPassage] = []
    for passage in passages:
        own = _passage_words(passage)
        says_all = wanted.keys() <= (documents[_document(passage)] if is_topic else own)
        says_most = 2 * len(wanted.keys() & own) > len(wanted) - (clause.about is None)
        if says_all and says_most and times.keys() <= own and _may_answer(clause, passage):
            accepted.append(passage)
    if accepted:
        return accepted[:_MOST_QUOTED]
    spoken = wanted.keys() & frozenset[str]().union(*map(_passage_words, passages))
    lacking = join_words([text for word, text in wanted.items() if word not in spoken])
    reason = f"no passage speaks of {lacking}" if lacking else "no passage has all of it"
    words = _OPENING.sub("", clause.text.rstrip("?. "))
    raise RefusedError(f"not found in {place}: {words[:1].lower()}{words[1:]}; {reason}")


def _may_answer(clause: Clause, passage: FoundPassage) -> bool:
    """Whether a passage has what a question wants: a number, a place, a reason; "how many" a number of the thing."""
    if clause.question != "how many":
        pattern = _WANTED.get(clause.question)
        return pattern is None or pattern.search(passage.text) is not None
    words = [token.stem for token in clause.content]
    counted = set(words[words.index("many") + 1 :][:1])
    for sentence in split_sentences(passage.text):
        tokens = tokenize(sentence)
        for place, token in enumerate(tokens):
            is_number = number_value(token.text) is not None and token.text.lower() != "one"
            if is_number and counted.intersection(other.stem for other in tokens[place + 1 : place + 4]):
                return True
    return False


# --- charts

_TIME_LABEL = re.compile(r"\d{4}(?:-\d\d){0,2}")
_CHART_OF = re.compile(
    r"\b(?:charts?|graphs?|plots?|diagrams?)\s+(?:of|for|showing|about|with)\s+(?P<what>.+)", re.IGNORECASE
)
_DRAWING = stem_set("draw plot chart graph visualise visualize bar line diagram picture result")
_MOST_VALUES = 50


def chart_subject(clause: Clause) -> str:
    """What a clause wants drawn, in its own words; nothing where it only points back."""
    match = _CHART_OF.search(clause.text)
    what = (match["what"] if match else clause.text.partition(" ")[2]).rstrip("?. ")
    return what.removeprefix("the ") if content_stems(what) - _DRAWING else ""


def chart_arguments(clause: Clause, material: DemoMaterial) -> dict[str, object]:
    """The arguments of a chart of the first table of numbers that was given."""
    words = clause.stems
    if "pie" in words:
        raise RefusedError("only bars and lines can be drawn")
    tables = [table for table in material.of(Table) if number_columns(table)]
    if not tables or len(tables[0].rows) > _MOST_VALUES:
        raise RefusedError(f"there is no table of at most {_MOST_VALUES} numbers to draw")
    table = tables[0]
    numbers = number_columns(table)
    value_at = next((at for at in numbers if words.intersection(stems(table.columns[at]))), numbers[0])
    label_at = next((at for at in range(len(table.columns)) if at not in numbers), 0)
    rows = [row for row in table.rows if row[value_at] is not None]
    labels = [str(row[label_at]) for row in rows]
    title = chart_subject(clause) or f"{table.columns[value_at]} by {table.columns[label_at]}".replace("_", " ")
    over_time = all(_TIME_LABEL.fullmatch(label) for label in labels)
    return {
        "title": title[:1].upper() + title[1:],
        "labels": labels,
        "values": [row[value_at] for row in rows],
        "kind": "line" if ("line" in words or over_time) and "bar" not in words else "bar",
    }


# --- currencies

_CURRENCIES = {
    "USD": r"\b(?:to|into|in) (?:us[- ]?)?dollars?\b|\busd\b",
    "GBP": r"\b(?:to|into|in) (?:british )?pounds?\b|\bgbp\b",
    "CHF": r"\b(?:to|into|in) swiss francs?\b|\bchf\b",
}
_NAMED_AMOUNT = re.compile(
    r"convert (?P<amount>\d[\d,]*(?:\.\d+)?) (?:euros?|eur) (?:to|into) (?:\w+ )?\w+ (?:at the rate of|on) \d",
    re.IGNORECASE,
)


class Conversion(Struct, frozen=True):
    """An amount in euros, the currency it is turned into, and how the rate is asked for."""

    amount: Decimal
    target: str
    arguments: dict[str, object]

    def in_words(self, result: str, rate: Figure) -> str:
        target = f"{format_value(as_number(result), 2)} {self.target}"
        label = rate.label or f"{self.target} per EUR"
        return f"Converted amount: {target} ({format_value(self.amount, 2)} EUR at {rate.value} {label})."


def read_conversion(clause: Clause, tool: ToolCard, material: DemoMaterial) -> Conversion:
    """The conversion of the amount that was given, else of the one that the clause names."""
    targets = [code for code, pattern in _CURRENCIES.items() if re.search(pattern, clause.text, re.IGNORECASE)]
    currencies = [parameter.name for parameter in tool.parameters if set(targets).intersection(parameter.choices)]
    if len(targets) != 1 or len(currencies) != 1:
        raise RefusedError("there is no rate from EUR to the one currency that is named")
    days = [period.first.isoformat() for period in clause.periods if period.is_day and period.year]
    parameters = [parameter.name for parameter in tool.parameters if parameter.type == "day"]
    if len(parameters) != 1 or len(days) != 1:
        raise RefusedError("the day of the rate is not said; name one, such as 29 May 2026")
    return Conversion(_read_amount(clause, material), targets[0], {currencies[0]: targets[0], parameters[0]: days[0]})


def _read_amount(clause: Clause, material: DemoMaterial) -> Decimal:
    """The amount in euros that a clause names, else the one number of the one table that was given."""
    tables = material.of(Table)
    amount = _NAMED_AMOUNT.match(clause.text)
    if amount and not tables:
        return Decimal(amount["amount"].replace(",", ""))
    if len(tables) == 1 and len(tables[0].rows) == 1 and len(number_columns(tables[0])) == 1:
        column = number_columns(tables[0])[0]
        if tables[0].columns[column].lower().endswith("_eur"):
            return column_numbers(tables[0], column)[0]
    raise RefusedError("which amount in euros is to be converted is not clear")


# --- texts

_FORMS = {form: form.capitalize() for form in word_set("memo report summary outline letter reply note overview")}
_WRITING = stem_set("write draft compose short brief paragraph sentence blog memo based findings result them client")


def text_form(clause: Clause) -> str:
    """Memo, letter and so on; nothing for forms that cannot be put together from facts."""
    return next((_FORMS[token.text.lower()] for token in clause.tokens if token.text.lower() in _FORMS), "")


def writing_leftover(clause: Clause, known_stems: set[str]) -> list[str]:
    """Words of a writing clause that neither writing nor the rest of the request accounts for."""
    accounted = known_stems | _WRITING
    return [token.text for token in clause.content if token.stem not in accounted and token.text.lower() not in _FORMS]


def write_text(clause: Clause, subject: Working) -> str:
    """The facts that were given, in order, under a heading: no prose of its own."""
    form = text_form(clause)
    if not form:
        raise RefusedError("only memos, letters, reports and other texts made of facts can be put together here")
    texts = [read_product(result.value).text for result in subject.inputs]
    facts = [f"- {line.strip()}" for text in texts for line in text.splitlines() if line.strip()]
    if not facts:
        raise RefusedError("there are no results to write from")
    missing = [f"- {gap.message}" for gap in subject.gaps if gap.message]
    sections = [form, "\n".join(facts)]
    if missing:
        sections.append("\n".join(["Not known:", *missing]))
    return "\n\n".join(sections)
