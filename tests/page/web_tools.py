"""Node, for tests of the page: its packages, its build, and scripts of web/test run through esbuild."""

import subprocess
from pathlib import Path

import pytest

from tests.page.apt import need_command

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
_PACKAGES = WEB / "node_modules"


_STAMP = _PACKAGES / ".installed"
_LOCK = WEB / "package-lock.json"


def install_packages() -> None:
    """Install the packages of the lock file, if they are not there yet. Set-up calls it; no test does."""
    if not _is_installed():
        _call(["npm", "ci", "--no-progress"])
        _STAMP.write_bytes(_LOCK.read_bytes())


def need_packages() -> None:
    """Fail the test where node or the packages of the lock file are missing, with the line that installs them."""
    need_command("node", packages="nodejs npm")
    if not _is_installed():
        pytest.fail("the tests of the page need the packages of web/package-lock.json; install them: make page-tools")


def _is_installed() -> bool:
    return _STAMP.exists() and _STAMP.read_bytes() == _LOCK.read_bytes()


def run_script(script: str, given: bytes, folder: Path) -> bytes:
    """What a script of web/test prints when it is given this."""
    need_packages()
    bundle = folder / f"{Path(script).stem}.mjs"
    bundler = _PACKAGES / ".bin" / "esbuild"
    flags = ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", f"--outfile={bundle}"]
    _call([str(bundler), str(WEB / "test" / script), *flags])
    return _call(["node", str(bundle)], given)


def build_page(folder: Path) -> None:
    """Build the page into a folder."""
    need_packages()
    _call(["node", "build.mjs", str(folder)])


def check_types() -> None:
    need_packages()
    _call([str(_PACKAGES / ".bin" / "tsc"), "--noEmit"])


def _call(command: list[str], given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, cwd=WEB, timeout=110, check=False)
    assert done.returncode == 0, (command, done.stderr.decode()[-4000:])
    return done.stdout
