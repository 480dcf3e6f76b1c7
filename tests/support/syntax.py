"""Functions in Python code, found without a look at every expression."""

import ast
from collections.abc import Iterator


def functions(node: ast.AST, *, nested: bool = True) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions below a node. Unless `nested`, those inside other functions are left out."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function:
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) and (nested or not is_function):
            yield from functions(child, nested=nested)
