"""Set-up installs the commands that tests of the page need; a test that lacks one fails and says how to get it."""

import os
from pathlib import Path

import pytest

from tests.page.apt import install_command, need_command

FAKE_APT = """#!/bin/sh
[ "$1" = install ] && printf '#!/bin/sh\\n' > {folder}/wanted-tool && chmod +x {folder}/wanted-tool
exit 0
"""


def test_a_command_that_is_missing_is_asked_for_with_the_one_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=r"need wanted-tool; install it: apt-get update && apt-get install"):
        need_command("wanted-tool", packages="wanted")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
def test_set_up_installs_a_command_that_is_missing_where_that_is_possible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(FAKE_APT.format(folder=tmp_path))
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert install_command("wanted-tool", packages="wanted")
    assert need_command("wanted-tool", packages="wanted") == str(tmp_path / "wanted-tool")
