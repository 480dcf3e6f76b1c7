"""A tool that computes: exact decimal arithmetic, and the expression kept beside the number.

The text is read by a small parser of its own and bounded, so that it always ends soon. No code is made of it.
"""

import decimal
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from chargehand.models.artifacts import Figure
from chargehand.text.names import did_you_mean
from chargehand.tools.tool import Tool, ToolFailed, tool

_MAX_CHARS = 500
_MAX_DEPTH = 50
_DIGITS = 50
_DIGITS_SHOWN = 28
_MAX_EXPONENT = 9_999  # far more than anybody means, and quick to compute with
_TRAPS = [decimal.Overflow, decimal.Underflow, decimal.DivisionByZero, decimal.InvalidOperation]
_CONTEXT = decimal.Context(_DIGITS, decimal.ROUND_HALF_UP, -_MAX_EXPONENT, _MAX_EXPONENT, traps=_TRAPS)

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_]+)|(?P<operator>\*\*|//|[-+*/%^(),\u00d7\u00f7\u00b7\u2212])"
)
_THOUSANDS = re.compile(r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]+)?(?![0-9.]))(?P<name>)?")
_SPELLINGS = {"^": "**", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "of": "*"}
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
        short = expression if len(expression) <= 80 else expression[:80] + "..."
        raise ToolFailed(f"cannot compute {short!r}: {problem}") from problem
    return Figure(format_number(value), " ".join(expression.split()))


class NotComputable(Exception):
    """Why there is no number, in words."""


def compute(expression: str) -> Decimal:
    """The value of an expression; NotComputable says what is wrong with it, and where."""
    if len(expression) > _MAX_CHARS:
        raise NotComputable(f"the expression has {len(expression)} characters; {_MAX_CHARS} is the most, split it")
    parser = _ExpressionParser(_tokens(expression))
    try:
        with decimal.localcontext(_CONTEXT):
            return parser.parse()
    except (decimal.Overflow, decimal.Underflow):
        limit = f"10 to the power of {_MAX_EXPONENT:,}"
        raise NotComputable(f"a number gets larger or smaller than {limit} allows") from None
    except decimal.DivisionByZero:
        raise NotComputable("division by zero") from None
    except decimal.InvalidOperation as error:
        causes = list(error.args[0]) if error.args else []
        if decimal.DivisionUndefined in causes:
            raise NotComputable("division of zero by zero") from None
        if decimal.DivisionImpossible in causes:
            raise NotComputable(f"a whole quotient of more than {_DIGITS} digits") from None
        words = "a root or a broken power of a negative number, or 0 ** 0"
        raise NotComputable(f"not defined for these numbers: {words}") from None


def format_number(value: Decimal) -> str:
    """Whole numbers in full; others to 28 digits, which hides the noise of the last ones. Never 1E+3."""
    if value == value.to_integral_value() and value.adjusted() < _DIGITS:
        return f"{value.quantize(Decimal(1), context=_CONTEXT):f}" if value else "0"
    short = decimal.Context(prec=_DIGITS_SHOWN, Emax=_MAX_EXPONENT, Emin=-_MAX_EXPONENT).plus(value).normalize()
    return f"{short:f}" if -10 <= short.adjusted() < _DIGITS else str(short)


# --- tokens


Kind: TypeAlias = Literal["number", "name", "operator", "end"]


class ExpressionToken(Struct, frozen=True, gc=False):
    kind: Kind
    text: str
    place: int
    """The number of its first character, from 1."""


def _tokens(text: str) -> list[ExpressionToken]:
    tokens: list[ExpressionToken] = []
    calls: list[bool] = []
    """For every open bracket, whether a function's name stands before it."""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        grouped = None if any(calls) else _THOUSANDS.match(text, position)
        match = grouped or _TOKEN.match(text, position)
        if match is None:
            problem = f"{text[position]!r} at character {position + 1} is no part of arithmetic"
            raise NotComputable(f"{problem}: give the numbers themselves, not names or conditions")
        token = _token(match)
        if token.text == "(":
            calls.append(bool(tokens) and tokens[-1].kind == "name")
        elif token.text == ")" and calls:
            calls.pop()
        tokens.append(token)
        position = match.end()
    return [*tokens, ExpressionToken("end", "", len(text) + 1)]


def _token(match: re.Match[str]) -> ExpressionToken:
    text = match[0]
    place = match.start() + 1
    if match["number"]:
        plain = text.replace(",", "").replace("_", "")
        if sum(letter.isdigit() for letter in plain.lower().partition("e")[0]) > _DIGITS:
            raise NotComputable(f"the number at character {place} has more than {_DIGITS} digits")
        return ExpressionToken("number", plain, place)
    text = _SPELLINGS.get(text.lower(), text)
    return ExpressionToken("name" if match["name"] and text != "*" else "operator", text, place)


# --- operations


def _divide_down(dividend: Decimal, divisor: Decimal) -> Decimal:
    """Rounded down, as with whole numbers in Python; Decimal itself cuts towards zero."""
    rest = dividend % divisor if divisor else Decimal(0)
    quotient = dividend // divisor
    return quotient - 1 if rest and (rest < 0) != (divisor < 0) else quotient


