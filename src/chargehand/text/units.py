"""Units of measure: in one spelling, and how one is worked out from another. Pure."""

import re
from decimal import Decimal

_FACTORS: dict[str, dict[str, str]] = {
    "length": {"mm": "0.001", "cm": "0.01", "m": "1", "km": "1000", "in": "0.0254", "ft": "0.3048", "mi": "1609.344"},
    "mass": {"mg": "0.000001", "g": "0.001", "kg": "1", "t": "1000"},
    "time": {"ms": "0.001", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "data": {"kb": "1000", "mb": "1000000", "gb": "1000000000", "tb": "1000000000000"},
    "speed": {"m/s": "1", "km/h": "0.2777777778", "mph": "0.44704"},
    "area": {"m²": "1", "ha": "10000", "km²": "1000000"},
    "energy": {"wh": "1", "kwh": "1000", "mwh": "1000000"},
    "volume": {"ml": "0.001", "l": "1"},
}
_DIMENSIONS = {unit: (name, Decimal(factor)) for name, units in _FACTORS.items() for unit, factor in units.items()}
_MONEY = frozenset(("eur", "usd", "gbp", "jpy", "chf"))
_SPELLINGS = {
    "%": "%",
    "percent": "%",
    "pct": "%",
    "prozent": "%",
    "$": "usd",
    "€": "eur",
    "£": "gbp",
    "¥": "jpy",
    "euro": "eur",
    "dollar": "usd",
    "franc": "chf",
    "franken": "chf",
    "yen": "jpy",
    "metre": "m",
    "meter": "m",
    "kilometre": "km",
    "kilometer": "km",
    "centimetre": "cm",
    "centimeter": "cm",
    "millimetre": "mm",
    "millimeter": "mm",
    "foot": "ft",
    "feet": "ft",
    "mile": "mi",
    "inch": "in",
    "inche": "in",
    "gram": "g",
    "kilogram": "kg",
    "kilo": "kg",
    "tonne": "t",
    "second": "s",
    "sec": "s",
    "sekunde": "s",
    "minute": "min",
    "hour": "h",
    "hr": "h",
    "stunde": "h",
    "tag": "day",
    "woche": "week",
    "sekunden": "s",
    "minuten": "min",
    "stunden": "h",
    "tagen": "day",
    "tage": "day",
    "wochen": "week",
    "kmh": "km/h",
    "kph": "km/h",
    "m2": "m²",
    "sqm": "m²",
    "km2": "km²",
    "hectare": "ha",
    "litre": "l",
    "liter": "l",
    "c": "°c",
    "celsius": "°c",
    "f": "°f",
    "fahrenheit": "°f",
}
_BEHIND = re.compile(r"\s?(%|°\s?[cCfF]\b|m/s\b|km/h\b|mph\b|(?:km|m)(?:²|2\b)|[$€£¥]|[^\W\d_]{1,20})", re.IGNORECASE)
_HIDDEN = frozenset(
    ("in", "m", "s", "t", "c", "f", "g", "l")
)  # letters that mean something else beside a number in a key


def spell_unit(word: str) -> str:
    """A unit in its one spelling; empty for what is none."""
    plain = word.casefold().replace(" ", "")
    plain = _SPELLINGS.get(plain, plain)
    if plain not in _DIMENSIONS and plain not in _MONEY and plain.endswith("s"):
        plain = _SPELLINGS.get(plain[:-1], plain[:-1])
    known = plain in _DIMENSIONS or plain in _MONEY or plain in ("%", "°c", "°f")
    return plain if known else ""


def unit_behind(text: str, end: int) -> str:
    """The unit that stands behind a number that ends here."""
    found = _BEHIND.match(text, end)
    return spell_unit(found[1]) if found is not None and found[1].casefold() != "in" else ""


def unit_of_key(words: list[str]) -> str:
    """The unit a key ends with: `total_eur`, `wind_m_s`, `uptime_days`."""
    if len(words) < 2:
        return spell_unit(words[0]) if words and words[0] not in _HIDDEN and len(words[0]) > 3 else ""
    last_two = f"{words[-2]}/{words[-1]}"
    return last_two if last_two in _DIMENSIONS else spell_unit(words[-1])


def convert(value: Decimal, unit: str, wanted: str) -> Decimal | None:
    """A value in another unit of its kind; None where there is no way."""
    if unit == "°c" and wanted == "°f":
        return value * 9 / 5 + 32
    if unit == "°f" and wanted == "°c":
        return (value - 32) * 5 / 9
    if unit == wanted:
        return value
    kind, factor = _DIMENSIONS.get(unit, ("", Decimal(1)))
    wanted_kind, wanted_factor = _DIMENSIONS.get(wanted, ("", Decimal(1)))
    return value * factor / wanted_factor if kind and kind == wanted_kind else None
