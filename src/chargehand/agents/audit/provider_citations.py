"""Citations by providers: whether the text that one cites stands in what the worker was given.

None of them counts as traced.
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from chargehand.engine.facts import Citation
from chargehand.engine.value import encode_or_text

_LEAST = 8  # characters of a cited text that can be looked up: fewer stand anywhere


def confirm(citations: Sequence[Citation], texts: Iterable[object]) -> tuple[Citation, ...]:
    """Return the citations, those as confirmed whose text stands in one of the texts.

    Blanks and upper case do not count: providers read the pages of a PDF otherwise than we do.
    """
    plain = [_plain(text) for text in texts]
    return tuple([structs.replace(cited, confirmed=_stands_in(cited.text, plain)) for cited in citations])


def _stands_in(text: str, plain: Sequence[str]) -> bool:
    wanted = _plain(text)
    return len(wanted) >= _LEAST and any(wanted in each for each in plain)


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else bytes(encode_or_text(value)[0]).decode()
    return "".join(text.split()).casefold()
