"""Node, for tests of the page: its packages, its build, and scripts of web/test run through esbuild."""

import fcntl
import subprocess
from pathlib import Path

from tests.page.apt import need_command

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
_PACKAGES = WEB / "node_modules"


def install_packages() -> None:
    """Node, and the packages of the lock file, if they are not there yet; tests side by side wait for each other."""
    for command in ("node", "npm"):
        need_command(command, packages="nodejs npm")
    stamp = _PACKAGES / ".installed"
    lock = WEB / "package-lock.json"
    with (WEB / "package.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
            return
        _call(["npm", "ci", "--no-progress"])
        stamp.write_bytes(lock.read_bytes())


def run_script(script: str, given: bytes, folder: Path) -> bytes:
    """What a script of web/test prints when it is given this."""
    install_packages()
    bundle = folder / f"{Path(script).stem}.mjs"
    bundler = _PACKAGES / ".bin" / "esbuild"
    flags = ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", f"--outfile={bundle}"]
    _call([str(bundler), str(WEB / "test" / script), *flags])
    return _call(["node", str(bundle)], given)


def build_page(folder: Path) -> None:
    """Build the page into a folder."""
    install_packages()
    _call(["node", "build.mjs", str(folder)])


def check_types() -> None:
    install_packages()
    _call([str(_PACKAGES / ".bin" / "tsc"), "--noEmit"])


def _call(command: list[str], given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, cwd=WEB, timeout=110, check=False)
    assert done.returncode == 0, (command, done.stderr.decode()[-4000:])
    return done.stdout
