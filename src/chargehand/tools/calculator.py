"""A tool that computes: exact decimal arithmetic, and the expression kept beside the number."""

from typing import Annotated

from chargehand.models.exhibits import Figure
from chargehand.tools.arithmetic import NotComputable, compute, shown
from chargehand.tools.tool import Tool, ToolFailed, tool

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
