"""Measures Python code without running it."""

import ast
from pathlib import Path
from typing import Annotated

ROOT = Path(__file__).parent / "sample"
MOST_FILES = 200


def measure(file: Annotated[str, "One file such as prices.py; left out, all of them"] = "") -> dict[str, object]:
    """Measure the code of Python files: lines, functions, the longest function and functions without a docstring."""
    files = sorted(ROOT.rglob("*.py"))[:MOST_FILES]
    names = [str(path.relative_to(ROOT)) for path in files]
    if file and file not in names:
        raise ValueError(f"there is no file {file!r}; there are {', '.join(names)}")
    chosen = [path for path, name in zip(files, names, strict=True) if not file or name == file]
    functions = [function for path in chosen for function in _functions(path)]
    longest = max(functions, key=lambda function: function[1], default=("none", 0, True))
    return {
        "files": len(chosen),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in chosen),
        "functions": len(functions),
        "longest_function": longest[0],
        "longest_function_lines": longest[1],
        "without_docstring": [name for name, _, documented in functions if not documented],
    }


def _functions(path: Path) -> list[tuple[str, int, bool]]:
    """Each function with its place, its length in lines, and whether it has a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (
            f"{path.name}:{node.lineno} {node.name}",
            (node.end_lineno or node.lineno) - node.lineno + 1,
            _has_docstring(node),
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _has_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node) is not None
