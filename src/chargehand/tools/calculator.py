"""A tool that computes: exact decimal arithmetic, and the expression kept beside the number."""

from typing import Annotated

from chargehand.models.exhibits import Figure
from chargehand.tools.arithmetic import NotComputable, compute, shown
from chargehand.tools.tool import Tool, ToolFailed, tool

_DESCRIPTION = """Work out a number exactly. Never guess a number that can be computed.
Operators + - * / // % ** and brackets; functions sqrt round abs min max sum avg; 12% is 0.12 and "12% of 250" is 30.
Halves are rounded up: round(2.345, 2) is 2.35. In a function commas separate numbers, elsewhere 1,234.5 is one."""


def calculator(name: str = "calculate") -> Tool:
    return tool(name=name, description=_DESCRIPTION, quick=True, trusted=True, stable=True)(calculate)


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