def _remainder(dividend: Decimal, divisor: Decimal) -> Decimal:
    if not divisor:
        raise decimal.DivisionByZero
    rest = dividend % divisor
    return rest + divisor if rest and (rest < 0) != (divisor < 0) else rest


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    if not base and exponent < 0:
        raise decimal.DivisionByZero
    return base**exponent


def _round(number: Decimal, places: Decimal = Decimal(0)) -> Decimal:
    if places != places.to_integral_value() or not -_DIGITS <= places <= _DIGITS:
        raise NotComputable(f"round takes a whole number of places up to {_DIGITS}")
    if number.adjusted() + places >= _DIGITS:
        return number  # there is nothing left to round away
    return number.quantize(Decimal(1).scaleb(-int(places)))


def _sum(*numbers: Decimal) -> Decimal:
    return sum(numbers, Decimal(0))


_OPERATIONS: dict[str, tuple[int, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": (1, Decimal.__add__),
    "-": (1, Decimal.__sub__),
    "*": (2, Decimal.__mul__),
    "/": (2, Decimal.__truediv__),
    "//": (2, _divide_down),
    "%": (2, _remainder),
    "**": (4, _power),
}
"""How tightly each operator binds, and what it does."""
_SIGN_BINDS = 3
_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Decimal]]] = {
    "sqrt": (1, 1, Decimal.sqrt),
    "round": (1, 2, _round),
    "abs": (1, 1, Decimal.copy_abs),
    "min": (1, _MAX_CHARS, lambda *numbers: min(numbers)),
    "max": (1, _MAX_CHARS, lambda *numbers: max(numbers)),
    "sum": (1, _MAX_CHARS, _sum),
    "avg": (1, _MAX_CHARS, lambda *numbers: _sum(*numbers) / len(numbers)),
}
"""How many numbers each function takes, from and to, and what it does."""


class _ExpressionParser:
    """Precedence climbing. The depth bounds the recursion, the length of the text everything else."""

    def __init__(self, tokens: list[ExpressionToken]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def parse(self) -> Decimal:
        value = self._expression(0)
        if self._now.kind != "end":
            raise self._unexpected()
        return value

    @property
    def _now(self) -> ExpressionToken:
        return self._tokens[self._index]

    def _unexpected(self) -> NotComputable:
        token = self._now
        if token.kind == "end":
            return NotComputable("the expression ends too early: a number, a name or a bracket is missing")
        return NotComputable(f"{token.text!r} at character {token.place} does not belong there")

    def _expression(self, least: int) -> Decimal:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotComputable(f"more than {_MAX_DEPTH} levels of brackets, signs or powers; split it")
        value = self._operand()
        while self._now.kind == "operator":
            sign = self._now.text
            if sign == "%" and not self._operand_follows():
                self._index += 1
                value /= 100
                continue
            binds, work = _OPERATIONS.get(sign, (0, _power))
            if binds <= least:
                break
            self._index += 1
            # a power is worked out from the right: 2 ** 3 ** 2 is 2 ** 9
            value = work(value, self._expression(binds - 1 if sign == "**" else binds))
        self._depth -= 1
        return value

    def _operand_follows(self) -> bool:
        """Whether a % is a remainder: then a number, a name or a bracket comes next, else it is a percent sign."""
        following = self._tokens[self._index + 1]
        return following.kind in ("number", "name") or following.text == "("

    def _operand(self) -> Decimal:
        token = self._now
        if token.kind != "number" and token.kind != "name" and token.text not in ("+", "-", "("):
            raise self._unexpected()
        self._index += 1
        if token.kind == "number":
            return _CONTEXT.create_decimal(token.text)
        if token.kind == "name":
            return self._function(token)
        if token.text == "(":
            value = self._expression(0)
            self._close(token.place)
            return value
        value = self._expression(_SIGN_BINDS)
        return -value if token.text == "-" else value

    def _close(self, opened: int) -> None:
        if self._now.kind == "end":
            raise NotComputable(f"the bracket at character {opened} is never closed")
        if self._now.text != ")":
            raise self._unexpected()
        self._index += 1

    def _function(self, token: ExpressionToken) -> Decimal:
        name = token.text.lower()
        if name not in _FUNCTIONS:
            raise NotComputable(f"there is no {token.text!r}; {did_you_mean(name, _FUNCTIONS)}")
        if self._now.text != "(":
            raise NotComputable(f"{name} needs its numbers in brackets, for example {name}(2)")
        opened = self._now.place
        self._index += 1
        numbers = self._numbers()
        self._close(opened)
        least, most, work = _FUNCTIONS[name]
        if not least <= len(numbers) <= most:
            wanted = str(least) if least == most else f"{least} or {most}" if most == 2 else f"at least {least}"
            plural = "" if wanted.endswith("1") else "s"
            raise NotComputable(f"{name} takes {wanted} number{plural}, not {len(numbers)}")
        return work(*numbers)

    def _numbers(self) -> list[Decimal]:
        """What stands in the brackets of a function."""
        if self._now.text == ")":
            return []
        numbers = [self._expression(0)]
        while self._now.text == ",":
            self._index += 1
            numbers.append(self._expression(0))
        return numbers
