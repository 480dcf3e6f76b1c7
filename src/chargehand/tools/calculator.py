"""A tool that computes: exact decimal arithmetic, and the expression kept beside the number.

Python's own parser reads the text; only arithmetic in its tree is worked out, with decimals. Nothing is executed.
"""

import ast
import decimal
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated

from chargehand.models.artifacts import Figure
from chargehand.text.words import did_you_mean
from chargehand.tools.tool import Tool, ToolFailed, tool

_MAX_CHARS = 500
_DIGITS = 50
_DIGITS_SHOWN = 28
_MAX_EXPONENT = 9_999  # far more than anybody means, and quick to compute with
_TRAPS = [decimal.Overflow, decimal.Underflow, decimal.DivisionByZero, decimal.InvalidOperation]
_CONTEXT = decimal.Context(_DIGITS, decimal.ROUND_HALF_UP, -_MAX_EXPONENT, _MAX_EXPONENT, traps=_TRAPS)

_FOREIGN = re.compile(r"[^0-9A-Za-z_\s.,+\-*/%^()\u00d7\u00f7\u00b7\u2212]")
_SPELLINGS = {"^": "**", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"}
_OF = re.compile(r"\bof\b", re.IGNORECASE)
_CALL = re.compile(r"[A-Za-z_]\s*\(")
_THOUSANDS = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<percent>\s*%(?!\s*[0-9A-Za-z.(]))?"
    r"|(?P<name>[A-Za-z_]+)"
)
"""A number, with a percent sign where no operand follows it; or a name."""
_DESCRIPTION = """Work out a number exactly. Operators + - * / // % ** and brackets; functions sqrt round abs min max
sum avg; "12% of 250" is 30. Halves are rounded up. With functions, commas separate numbers; else 1,234.5 is one."""


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
    """The value of an expression; NotComputable says what is wrong with it."""
    if len(expression) > _MAX_CHARS:
        raise NotComputable(f"the expression has {len(expression)} characters; {_MAX_CHARS} is the most, split it")
    try:
        with decimal.localcontext(_CONTEXT):
            tree, numbers = _parse(expression)
            return _evaluate(tree, numbers)
    except (decimal.Overflow, decimal.Underflow):
        limit = f"10 to the power of {_MAX_EXPONENT:,}"
        raise NotComputable(f"a number gets larger or smaller than {limit} allows") from None
    except decimal.DivisionByZero:
        raise NotComputable("division by zero") from None
    except decimal.InvalidOperation:
        cases = f"0 / 0, 0 ** 0, a root of a negative number, or a whole quotient of more than {_DIGITS} digits"
        raise NotComputable(f"not defined for these numbers: {cases}") from None
    except RecursionError:
        raise NotComputable("too many levels of brackets, signs or powers; split it") from None


def format_number(value: Decimal) -> str:
    """Whole numbers in full; others to 28 digits, which hides the noise of the last ones. Never 1E+3."""
    if value == value.to_integral_value() and value.adjusted() < _DIGITS:
        return f"{value.quantize(Decimal(1), context=_CONTEXT):f}" if value else "0"
    short = decimal.Context(prec=_DIGITS_SHOWN, Emax=_MAX_EXPONENT, Emin=-_MAX_EXPONENT).plus(value).normalize()
    return f"{short:f}" if -10 <= short.adjusted() < _DIGITS else str(short)


def _parse(expression: str) -> tuple[ast.expr, list[Decimal]]:
    """The tree of an expression in which every number stands for its place in the list of exact numbers."""
    foreign = _FOREIGN.search(expression)
    if foreign is not None:
        problem = f"{foreign[0]!r} at character {foreign.start() + 1} is no part of arithmetic"
        raise NotComputable(f"{problem}: give the numbers themselves, not names or conditions")
    text = _OF.sub("*", " ".join(expression.split()))
    for sign, operator in _SPELLINGS.items():
        text = text.replace(sign, operator)
    if not _CALL.search(text):
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    numbers: list[Decimal] = []

    def replace_token(match: re.Match[str]) -> str:
        if match["name"]:
            return _function_name(match["name"])
        number = _read_number(match["number"])
        numbers.append(number / 100 if match["percent"] else number)
        return f" {len(numbers) - 1} "

    try:
        tree = ast.parse(_TOKEN.sub(replace_token, text).strip(), mode="eval")
    except (SyntaxError, MemoryError) as error:
        what = error.msg if isinstance(error, SyntaxError) else "too many brackets"
        raise NotComputable(f"{text!r} is no whole expression ({what})") from None
    return tree.body, numbers


def _read_number(text: str) -> Decimal:
    plain = text.replace("_", "")
    if sum(letter.isdigit() for letter in plain.lower().partition("e")[0]) > _DIGITS:
        raise NotComputable(f"the number {plain[:20]}... has more than {_DIGITS} digits")
    return _CONTEXT.create_decimal(plain)


def _function_name(text: str) -> str:
    name = text.lower()
    if name not in _FUNCTIONS:
        raise NotComputable(f"there is no {text!r}; {did_you_mean(name, _FUNCTIONS)}")
    return name


def _evaluate(node: ast.expr, numbers: list[Decimal]) -> Decimal:
    match node:
        case ast.Constant(value=int(index)):
            return numbers[index]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, numbers)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand, numbers)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
            return _OPERATIONS[type(operator)](_evaluate(left, numbers), _evaluate(right, numbers))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [_evaluate(argument, numbers) for argument in arguments])
        case ast.Name(id=name):
            raise NotComputable(f"{name} needs its numbers in brackets, for example {name}(2)")
        case ast.Tuple():
            raise NotComputable("commas separate numbers only in the brackets of a function")
        case _:
            raise NotComputable("only numbers, operators, brackets and functions can be worked out")


def _call(name: str, numbers: list[Decimal]) -> Decimal:
    most, function = _FUNCTIONS[name]
    if not 1 <= len(numbers) <= most:
        raise NotComputable(f"{name} does not take {len(numbers)} numbers; it takes 1 to {most}")
    return function(*numbers)


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


_OPERATIONS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: Decimal.__add__,
    ast.Sub: Decimal.__sub__,
    ast.Mult: Decimal.__mul__,
    ast.Div: Decimal.__truediv__,
    ast.FloorDiv: _divide_down,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Decimal]]] = {
    "sqrt": (1, Decimal.sqrt),
    "round": (2, _round),
    "abs": (1, Decimal.copy_abs),
    "min": (_MAX_CHARS, lambda *numbers: min(numbers)),
    "max": (_MAX_CHARS, lambda *numbers: max(numbers)),
    "sum": (_MAX_CHARS, _sum),
    "avg": (_MAX_CHARS, lambda *numbers: _sum(*numbers) / len(numbers)),
}
"""How many numbers each function takes at most, and what it does."""
