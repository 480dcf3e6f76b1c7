"""A query for a search: the words of a task that carry its subject, with quotations and names whole."""

import re
from collections.abc import Sequence

from chargehand.models.exhibits import Passages, Table
from chargehand.models.offline.task_text import asked
from chargehand.models.offline.vocabulary import MONTHS
from chargehand.models.offline.words import STOP, dates, quoted, related, stem, terms

_ORDERS = """find search look check say says state tell report information details know document documents
passage passages please read consult archive according mention mentions quote cite determine identify retrieve list
learn out get give show collect gather summarise summarize explain describe whatever anything everything file files
current currently exactly respective regarding concerning related relevant bullet bullets point points short brief memo
summary paragraph sentence sentences words extract pull research review analyse analyze examine investigate study"""
_COMMANDS = frozenset(map(stem, _ORDERS.split()))
# when and how much somebody says something happens: no document has to say it
_TIMELY = """since yesterday today tonight nightly ago still already again really lately recently always suddenly quite
now currently actually maybe somehow anymore wants needs keeps happen happens happened
entitled"""
_PASSING = frozenset(_TIMELY.split())
# how a number is asked for: the answer holds the number, and not the word
MEASURED = re.compile(
    r"how\s+(?:long|often|far|old|high|low|big|large|small|soon|late|early|tall|wide|deep|heavy|fast|quickly)\b",
    re.IGNORECASE,
)
_MOST = 14
_FEW = 5


def query(text: str, tables: Sequence[Table] = ()) -> str:
    """Content words in their order, and the names in these tables; a search over words needs no grammar."""
    body = asked(text)
    kept: list[str] = [f'"{one}"' for one in quoted(body)]
    bare = MEASURED.sub(" ", _undated(body))
    for one in quoted(body):
        bare = bare.replace(one, " ")
    for word in re.findall(r"[\w'\u2019-]+", bare):
        plain = re.sub(r"['\u2019]s$", "", word).strip("'\u2019-_")
        if plain and plain.lower() not in STOP | {"may"} and stem(plain.lower()) not in _COMMANDS:
            kept.append(plain)
    kept += [name for table in tables for name in _names(table)]
    kept += [MONTHS[int(one.normal[5:7]) - 1].capitalize() for one in dates(body) if one.normal[5:7].isdigit()]
    return " ".join(list(dict.fromkeys(kept))[:_MOST]) or body[:200]


def _undated(text: str) -> str:
    """Periods are left out: a year or a quarter stands in many documents and says little about any."""
    for one in reversed(dates(text)):
        text = text[: one.start] + " " + text[one.end :]
    return text


def strangers(text: str, found: Passages, about: str = "") -> list[str]:
    """The words of a task the best passage does not know, where these are most: it is then about something else.

    Words of `about` do not count: they name the documents, and not what is looked for in them.
    """
    own = set(terms(about))
    said = [word for word in query(_undated(text)).replace('"', " ").split() if word.isalpha()]
    said = [word for word in said if word.lower() not in _PASSING]
    exact = [one.lower() for one in quoted(text)]
    wanted = {stem(word.lower()): word for word in said if stem(word.lower()) not in own}
    lost: list[list[str]] = []
    for one in found.found:
        if exact and all(word in one.text.lower() for word in exact):
            return []  # what was quoted stands there word for word
        known = set(terms(f"{one.source} {one.text}"))
        lost.append([word for term, word in wanted.items() if not any(related(term, other) >= 0.6 for other in known)])
    best = min(lost, key=len) if lost else list[str]()
    return best if 2 * len(best) > len(wanted) else []


def _names(table: Table) -> list[str]:
    """What the rows of a table are called, where a question points to them."""
    if not table.rows or not isinstance(table.rows[0][0], str):
        return []
    return [word for row in table.rows[:_FEW] for word in str(row[0]).split()]


def shorter(text: str) -> str:
    """A broader query for when nothing was found: the longest words only."""
    words = [word for word in text.replace('"', "").split() if not word[:1].isdigit()]
    return " ".join(sorted(words, key=lambda word: -len(word))[: max(1, min(3, len(words) - 1))])
