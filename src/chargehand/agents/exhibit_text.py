"""A result as Markdown: its words, its tables and figures, its sources. Nothing is added.

For readers, passages that have nothing to do with it are left out; those that judge it get them, too.
"""

from collections.abc import Sequence

import msgspec

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passage, Passages, Product, Table
from chargehand.models.subject import Given
from chargehand.text.words import split_words

_ROWS = 20


def shown(given: Given, *, whole: bool = False) -> str:
    """A result with what backs it. `whole`: also what hardly does; who judges it must see all that was found."""
    if isinstance(given.value, str):
        return given.value
    try:
        product = msgspec.convert(given.value, Product)
    except msgspec.ValidationError:
        return msgspec.json.format(msgspec.json.encode(given.value), indent=2).decode()
    idle = frozenset[str]() if whole else _idle(product)
    parts = [product.text, *(text for one in product.exhibits if (text := _exhibit(one, product.text, idle)))]
    named = f"Sources: {', '.join(one for one in product.sources if one not in idle)}"
    if product.sources and not product.text.endswith(named):  # the answer of a team has them already
        parts.append(named)
    return "\n\n".join(parts)


def _idle(product: Product) -> frozenset[str]:
    """Passages that whoever answered did not name, while naming others, and that say clearly less of what was asked."""
    held = [one for one in product.exhibits if isinstance(one, Passages)]
    found = [one for several in held for one in several.found]
    named = {one.source for one in found if one.source and one.source in product.text}
    best = max((one.score for one in found if one.source in named), default=0.0)
    kept = {source for several in held for source in _telling(several, named, best / 3)}
    return frozenset(one.source for one in found if one.source not in kept | named) if named else frozenset()


def _telling(several: Passages, named: set[str], least: float) -> list[str]:
    """Those with a word that was searched for and is not in all of them, where those that were named have one."""
    words = {one.source: _words(f"{one.source} {one.text}") for one in several.found}
    common = set[str].intersection(*words.values()) if len(words) > 2 else set[str]()
    wanted = _words(several.query) - common
    told = any(wanted & said for source, said in words.items() if source in named)
    own = [one for one in several.found if wanted & words[one.source] - _words(_file(one)) or not told]
    return [one.source for one in own if one.score >= least]


def _file(one: Passage) -> str:
    return one.source.partition("#")[0].lower()


def _words(text: str) -> set[str]:
    return {word for word in split_words(text) if len(word) > 2}


def _exhibit(exhibit: Exhibit, said: str, idle: frozenset[str]) -> str:
    """An exhibit; nothing of it where the words of the result have it already."""
    found = _drawn(exhibit, " ".join(said.split()), idle)
    return "" if found in said else found


def _drawn(exhibit: Exhibit, said: str, idle: frozenset[str]) -> str:
    match exhibit:
        case Table():
            return _table(exhibit)
        case Chart():
            return f"Chart: {exhibit.title}" + (f" ({exhibit.summary})" if exhibit.summary else "")
        case Figure():
            return f"{exhibit.expression} = {exhibit.value} {exhibit.unit}".strip() if exhibit.expression else ""
        case Passages():
            told = [one for one in exhibit.found[:3] if one.source not in idle]
            quoted = [one for one in told if " ".join(one.text.split()) not in said or one.source not in said]
            return "\n".join(f"> {one.text.strip()}\n> ({one.source})" for one in quoted)


def _table(table: Table) -> str:
    rows = [_row(table.columns), _row(["---"] * len(table.columns)), *map(_row, table.rows[:_ROWS])]
    more = table.more + max(0, len(table.rows) - _ROWS)
    return "\n".join(rows) + (f"\n\n… and {more} more rows" if more else "")


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str('' if one is None else one).replace('|', '/') for one in cells)} |"
