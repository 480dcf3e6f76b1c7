"""Optional parts of the package: what they need is installed as an extra."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from chargehand.errors import Invalid

_ROOT = Path(__file__).parents[2]


def install_command(extra: str, root: Path = _ROOT) -> str:
    """What to type to get an extra: in a checkout it is installed from the checkout, else by the package's name."""
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'chargehand[{extra}]'"
    here = "." if Path.cwd() == root else str(root)
    return f"pip install -e '{here}[{extra}]'"


class OfExtra(AbstractContextManager[None]):
    """Around imports of what comes with an extra: Invalid, with what to type, where it is not installed."""

    def __init__(self, owner: str, extra: str) -> None:
        self._owner = owner
        self._extra = extra

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "chargehand":
            how = install_command(self._extra)
            raise Invalid(f"{self._owner} needs {error.name}, which is not here: {how}") from error
