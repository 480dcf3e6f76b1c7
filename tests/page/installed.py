"""The server that the page is tested on: from the wheel, in an environment that does not know the checkout."""

import fcntl
import os
import site
from pathlib import Path

import pytest

from tests.wheel import ROOT, Environment, build, run


def install_wheel(factory: pytest.TempPathFactory) -> Path:
    """The Python that has the wheel, made once for all tests that run side by side."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    place = shared / "installed"
    with (shared / "installed.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not place.exists():
            _install(place)
    return place / "bin" / "python"


def _install(place: Path) -> None:
    environment = Environment(place)
    environment.install(build("wheel", ROOT, place))
    # What it depends on is lent by path. A .pth file in there is not read, so the checkout does not come with it.
    (environment.packages / "lent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    where = run([environment.python, "-c", "import chargehand, sys; print(chargehand.__file__, *sys.path)"], place)
    assert where.startswith(str(environment.packages)), where
    assert str(ROOT / "src") not in where.split(), where
