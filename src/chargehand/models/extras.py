"""What installs the optional parts of the package, for messages about one that is missing."""

from pathlib import Path

_ROOT = Path(__file__).parents[3]


def install_command(extra: str, root: Path = _ROOT) -> str:
    """What to type to get an extra: in a checkout it is installed from the checkout, else by the package's name."""
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'chargehand[{extra}]'"
    here = "." if Path.cwd() == root else str(root)
    return f"pip install -e '{here}[{extra}]'"
