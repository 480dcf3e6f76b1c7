"""Currencies in a text, as codes: by code, by sign and by name."""

import re

_NAMES = {
    "USD": r"(?:us |american )?dollars?|usd|\$", "EUR": r"euros?|eur|\u20ac",
    "GBP": r"(?:british )?pounds?(?: sterling)?|sterling|gbp|\u00a3", "CHF": r"(?:swiss )?francs?|chf",
    "SEK": r"(?:swedish )?kron(?:a|or)|sek", "NOK": r"norwegian krone[rn]?|nok", "DKK": r"danish krone[rn]?|dkk",
    "JPY": r"(?:japanese )?yen|jpy", "CNY": r"(?:chinese )?yuan|renminbi|cny", "INR": r"(?:indian )?rupees?|inr",
    "CAD": r"canadian dollars?|cad", "AUD": r"australian dollars?|aud", "PLN": r"zloty|pln", "CZK": r"koruna|czk",
    "BRL": r"brazilian reai?s?|brl", "MXN": r"mexican pesos?|mxn",
}  # fmt: skip
_ANY = [
    (code, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE))
    for code, pattern in sorted(_NAMES.items(), key=lambda pair: pair[0] == "USD")
]


def currencies(text: str) -> list[str]:
    """The codes of the currencies a text names, in the order it names them."""
    found: dict[int, str] = {}
    left = text
    for code, pattern in _ANY:  # "Canadian dollars" are taken before "dollars" are looked for
        for match in pattern.finditer(left):
            found.setdefault(match.start(), code)
        left = pattern.sub(lambda match: "#" * len(match[0]), left)
    return list(dict.fromkeys(code for _, code in sorted(found.items())))


def without_currencies(text: str) -> str:
    """A text without the currencies it names."""
    for _, pattern in _ANY:
        text = pattern.sub(" ", text)
    return text
