"""A tool that computes: exact decimal arithmetic, and the expression kept beside the number."""

import decimal
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from chargehand.models.exhibits import Figure
from chargehand.text.names import did_you_mean
from chargehand.tools.tool import Tool, ToolFailed, tool

LENGTH = 500
DEPTH = 50
DIGITS = 50
SHOWN = 28
_LARGEST = 9_999  # powers of ten; far more than anybody means, and quick to compute with

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_]+)|(?P<operator>\*\*|//|[-+*/%^(),\u00d7\u00f7\u00b7\u2212])"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]+)?(?![0-9.])")
_SPELLINGS = {"^": "**", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "of": "*"}
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "**": 4}
_UNARY = 3

Kind: TypeAlias = Literal["number", "name", "operator", "end"]


class NotComputable(Exception):
    """Why there is no number, in words."""


class Token(Struct, frozen=True, gc=False):
    kind: Kind
    text: str
    place: int


def compute(expression: str) -> Decimal:
    """The value of an expression; NotComputable says what is wrong with it, and where."""
    if len(expression) > LENGTH:
        raise NotComputable(f"the expression has {len(expression)} characters; {LENGTH} is the most, split it")
    parser = _Parser(_tokens(expression))
    try:
        return parser.whole()
    except (decimal.Overflow, decimal.Underflow):
        raise NotComputable(f"a number gets larger or smaller than 10 to the power of {_LARGEST:,} allows") from None
    except decimal.DivisionByZero:
        raise NotComputable("division by zero") from None
    except decimal.InvalidOperation as error:
        raise NotComputable(_invalid(error)) from None


def shown(value: Decimal) -> str:
    """Whole numbers in full; others to 28 digits, which hides the noise of the last ones. Never 1E+3."""
    if value == value.to_integral_value() and value.adjusted() < DIGITS:
        return f"{value.quantize(Decimal(1), context=_context()):f}" if value else "0"
    short = decimal.Context(prec=SHOWN, Emax=_LARGEST, Emin=-_LARGEST).plus(value).normalize()
    return f"{short:f}" if -10 <= short.adjusted() < DIGITS else str(short)


def _context() -> decimal.Context:
    traps = [decimal.Overflow, decimal.Underflow, decimal.DivisionByZero, decimal.InvalidOperation]
    return decimal.Context(DIGITS, decimal.ROUND_HALF_UP, -_LARGEST, _LARGEST, traps=traps)


def _invalid(error: decimal.InvalidOperation) -> str:
    causes = list(error.args[0]) if error.args else []
    if decimal.DivisionUndefined in causes:
        return "division of zero by zero"
    if decimal.DivisionImpossible in causes:
        return f"a whole quotient of more than {DIGITS} digits"
    return "not defined for these numbers: a root or a broken power of a negative number, or 0 ** 0"


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    # for every open bracket: does a function's name stand before it?
    place = 0
    calls = list[bool]()
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        grouped = None if any(calls) else _THOUSANDS.match(text, place)
        match = grouped or _TOKEN.match(text, place)
        if match is None:
            problem = f"{text[place]!r} at character {place + 1} is no part of arithmetic"
            raise NotComputable(f"{problem}: give the numbers themselves, not names or conditions")
        token = _token(match, grouped is not None, place)
        if token.text == "(":
            calls.append(bool(found) and found[-1].kind == "name")
        elif token.text == ")" and calls:
            calls.pop()
        found.append(token)
        place = match.end()
    return [*found, Token("end", "", len(text))]


def _token(match: re.Match[str], grouped: bool, place: int) -> Token:  # noqa: FBT001 - one caller, right above
    text = match[0]
    if grouped or match["number"]:
        plain = text.replace(",", "").replace("_", "")
        if sum(letter.isdigit() for letter in plain.lower().partition("e")[0]) > DIGITS:
            raise NotComputable(f"the number at character {place + 1} has more than {DIGITS} digits")
        return Token("number", plain, place)
    text = _SPELLINGS.get(text.lower() if match["name"] else text, text)
    return Token("name" if match["name"] and text != "*" else "operator", text, place)


