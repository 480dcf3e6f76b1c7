"""Installs what the tests of the page need, before tests run: Chromium, node, npm and the packages of web/.

What cannot be installed is printed with the line that does it, and the tests that need it fail with the same line. The
exit code is 1 then, so that the next call tries again.
"""

import sys

from tests.page.apt import CHROMIUM, install_command, install_line
from tests.page.web_tools import install_packages

_COMMANDS = ((CHROMIUM, "chromium"), (("node",), "nodejs npm"), (("npm",), "nodejs npm"))


def set_up() -> list[str]:
    """Install all that is missing and return the lines that a person has to run."""
    lines = {install_line(packages) for names, packages in _COMMANDS if not install_command(*names, packages=packages)}
    if lines:
        return sorted(lines)
    install_packages()
    return []


if __name__ == "__main__":
    missing = set_up()
    for line in missing:
        sys.stderr.write(f"the tests of the page will fail; install what they need: {line}\n")
    sys.exit(bool(missing))