class _Parser:
    """Precedence climbing. `depth` bounds the recursion, the length of the text everything else."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._numbers = _context()

    def whole(self) -> Decimal:
        value = self._expression(0)
        if self._now.kind != "end":
            raise self._unexpected()
        return value

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._now
        self._at += token.kind != "end"
        return token

    def _unexpected(self) -> NotComputable:
        token = self._now
        if token.kind == "end":
            return NotComputable("the expression ends too early: a number, a name or a bracket is missing")
        return NotComputable(f"{token.text!r} at character {token.place + 1} does not belong there")

    def _expression(self, least: int) -> Decimal:
        self._depth += 1
        if self._depth > DEPTH:
            raise NotComputable(f"more than {DEPTH} levels of brackets, signs or powers; split it")
        left = self._operand()
        while True:
            token = self._now
            if token.text == "%" and token.kind == "operator" and not self._operand_follows():
                self._at += 1
                left = self._numbers.divide(left, Decimal(100))
                continue
            binds = _BINDS.get(token.text, 0) if token.kind == "operator" else 0
            if binds <= least:
                break
            self._at += 1
            # a power is worked out from the right: 2 ** 3 ** 2 is 2 ** 9
            left = self._apply(token.text, left, self._expression(binds - 1 if token.text == "**" else binds))
        self._depth -= 1
        return left

    def _operand_follows(self) -> bool:
        """Whether a % is a remainder: then a number, a name or a bracket comes next, else it is a percent sign."""
        following = self._tokens[self._at + 1]
        return following.kind in ("number", "name") or following.text == "("

    def _operand(self) -> Decimal:
        token = self._now
        if token.kind == "number":
            self._at += 1
            return self._numbers.create_decimal(token.text)
        if token.kind == "name":
            return self._function()
        if token.text in ("+", "-"):
            self._at += 1
            value = self._expression(_UNARY)
            return self._numbers.minus(value) if token.text == "-" else value
        if token.text != "(":
            raise self._unexpected()
        self._at += 1
        value = self._expression(0)
        self._close(token.place)
        return value

    def _close(self, opened: int) -> None:
        if self._now.text != ")":
            if self._now.kind == "end":
                raise NotComputable(f"the bracket at character {opened + 1} is never closed")
            raise self._unexpected()
        self._at += 1

    def _function(self) -> Decimal:
        token = self._next()
        name = token.text.lower()
        if name not in FUNCTIONS:
            raise NotComputable(f"there is no {token.text!r}; {did_you_mean(name, FUNCTIONS)}")
        if self._next().text != "(":
            raise NotComputable(f"{name} needs its numbers in brackets, for example {name}(2)")
        numbers = [self._expression(0)] if self._now.text != ")" else []
        while self._now.text == ",":
            self._at += 1
            numbers.append(self._expression(0))
        self._close(token.place + len(token.text))
        least, most, work = FUNCTIONS[name]
        if not least <= len(numbers) <= most:
            wanted = str(least) if least == most else f"{least} or {most}" if most == 2 else f"at least {least}"
            raise NotComputable(
                f"{name} takes {wanted} number{'' if wanted.endswith('1') else 's'}, not {len(numbers)}"
            )
        return work(self._numbers, numbers)

    def _apply(self, operator: str, left: Decimal, right: Decimal) -> Decimal:
        return _OPERATIONS[operator](self._numbers, left, right)


def _whole_quotient(numbers: decimal.Context, left: Decimal, right: Decimal) -> Decimal:
    """Rounded down, as with whole numbers in Python; Decimal itself cuts towards zero."""
    quotient = numbers.divide_int(left, right)
    rest = numbers.remainder(left, right)
    return numbers.subtract(quotient, Decimal(1)) if rest and (rest < 0) != (right < 0) else quotient


def _remainder(numbers: decimal.Context, left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise decimal.DivisionByZero
    rest = numbers.remainder(left, right)
    return numbers.add(rest, right) if rest and (rest < 0) != (right < 0) else rest


def _power(numbers: decimal.Context, left: Decimal, right: Decimal) -> Decimal:
    if not left and right < 0:
        raise decimal.DivisionByZero
    return numbers.power(left, right)


def _sum(numbers: decimal.Context, given: list[Decimal]) -> Decimal:
    total = Decimal(0)
    for number in given:
        total = numbers.add(total, number)
    return total


def _round(numbers: decimal.Context, given: list[Decimal]) -> Decimal:
    places = given[1] if len(given) == 2 else Decimal(0)
    if places != places.to_integral_value() or not -DIGITS <= places <= DIGITS:
        raise NotComputable(f"round takes a whole number of places up to {DIGITS}")
    if given[0].adjusted() + places >= DIGITS:
        return given[0]  # there is nothing left to round away
    return given[0].quantize(Decimal(1).scaleb(-int(places)), context=numbers)


_OPERATIONS: dict[str, Callable[[decimal.Context, Decimal, Decimal], Decimal]] = {
    "+": decimal.Context.add,
    "-": decimal.Context.subtract,
    "*": decimal.Context.multiply,
    "/": decimal.Context.divide,
    "//": _whole_quotient,
    "%": _remainder,
    "**": _power,
}
FUNCTIONS: dict[str, tuple[int, int, Callable[[decimal.Context, list[Decimal]], Decimal]]] = {
    "sqrt": (1, 1, lambda numbers, given: numbers.sqrt(given[0])),
    "round": (1, 2, _round),
    "abs": (1, 1, lambda numbers, given: numbers.abs(given[0])),
    "min": (1, LENGTH, lambda _, given: min(given)),
    "max": (1, LENGTH, lambda _, given: max(given)),
    "sum": (1, LENGTH, _sum),
    "avg": (1, LENGTH, lambda numbers, given: numbers.divide(_sum(numbers, given), Decimal(len(given)))),
}


_DESCRIPTION = """Work out a number exactly. Operators + - * / // % ** and brackets; functions sqrt round abs min max
sum avg; "12% of 250" is 30. Halves are rounded up. In a function commas separate numbers, elsewhere 1,234.5 is one."""


def calculator(name: str = "calculate") -> Tool:
    return tool(
        name=name, description=_DESCRIPTION, quick=True, trusted=True, stable=True, summary="computes a number exactly"
    )(calculate)


def calculate(
    expression: Annotated[str, "Arithmetic with numbers only, for example (1204.5 - 980) / 980 * 100"],
) -> Figure:
    try:
        value = compute(expression)
    except NotComputable as problem:
        raise ToolFailed(f"cannot compute {_short(expression)!r}: {problem}") from problem
    return Figure(shown(value), " ".join(expression.split()))


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "..."
